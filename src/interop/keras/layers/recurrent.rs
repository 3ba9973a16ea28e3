//! Recurrent layers, and what runs them in both directions or at each step.

use super::activation::Activation;
use super::core::rate;
use crate::error::{GraphError, ImportError};
use crate::interop::keras::config::Config;
use crate::interop::keras::value::{Call, Layer, Value, reshape};
use crate::interop::keras::weights::{Form, Slot};
use crate::nn::{self, Gru, Lstm, Module, Rnn, RnnRelu, Scope, Tensor};
use crate::ops::shape::flip::Flip;
use crate::tensor::ValueId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

/// LSTM, GRU or SimpleRNN.
#[derive(Clone, Debug)]
struct Recurrent {
    cell: Cell,
    units: usize,
    bias: bool,
    sequences: bool,
    backwards: bool,
    stateful: bool,
    /// Of the inputs, in training: of a feature at all steps alike.
    dropout: f32,
    unit_forget_bias: bool,
}

/// Read from its last step to its first.
#[derive(Debug)]
struct Backwards;

impl Module for Backwards {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        scope.apply(Flip { axis: 1, has_lengths: false }, &[input])
    }
}

impl Recurrent {
    /// Runs over `[batch, time, features]` with the parameters of a part of the layer, or of itself.
    fn run<'a>(&self, call: &Call<'_, 'a>, x: Tensor<'a>, part: Option<&str>) -> Tensor<'a> {
        let name = part.map_or_else(|| call.name.to_owned(), |part| format!("{}.{part}", call.name));
        let call = Call { name: &name, ..*call };
        let mut x = x;
        if self.dropout > 0.0 && x.shape().len() == 3 {
            let turned = x.transpose(1, 2);
            x = call.part(turned, "dropout", nn::Dropout2d::new(self.dropout)).transpose(1, 2);
        }
        if self.backwards {
            x = x.layer(&format!("{name}.backwards"), Backwards);
        }
        /// A layer of this cell.
        macro_rules! layer {
            ($cell:ident) => {
                $cell::new(self.units)
                    .return_sequences(self.sequences)
                    .stateful(self.stateful)
                    .orthogonal(true)
                    .bias(self.bias)
            };
        }
        match self.cell {
            Cell::Lstm => {
                call.layer(x, layer!(Lstm).recurrent_bias(false).unit_forget_bias(self.bias && self.unit_forget_bias))
            }
            Cell::Gru => call.layer(x, layer!(Gru)),
            Cell::Tanh => call.layer(x, layer!(Rnn).recurrent_bias(false)),
            Cell::Relu => call.layer(x, layer!(RnnRelu).recurrent_bias(false)),
        }
    }
}

impl Layer for Recurrent {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        Value::plain(self.run(call, call.input().keras(), None))
    }

    fn slots(&self) -> Vec<Slot> {
        let swap = self.cell == Cell::Gru;
        let gates = |name: &str| Form::Gates { name: name.to_owned(), swap };
        let mut forms = vec![gates("weight_ih_l0"), gates("weight_hh_l0")];
        if self.bias {
            forms.push(match self.cell {
                Cell::Gru => Form::GruBiases { names: ["bias_ih_l0", "bias_hh_l0"].map(str::to_owned) },
                _ => Form::same("bias_ih_l0"),
            });
        }
        forms.into_iter().enumerate().map(|(index, form)| Slot::new(index, form).in_group("cell")).collect()
    }

    fn keeps(&self) -> bool {
        self.stateful
    }
}

/// How the two directions come together.
#[derive(Clone, Copy, Debug)]
enum Merge {
    Concat,
    Sum,
    Mul,
    Average,
}

#[derive(Debug)]
struct Bidirectional {
    forward: Recurrent,
    backward: Recurrent,
    merge: Merge,
}

impl Layer for Bidirectional {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input().keras();
        let ahead = self.forward.run(call, x, Some("forward_layer"));
        let mut back = self.backward.run(call, x, Some("backward_layer"));
        if self.backward.sequences {
            back = back.layer(&format!("{}.turned", call.name), Backwards);
        }
        let last = ahead.shape().len() - 1;
        Value::plain(ahead.within(call.name, |ahead| match self.merge {
            Merge::Concat => ahead.concat(back, last),
            Merge::Sum => ahead + back,
            Merge::Mul => ahead * back,
            Merge::Average => (ahead + back) * 0.5,
        }))
    }

    fn slots(&self) -> Vec<Slot> {
        let parts = [("forward_layer", &self.forward), ("backward_layer", &self.backward)];
        let of = |(part, layer): (&'static str, &Recurrent)| {
            let slots = layer.slots().into_iter();
            slots.map(move |slot| Slot { form: slot.form.clone().within(part), ..slot }.in_group(part))
        };
        parts.into_iter().flat_map(of).collect()
    }

    fn keeps(&self) -> bool {
        self.forward.stateful || self.backward.stateful
    }
}

/// The same layer at each step of time: steps are taken for samples.
#[derive(Debug)]
struct TimeDistributed {
    layer: Box<dyn Layer>,
}

impl Layer for TimeDistributed {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input().keras();
        let shape = x.shape().to_vec();
        if shape.len() < 3 {
            return call.fail("needs samples [time, …]: there is nothing to go over".to_owned());
        }
        let steps = reshape(x, [&[shape[0] * shape[1]], &shape[2..]].concat());
        let inputs = [Value::plain(steps)];
        let output = self.layer.apply(&Call { inputs: &inputs, ..*call }).keras();
        let made = output.shape().to_vec();
        Value::plain(reshape(output, [&shape[..2], &made[1..]].concat()))
    }

    fn slots(&self) -> Vec<Slot> {
        self.layer.slots().into_iter().map(|slot| slot.in_group("layer")).collect()
    }

    fn constants(&self) -> Vec<(String, crate::interop::Weight)> {
        self.layer.constants()
    }

    fn keeps(&self) -> bool {
        self.layer.keeps()
    }
}

