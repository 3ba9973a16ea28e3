//! Dense layers, embeddings, dropout, and what only scales.

use super::activation::Activation;
use crate::error::{GraphError, ImportError};
use crate::interop::Weight;
use crate::interop::keras::config::{Config, shown};
use crate::interop::keras::value::{Call, Layer, Value, reshape};
use crate::interop::keras::weights::{Form, Slot};
use crate::nn::{self, Init, Module, Scheme, Scope};
use crate::ops::shape::reshape::Reshape;
use crate::tensor::ValueId;

/// Products with a matrix along the last axis.
#[derive(Debug)]
struct Dense {
    units: usize,
    bias: bool,
    init: Scheme,
    activation: Activation,
}

impl Layer for Dense {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input().keras();
        let layer = nn::Linear::new(self.units).bias(self.bias).init(self.init);
        let mut shape = x.shape().to_vec();
        let output = if shape.len() <= 3 {
            call.layer(x, layer)
        } else {
            let rows = shape[1..shape.len() - 1].iter().product();
            let output = call.layer(reshape(x, vec![shape[0], rows, shape[shape.len() - 1]]), layer);
            *shape.last_mut().expect("bug: a tensor without axes") = self.units;
            reshape(output, shape)
        };
        self.activation.apply(Value::plain(output), call.name)
    }

    fn slots(&self) -> Vec<Slot> {
        let mut slots = vec![Slot::new(0, Form::transposed("weight"))];
        if self.bias {
            slots.push(Slot::new(1, Form::same("bias")));
        }
        slots
    }
}

/// A row of a table for each index.
#[derive(Debug)]
struct Embedding {
    rows: usize,
    columns: usize,
}

impl Layer for Embedding {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        // Keras starts uniform over ±0.05.
        let layer = nn::Embedding::new(self.rows, self.columns).std(0.029);
        Value::plain(call.layer(call.input().keras(), layer))
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot::new(0, Form::same("weight"))]
    }

    fn takes_tokens(&self) -> bool {
        true
    }
}

/// Zeros for random elements, channels or samples.
#[derive(Debug)]
struct Dropout {
    p: f32,
    of: Dropped,
}

/// What is zeroed together.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Dropped {
    Elements,
    Channels { last: bool },
    Samples,
}

impl Layer for Dropout {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input();
        match self.of {
            Dropped::Elements => x.like(call.layer(x.tensor, nn::Dropout::new(self.p))),
            Dropped::Channels { last: true } => {
                Value::first(call.layer(x.channels_first(), nn::Dropout2d::new(self.p)))
            }
            Dropped::Channels { last: false } => Value::plain(call.layer(x.keras(), nn::Dropout2d::new(self.p))),
            Dropped::Samples => x.like(call.layer(x.tensor, nn::StochasticDepth::new(self.p))),
        }
    }

    fn converts(&self) -> bool {
        self.of == Dropped::Channels { last: true }
    }
}

impl Dropped {
    /// As `noise_shape` says: along an axis where that is 1, all is zeroed together.
    fn of(config: &Config<'_>) -> Result<Self, ImportError> {
        let Some(shape) = config.get("noise_shape").filter(|shape| !shape.is_null()) else {
            return Ok(Dropped::Elements);
        };
        let together: Option<Vec<bool>> = shape.as_array().map(|axes| axes.iter().map(|axis| axis == 1).collect());
        match together.as_deref() {
            Some([false, axes @ ..]) if !axes.contains(&true) => Ok(Dropped::Elements),
            Some([false, axes @ ..]) if !axes.contains(&false) => Ok(Dropped::Samples),
            Some([false, axes @ .., false]) if !axes.contains(&false) => Ok(Dropped::Channels { last: true }),
            _ => Err(config.unsupported(format!(
                "`noise_shape` {} is not supported: all of a sample (1 but for the first axis) or all of a channel (1 but for the first and the last) may be dropped together",
                shown(shape)
            ))),
        }
    }
}

/// A factor for each channel, as `keras.applications` has it in ConvNeXt.
#[derive(Debug)]
struct LayerScale {
    init: f32,
}

impl Layer for LayerScale {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input();
        Value::first(call.layer(x.channels_first(), Factors(self.init)))
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot::new(0, Form::same("weight"))]
    }
}

/// `x · weight` along axis 1.
#[derive(Debug)]
struct Factors(f32);

impl Module for Factors {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let shape = scope.shape(input);
        let weight = scope.parameter("weight", [shape[1]], Init::Constant { value: self.0 })?;
        let spread = [vec![shape[1]], vec![1; shape.len() - 2]].concat();
        let weight = scope.apply(Reshape { shape: spread.into() }, &[weight])?;
        scope.formula([input, weight], |[x, weight]| x * weight)
    }
}

