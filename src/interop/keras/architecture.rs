//! A model's settings as a model here, and its weights in both forms.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde_json::Value as Json;

use super::compile::{self, Output};
use super::config::corrupt;
use super::groups::Arrays;
use super::network::Network;
use super::parse;
use super::value::Value;
use crate::error::ImportError;
use crate::interop::{ChannelOrder, ImportedModel, Pixels, Weight, Weights};
use crate::nn::{Mode, Model};
use crate::train::{Loss, Optimizer};

/// A model of Keras's without its weights: what its JSON says.
///
/// Weights come and go as lists of arrays, one list for each layer, in the order of Keras's `layer.weights`: from files
/// ([`read_weights`](super::read_weights)), or from a model in memory. For Keras's axes and those of the model here, see the
/// [module](super).
///
/// ```
/// use tightfit::interop::Weight;
/// use tightfit::interop::keras::Architecture;
///
/// let json = r#"{"class_name": "Sequential", "config": {"name": "line", "layers": [
///     {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 2]}},
///     {"class_name": "Dense", "config": {"name": "dense", "units": 1}}
/// ]}}"#;
/// let line = Architecture::from_json(json)?;
/// assert_eq!(line.model().input_shape()[..], [2]);
/// let weights = line.weights_from(|path| {
///     assert_eq!(path, ["dense"]);
///     let [kernel, bias] = [(vec![2, 1], vec![3.0, 4.0]), (vec![1], vec![5.0])];
///     let arrays = [kernel, bias].into_iter().filter_map(|(shape, values)| Weight::new(shape, values));
///     Ok(arrays.collect())
/// })?;
/// assert_eq!(weights.get("dense.weight").map(|weight| &weight.shape()[..]), Some(&[1, 2][..]));
/// # Ok::<(), tightfit::error::ImportError>(())
/// ```
#[derive(Clone)]
pub struct Architecture {
    pub(super) network: Arc<Network>,
    model: Model,
    pub(super) path: PathBuf,
    /// The settings as they were given.
    pub(super) json: Arc<str>,
    /// What else Keras wrote beside them.
    pub(super) metadata: Option<Arc<str>>,
    loss: Option<Loss>,
    optimizer: Option<Optimizer>,
    input_order: ChannelOrder,
    output_order: ChannelOrder,
}

impl fmt::Debug for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Architecture").field("model", &self.model).finish_non_exhaustive()
    }
}

/// The path of a layer's names, and its arrays in the order of Keras's `layer.weights`.
pub type LayerArrays = (Vec<String>, Vec<Weight>);

/// A layer that has weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KerasLayer {
    /// Its name, behind those of the models that it is in.
    pub path: Vec<String>,
    /// Its class in Keras.
    pub class: String,
    /// Whether Keras trains it.
    pub trainable: bool,
    /// How many arrays it has.
    pub weights: usize,
}

impl Architecture {
    /// The model of `model.to_json()` or of `config.json` in a `.keras`.
    ///
    /// # Errors
    /// Where it is no model, or has a layer or a setting that is not there here; the message names the layer.
    pub fn from_json(json: &str) -> Result<Self, ImportError> {
        Architecture::parse(Path::new("the model's JSON"), json, None)
    }

    /// `compiled` is what Keras 2 keeps apart.
    pub(super) fn parse(path: &Path, text: &str, compiled: Option<&str>) -> Result<Self, ImportError> {
        let read = |text: &str| -> Result<Json, ImportError> {
            serde_json::from_str(text)
                .map_err(|error| corrupt(path, format!("its settings are no JSON ({error}): save it anew")))
        };
        let json = read(text)?;
        let network = Arc::new(parse::model(path, &json)?);
        let converts = network.converts();
        let first: Vec<bool> =
            network.inputs.iter().map(|input| converts && input.shape.len() >= 3 && !input.tokens).collect();
        let outputs = Arc::new(OnceLock::new());
        let model = model(Arc::clone(&network), first.clone(), Arc::clone(&outputs));
        // Whatever is wrong with the shapes.
        model.build(1, Mode::Evaluate)?;
        let output = *outputs.get().expect("bug: a model that was built knows its output");
        let compiled = match compiled {
            Some(text) => Some(read(text)?),
            None => json.get("compile_config").cloned(),
        };
        let (mut loss, mut optimizer) = (None, None);
        if let Some(compiled) = compiled.filter(Json::is_object) {
            loss = compile::loss(path, &compiled, &network.outputs[0].0, output)?;
            optimizer = compile::optimizer(path, &compiled)?;
        }
        let order = |first| if first { ChannelOrder::Last } else { ChannelOrder::First };
        Ok(Architecture {
            network,
            model,
            path: path.to_owned(),
            json: text.into(),
            metadata: None,
            loss,
            optimizer,
            input_order: order(first.contains(&true)),
            output_order: order(output.first),
        })
    }