fn recurrent(config: &Config<'_>) -> Result<Option<Recurrent>, ImportError> {
    let cell = match config.class {
        "LSTM" => Cell::Lstm,
        "GRU" => Cell::Gru,
        "SimpleRNN" => Cell::Tanh,
        "CuDNNLSTM" | "CuDNNGRU" => {
            return Err(
                config.unsupported("is of Keras 1 and 2: load the model in Keras with LSTM or GRU and save it anew")
            );
        }
        _ => return Ok(None),
    };
    let name = |key: &str, default: &'static str| -> Result<String, ImportError> {
        let activation = Activation::of(config, key)?;
        Ok(match activation {
            Activation::Tanh => "tanh",
            Activation::Sigmoid => "sigmoid",
            Activation::Relu { slope: 0.0, max: None, threshold: 0.0 } => "relu",
            Activation::Linear if config.get(key).is_none() => default,
            _ => "other",
        }
        .to_owned())
    };
    let cell = match (cell, &*name("activation", "tanh")?) {
        (cell, "tanh") => cell,
        (Cell::Tanh, "relu") => Cell::Relu,
        _ => {
            return Err(
                config.unsupported("`activation` must be tanh, or relu of a SimpleRNN: others are not supported")
            );
        }
    };
    let has_gates = matches!(cell, Cell::Lstm | Cell::Gru);
    if has_gates && name("recurrent_activation", "sigmoid")? != "sigmoid" {
        return Err(config.unsupported("`recurrent_activation` must be sigmoid: others are not supported"));
    }
    config.refuse("recurrent_dropout", "set it to 0, and use `dropout` for the inputs")?;
    config.refuse("return_state", "take the output alone; a state as an output is not supported")?;
    config.refuse("time_major", "put time behind the batch")?;
    if cell == Cell::Gru && !config.bool("reset_after", true)? {
        return Err(config
            .unsupported("`reset_after` = false is not supported: train it with reset_after=True, Keras's default"));
    }
    Ok(Some(Recurrent {
        cell,
        units: config.count("units")?,
        bias: config.bool("use_bias", true)?,
        sequences: config.bool("return_sequences", false)?,
        backwards: config.bool("go_backwards", false)?,
        stateful: config.bool("stateful", false)?,
        dropout: rate(config, "dropout")?,
        unit_forget_bias: config.bool("unit_forget_bias", true)?,
    }))
}

/// The layer that a wrapper has as a setting.
fn wrapped<'j>(config: &Config<'j>, key: &str) -> Result<Option<Config<'j>>, ImportError> {
    let Some(value) = config.get(key) else { return Ok(None) };
    let class = value.get("class_name").and_then(serde_json::Value::as_str);
    let fields = value.get("config").and_then(serde_json::Value::as_object);
    match class.zip(fields) {
        Some((class, fields)) => Ok(Some(Config { class, fields, ..*config })),
        None => Err(config.unsupported(format!("`{key}` is no layer: save the model anew with Keras"))),
    }
}

/// A layer of these classes, if it is one.
pub(super) fn parse(config: &Config<'_>, input: Option<&[usize]>) -> Result<Option<Box<dyn Layer>>, ImportError> {
    match config.class {
        "Bidirectional" => {
            let of = |inner: Config<'_>| {
                let class = inner.class.to_owned();
                recurrent(&inner)?.ok_or_else(|| {
                    config.unsupported(format!("of `{class}` is not supported: use LSTM, GRU or SimpleRNN"))
                })
            };
            let inner =
                wrapped(config, "layer")?.ok_or_else(|| config.unsupported("has no layer: save the model anew"))?;
            let forward = of(inner)?;
            let backward = match wrapped(config, "backward_layer")? {
                Some(inner) => of(inner)?,
                None => Recurrent { backwards: !forward.backwards, ..forward.clone() },
            };
            if forward.sequences != backward.sequences {
                return Err(
                    config.unsupported("has one direction with `return_sequences` and one without: give both the same")
                );
            }
            let merge = match config.get("merge_mode").map(|mode| mode.as_str()) {
                Some(Some("concat")) => Merge::Concat,
                Some(Some("sum")) => Merge::Sum,
                Some(Some("mul")) => Merge::Mul,
                Some(Some("ave")) => Merge::Average,
                _ => {
                    return Err(config
                        .unsupported("`merge_mode` must be concat, sum, mul or ave: two outputs are not supported"));
                }
            };
            Ok(Some(Box::new(Bidirectional { forward, backward, merge })))
        }
        "TimeDistributed" => {
            let inner =
                wrapped(config, "layer")?.ok_or_else(|| config.unsupported("has no layer: save the model anew"))?;
            if matches!(inner.class, "Functional" | "Sequential" | "Model" | "TimeDistributed") {
                return Err(
                    config.unsupported(format!("of a {} is not supported: wrap its layers one by one", inner.class))
                );
            }
            let inside = input.and_then(|input| input.get(1..));
            let layer = super::parse(&inner, inside)?;
            if layer.takes_tokens() || layer.arity() != (1, 1) {
                return Err(config.unsupported(format!(
                    "of a layer {} is not supported: apply it to the whole sequence",
                    inner.class
                )));
            }
            Ok(Some(Box::new(TimeDistributed { layer })))
        }
        _ => Ok(recurrent(config)?.map(|layer| Box::new(layer) as Box<dyn Layer>)),
    }
}