/// What it is given.
#[derive(Debug)]
struct Identity;

impl Layer for Identity {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        call.input()
    }

    fn takes_tokens(&self) -> bool {
        true
    }
}

/// `scale · x + offset`
#[derive(Debug)]
struct Rescaling {
    scale: f32,
    offset: f32,
}

impl Layer for Rescaling {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input();
        x.like(call.layer(x.tensor, nn::Rescaling::new(self.scale, self.offset)))
    }

    fn scale(&self) -> Option<f32> {
        Some(self.scale)
    }
}

/// Keras divides by no less.
const LEAST_DEVIATION: f32 = 1e-7;

/// `(x − mean) / √variance` of each feature, or the inverse.
#[derive(Debug)]
struct Normalization {
    /// As the settings have it; what the layer has seen otherwise.
    given: Option<[Vec<f32>; 2]>,
    invert: bool,
}

impl Normalization {
    fn is_one_for_all(&self) -> bool {
        self.given.as_ref().is_some_and(|[mean, variance]| mean.len() == 1 && variance.len() == 1)
    }
}

impl Layer for Normalization {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input();
        if let Some([mean, variance]) = self.given.as_ref().filter(|_| self.is_one_for_all()) {
            let deviation = variance[0].sqrt().max(LEAST_DEVIATION);
            let (scale, offset) =
                if self.invert { (deviation, mean[0]) } else { (1.0 / deviation, -mean[0] / deviation) };
            return x.like(call.layer(x.tensor, nn::Rescaling::new(scale, offset)));
        }
        let layer = Standardize { invert: self.invert };
        Value::first(call.layer(x.channels_first(), layer))
    }

    fn slots(&self) -> Vec<Slot> {
        match self.given {
            Some(_) => Vec::new(),
            None => vec![
                Slot::new(0, Form::same("mean")).fixed(),
                Slot::new(1, Form::same("variance")).fixed(),
                Slot::new(2, Form::Unused).fixed(),
            ],
        }
    }

    fn constants(&self) -> Vec<(String, Weight)> {
        let Some(given) = self.given.as_ref().filter(|_| !self.is_one_for_all()) else { return Vec::new() };
        let length = given[0].len().max(given[1].len());
        let named = ["mean", "variance"].into_iter().zip(given);
        let filled = |values: &Vec<f32>| if values.len() == 1 { vec![values[0]; length] } else { values.clone() };
        named.filter_map(|(name, values)| Some((name.to_owned(), Weight::new([length], filled(values))?))).collect()
    }

    fn keeps(&self) -> bool {
        !self.is_one_for_all()
    }
}

/// By a mean and a variance of each channel, which no step changes.
#[derive(Debug)]
struct Standardize {
    invert: bool,
}

impl Module for Standardize {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let shape = scope.shape(input);
        let channels = shape[1];
        let mut statistic = |name: &str, init: Init| {
            let value = scope.buffer(name, [channels], init)?;
            let spread: Vec<_> = std::iter::once(channels).chain(shape[2..].iter().map(|_| 1)).collect();
            scope.apply(Reshape { shape: spread.into() }, &[value])
        };
        let (mean, variance) = (statistic("mean", Init::ZEROS)?, statistic("variance", Init::ONES)?);
        scope.formula([input, mean, variance], |[x, mean, variance]| {
            let deviation = variance.sqrt().maximum(LEAST_DEVIATION);
            if self.invert { x * deviation + mean } else { (x - mean) / deviation }
        })
    }
}

/// A layer of these classes, if it is one.
pub(super) fn parse(config: &Config<'_>, input: Option<&[usize]>) -> Result<Option<Box<dyn Layer>>, ImportError> {
    Ok(Some(match config.class {
        "Dense" => {
            config.refuse("lora_rank", "merge it into the kernel before saving")?;
            config.refuse("quantization_mode", "save the model before it is quantized")?;
            Box::new(Dense {
                units: config.count("units")?,
                bias: config.bool("use_bias", true)?,
                init: config.scheme("kernel_initializer"),
                activation: Activation::of(config, "activation")?,
            })
        }
        "Embedding" => {
            config.refuse(
                "mask_zero",
                "layers here take no masks; set it to False, so that index 0 counts as any other",
            )?;
            config.refuse("lora_rank", "merge it into the table before saving")?;
            Box::new(Embedding { rows: config.count("input_dim")?, columns: config.count("output_dim")? })
        }
        "Dropout" => Box::new(Dropout { p: rate(config, "rate")?, of: Dropped::of(config)? }),
        "SpatialDropout1D" => Box::new(Dropout { p: rate(config, "rate")?, of: Dropped::Channels { last: true } }),
        "SpatialDropout2D" | "SpatialDropout3D" => {
            let last = config.channels_last()?;
            Box::new(Dropout { p: rate(config, "rate")?, of: Dropped::Channels { last } })
        }
        "StochasticDepth" => Box::new(Dropout { p: rate(config, "drop_path_rate")?, of: Dropped::Samples }),
        "LayerScale" => Box::new(LayerScale { init: config.number("init_values", 1e-6)? as f32 }),
        "Identity" => Box::new(Identity),
        "Rescaling" => {
            let one = |key: &str, default: f64| {
                match config.numbers(key)?.as_deref() {
                None => Ok(default as f32),
                Some([number]) => Ok(*number),
                Some(_) => Err(config.unsupported(format!(
                    "`{key}` with a number for each channel is not supported: use Normalization, which has a mean and a variance of each"
                ))),
            }
            };
            Box::new(Rescaling { scale: one("scale", 1.0)?, offset: one("offset", 0.0)? })
        }
        "Normalization" => Box::new(normalization(config, input)?),
        _ => return Ok(None),
    }))
}