    /// The model here.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The loss of its first output that it was compiled with, if there is such a loss here.
    pub fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
    }

    /// The optimizer that it was compiled with, if there is such an optimizer here.
    pub fn optimizer(&self) -> Option<&Optimizer> {
        self.optimizer.as_ref()
    }

    /// What Keras calls its inputs. The first is the input named `input` of the model here.
    pub fn input_names(&self) -> impl Iterator<Item = &str> {
        self.network.inputs.iter().map(|input| &*input.name)
    }

    /// What Keras calls its outputs. The first is what the last layer of the model here makes.
    pub fn output_names(&self) -> impl Iterator<Item = &str> {
        self.network.outputs.iter().map(|(name, _)| &**name)
    }

    /// Whether Keras takes images with their channels last. The model here takes them with the channels first.
    pub fn input_order(&self) -> ChannelOrder {
        self.input_order
    }

    /// Whether Keras makes images with their channels last. The model here makes them with the channels first.
    pub fn output_order(&self) -> ChannelOrder {
        self.output_order
    }

    /// Whether it takes pixels from 0 to 255, which it makes smaller itself.
    pub fn pixels(&self) -> Pixels {
        if self.network.scales_down(0) { Pixels::Bytes } else { Pixels::Unknown }
    }

    /// What the names of parameters begin with that Keras does not train, as [`Config::freeze`](crate::train::Config::freeze) takes it.
    pub fn frozen(&self) -> Vec<String> {
        let frozen = self.layers().into_iter().filter(|layer| !layer.trainable);
        let mut prefixes: Vec<String> = frozen.map(|layer| layer.path.join(".") + ".").collect();
        if !prefixes.is_empty() {
            // Layers of statistics alone have nothing to train.
            let parameters = self.model.build(1, Mode::Evaluate).map(|built| built.parameters).unwrap_or_default();
            prefixes.retain(|prefix| parameters.iter().any(|parameter| parameter.name.starts_with(prefix)));
        }
        prefixes
    }

    /// All layers that have weights, in Keras's order.
    pub fn layers(&self) -> Vec<KerasLayer> {
        let mut layers = Vec::new();
        self.network.visit(&mut Vec::new(), &mut |path, node, layer| {
            let weights = layer.slots().len();
            if weights > 0 {
                let path = path.iter().map(|&name| name.to_owned()).collect();
                layers.push(KerasLayer { path, class: node.class.clone(), trainable: node.trainable, weights });
            }
        });
        layers
    }

    /// The weights by the names of the model here, from what `arrays` gives for each layer: its arrays in the order of Keras's
    /// `layer.weights`.
    ///
    /// # Errors
    /// Those of `arrays`, or where arrays do not fit the layer.
    pub fn weights_from(
        &self,
        mut arrays: impl FnMut(&[&str]) -> Result<Vec<Weight>, ImportError>,
    ) -> Result<Weights, ImportError> {
        let mut weights = Weights::new();
        let mut failed = None;
        self.network.visit(&mut Vec::new(), &mut |path, node, layer| {
            if failed.is_some() {
                return;
            }
            let name = path.join(".");
            for (suffix, constant) in layer.constants() {
                weights.insert(format!("{name}.{suffix}"), constant);
            }
            let slots = layer.slots();
            if slots.is_empty() {
                return;
            }
            let wrong = |reason: String| ImportError::Weights {
                reason: format!("layer `{}` ({}) {reason}", name.escape_debug(), node.class.escape_debug()),
            };
            let given = match arrays(path) {
                Ok(given) => given,
                Err(error) => return failed = Some(error),
            };
            if given.len() != slots.len() {
                failed = Some(wrong(format!("has {} arrays instead of {}", given.len(), slots.len())));
                return;
            }
            for (number, (slot, array)) in slots.iter().zip(given).enumerate() {
                let shape = array.shape().clone();
                match slot.form.ours(array) {
                    None => failed = Some(wrong(format!("cannot take {shape} as its array {number}"))),
                    Some(ours) => {
                        for (suffix, weight) in ours {
                            weights.insert(format!("{name}.{suffix}"), weight);
                        }
                    }
                }
            }
        });
        match failed {
            Some(error) => Err(error),
            None => {
                weights.check(&self.model)?;
                Ok(weights)
            }
        }
    }

    /// Keras's arrays of these weights: for each layer its path of names, and its arrays in the order of `layer.weights`.
    ///
    /// # Errors
    /// Where they are not those of this model.
    pub fn arrays_of(&self, weights: &Weights) -> Result<Vec<LayerArrays>, ImportError> {
        weights.check(&self.model)?;
        let mut all = Vec::new();
        let mut failed = None;
        self.network.visit(&mut Vec::new(), &mut |path, _, layer| {
            let name = path.join(".");
            let arrays =
                layer.slots().iter().map(|slot| slot.form.keras(&name, weights)).collect::<Result<Vec<_>, _>>();
            match arrays {
                Ok(arrays) if arrays.is_empty() => {}
                Ok(arrays) => all.push((path.iter().map(|&name| name.to_owned()).collect(), arrays)),
                Err(missing) => failed = Some(missing),
            }
        });
        match failed {
            Some(missing) => {
                let reason = format!(
                    "`{}` is missing, or has not the shape that Keras's array follows from",
                    missing.escape_debug()
                );
                Err(ImportError::Weights { reason })
            }
            None => Ok(all),
        }
    }

    /// The same by path.
    pub(super) fn keras_arrays(&self, weights: &Weights) -> Result<Arrays, ImportError> {
        Ok(self.arrays_of(weights)?.into_iter().collect())
    }

    /// The weights of arrays by path.
    pub(super) fn weights_of(&self, mut arrays: Arrays) -> Result<Weights, ImportError> {
        self.weights_from(|path| {
            let path: Vec<String> = path.iter().map(|&name| name.to_owned()).collect();
            Ok(arrays.remove(&path).unwrap_or_default())
        })
    }

    /// The model with these weights, of [`Architecture::weights_from`] or none.
    pub fn into_model(self, weights: Weights) -> ImportedModel {
        let (pixels, frozen) = (self.pixels(), self.frozen());
        ImportedModel {
            model: self.model,
            weights,
            loss: self.loss,
            optimizer: self.optimizer,
            input_order: self.input_order,
            output_order: self.output_order,
            pixels,
            frozen,
        }
    }
}