/// A probability of zeros.
pub(super) fn rate(config: &Config<'_>, key: &str) -> Result<f32, ImportError> {
    let rate = config.number(key, 0.0)? as f32;
    if (0.0..=1.0).contains(&rate) {
        return Ok(rate);
    }
    Err(config.unsupported(format!("`{key}` = {rate} is no probability: it must be from 0 to 1")))
}

fn normalization(config: &Config<'_>, input: Option<&[usize]>) -> Result<Normalization, ImportError> {
    let axis = match config.get("axis") {
        Some(_) => config.axes("axis", -1)?,
        None => Vec::new(),
    };
    let given = match (config.numbers("mean")?, config.numbers("variance")?) {
        (Some(mean), Some(variance)) => {
            let fits = mean.len() == variance.len() || mean.len() == 1 || variance.len() == 1;
            if !fits || mean.is_empty() || variance.is_empty() || variance.iter().any(|variance| *variance < 0.0) {
                return Err(config.unsupported("needs as many variances, 0 or more, as means: save the model anew"));
            }
            Some([mean, variance])
        }
        (None, None) => None,
        _ => return Err(config.unsupported("has a mean without a variance, or the other way round: give both")),
    };
    let layer = Normalization { given, invert: config.bool("invert", false)? };
    let is_last = match axis[..] {
        [-1] => true,
        // With the batch, the last axis is the rank.
        [axis] => input.is_some_and(|input| axis == input.len() as isize),
        _ => false,
    };
    if !layer.is_one_for_all() && !is_last {
        return Err(config.unsupported("`axis` must be the last one (-1), or none with one mean and variance for all"));
    }
    Ok(layer)
}

#[cfg(test)]
mod tests {
    use crate::interop::keras::Architecture;
    use crate::nn::{Mode, Statistics};

    /// How many numbers each random one holds for, of samples `[2, 3, 4]` in Keras's order.
    fn dropped_together(noise_shape: &str) -> Result<String, String> {
        let json = format!(
            r#"{{"class_name": "Sequential", "config": {{"name": "m", "layers": [
                {{"class_name": "InputLayer", "config": {{"name": "x", "batch_shape": [null, 2, 3, 4]}}}},
                {{"class_name": "Conv2D", "config": {{"name": "c", "filters": 4, "kernel_size": [1, 1]}}}},
                {{"class_name": "Dropout", "config": {{"name": "d", "rate": 0.5, "noise_shape": {noise_shape}}}}}
            ]}}}}"#
        );
        let architecture = Architecture::from_json(&json).map_err(|error| error.to_string())?;
        let built = architecture.model().build(2, Mode::Train(Statistics::Exact)).map_err(|error| error.to_string())?;
        let node = built.graph.nodes().iter().find(|node| node.op.name() == "dropout");
        Ok(node.map(|node| format!("{:?}", node.op)).expect("dropout drops in training"))
    }

    #[test]
    fn noise_shapes_drop_elements_channels_or_samples() {
        for (noise_shape, block) in [
            ("null", 1),
            ("[null, null, null, null]", 1),
            ("[null, 1, 1, 4]", 6),
            ("[null, 1, 1, null]", 6),
            ("[null, 1, 1, 1]", 24),
        ] {
            let op = dropped_together(noise_shape).expect(noise_shape);
            assert!(
                op.contains(&format!("block: {block} ")) || op.contains(&format!("block: {block},")),
                "{noise_shape}: {op}"
            );
        }
        for noise_shape in ["[1, 1, 1, 4]", "[null, 1, 3, 1]", "[]", "7"] {
            let error = dropped_together(noise_shape).expect_err(noise_shape);
            assert!(error.contains("noise_shape"), "{error}");
        }
    }
}