/// The network as a function of its first input. What its outputs are like is kept when it is first built.
fn model(network: Arc<Network>, first: Vec<bool>, output: Arc<OnceLock<Output>>) -> Model {
    let (name, input) = (network.name.clone(), network.inputs[0].input(first[0]));
    Model::new(name, input, move |x| {
        let inputs: Vec<_> = network
            .inputs
            .iter()
            .zip(&first)
            .enumerate()
            .map(|(i, (input, &first))| {
                let tensor = if i == 0 { x } else { x.input(&input.name, input.input(first)) };
                Value { tensor, first, tokens: input.tokens }
            })
            .collect();
        let outputs: Vec<_> = network.apply(&inputs, false).into_iter().map(Value::numbers).collect();
        // Images are all in one order.
        let is_first = outputs.iter().any(|output| output.first && output.rank() >= 3);
        let laid: Vec<_> = outputs
            .iter()
            .map(|output| if is_first && output.rank() >= 3 { output.channels_first() } else { output.keras() })
            .collect();
        let rank = outputs[0].rank();
        let _ = output.set(Output { rank, first: is_first && rank >= 3 });
        for (i, (&tensor, (name, _))) in laid.iter().zip(&network.outputs).enumerate().skip(1) {
            let is_taken = network.outputs[..i].iter().any(|(other, _)| other == name);
            let name = if is_taken { format!("{name}_{i}") } else { name.clone() };
            let _ = tensor.output(&name);
        }
        laid[0]
    })
}
