//! Models.

use std::sync::Mutex;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tightfit::graph::Role;
use tightfit::interop::keras::Architecture;
use tightfit::interop::{ChannelOrder, ImportedModel, Weights};
use tightfit::models;
use tightfit::nn::{Built, Input, Layer, Mode, Model, RUN, Sequential, Statistics};
use tightfit::tensor::{DType, TensorDesc};
use tightfit::train::{self, Loss, Optimizer};

use crate::errors::OrRaise as _;
use crate::settings;

/// A model: what is trained, without its weights.
#[pyclass(frozen, module = "tightfit._tightfit")]
pub(crate) struct Network {
    pub(crate) model: Model,
    /// Those of the file that it is from, until they are taken.
    weights: Mutex<Option<Weights>>,
    /// What it is in Keras, where it is from there.
    pub(crate) architecture: Option<Architecture>,
    loss: Option<Loss>,
    optimizer: Option<Optimizer>,
    orders: (bool, bool),
}

/// The name, the type and the shape of one sample's.
type Described = (String, &'static str, Vec<usize>);

impl Network {
    fn new(model: Model) -> Self {
        Network {
            model,
            weights: Mutex::new(None),
            architecture: None,
            loss: None,
            optimizer: None,
            orders: (false, false),
        }
    }

    /// A model of another framework.
    pub(crate) fn imported(imported: ImportedModel, architecture: Option<Architecture>) -> Self {
        let ImportedModel { model, weights, loss, optimizer, input_order, output_order, .. } = imported;
        let orders = (input_order == ChannelOrder::Last, output_order == ChannelOrder::Last);
        let weights = Mutex::new(Some(weights).filter(|weights| !weights.is_empty()));
        Network { model, weights, architecture, loss, optimizer, orders }
    }

    fn built(&self) -> PyResult<Built> {
        self.model.build(1, Mode::Evaluate).or_raise()
    }
}

fn described(name: &str, desc: &TensorDesc) -> Described {
    let dtype = match desc.dtype {
        DType::U32 => "u32",
        DType::U8 => "u8",
        _ => "f32",
    };
    (name.to_owned(), dtype, desc.shape.get(1..).unwrap_or_default().to_vec())
}

#[pymethods]
impl Network {
    /// A model that is built in.
    #[staticmethod]
    #[pyo3(signature = (name, input_shape=None, outputs=None))]
    fn builtin(name: &str, input_shape: Option<Vec<usize>>, outputs: Option<usize>) -> PyResult<Self> {
        if outputs == Some(0) {
            return Err(PyValueError::new_err("outputs must be 1 or more"));
        }
        let model = outputs.map_or_else(|| models::builtin(name), |outputs| models::builtin_for(name, outputs));
        let Some(model) = model else {
            let names = models::NAMES.join(", ");
            return Err(PyValueError::new_err(format!("there is no model `{name}`: choose one of {names}")));
        };
        let model = input_shape.into_iter().fold(model, Model::with_input);
        let network = Network::new(model);
        // What does not fit shows now, not at the first step.
        network.built()?;
        Ok(network)
    }

    /// Layers one after the other, each as JSON.
    #[staticmethod]
    fn sequential(name: String, input_shape: Vec<usize>, tokens: bool, layers: Vec<String>) -> PyResult<Self> {
        let input = if tokens { Input::tokens(input_shape) } else { Input::values(input_shape) };
        let mut model = Sequential::new(name, input);
        for (number, text) in layers.iter().enumerate() {
            model = model.push(settings::read::<Layer>(&format!("layer {}", number + 1), text)?);
        }
        let network = Network::new(model.into());
        network.built()?;
        Ok(network)
    }

    #[getter]
    fn name(&self) -> &str {
        self.model.name()
    }

    /// What the model takes: the samples first, then what has names of its own.
    fn inputs(&self) -> PyResult<Vec<Described>> {
        let built = self.built()?;
        let inputs = built.graph.values().iter().filter(|value| value.role == Role::Input && value.name != RUN);
        Ok(inputs.map(|value| described(&value.name, &value.desc)).collect())
    }

    /// What it makes: that of the last layer, `output`, first.
    fn outputs(&self) -> PyResult<Vec<Described>> {
        let built = self.built()?;
        let desc = |value| &built.graph.value(value).desc;
        let others = built.outputs.iter().map(|(name, value)| described(name, desc(*value)));
        Ok(std::iter::once(described("output", desc(built.output))).chain(others).collect())
    }

    /// `softmax` or `sigmoid` where that is what an output comes from, else nothing: whether a loss is of probabilities.
    fn ends_in(&self, output: &str) -> PyResult<Option<&'static str>> {
        let built = self.built()?;
        let found = built.outputs.iter().find(|(name, _)| name == output).map(|(_, value)| *value);
        let graph = &built.graph;
        let producer = graph.value(graph.storage_root(found.unwrap_or(built.output))).producer;
        let probabilities = producer.map(|node| graph.node(node).op.name());
        Ok(match probabilities {
            Some("softmax") => Some("softmax"),
            Some("sigmoid" | "hard_sigmoid") => Some("sigmoid"),
            _ => None,
        })
    }

    /// Whether samples of a batch matter to one another in training, as with batch norm.
    fn mixes_samples(&self, statistics: Option<&str>) -> PyResult<bool> {
        let statistics = match statistics {
            Some("frozen") => Statistics::Frozen,
            Some("ghost") => Statistics::Ghost,
            _ => Statistics::Exact,
        };
        let built = self.model.build(2, Mode::Train(statistics)).or_raise()?;
        Ok(!built.states.is_empty() || built.graph.nodes().iter().any(|node| !node.op.flags().batch_separable))
    }

    /// Trained numbers.
    fn count_params(&self) -> PyResult<usize> {
        self.model.parameter_count().or_raise()
    }

    /// Names and shapes of weights, in the order of the layers.
    fn weight_shapes(&self) -> PyResult<Vec<(String, Vec<usize>)>> {
        let weights = self.model.state_dict().or_raise()?;
        Ok(weights.into_iter().map(|(name, shape)| (name, shape.to_vec())).collect())
    }

    /// Whether samples, and predictions, have their channels last in the model's own framework.
    fn orders(&self) -> (bool, bool) {
        self.orders
    }

    /// The loss and the optimizer that the model was compiled with, as JSON.
    fn compiled(&self) -> (Option<String>, Option<String>) {
        let loss = self.loss.as_ref().and_then(|loss| serde_json::to_string(loss).ok());
        (loss, self.optimizer.and_then(|optimizer| serde_json::to_string(&optimizer).ok()))
    }

    /// What the names of parameters begin with that Keras does not train.
    fn frozen(&self) -> Vec<String> {
        self.architecture.as_ref().map(Architecture::frozen).unwrap_or_default()
    }

    /// What Keras calls the first input and the first output, of a model of Keras.
    fn keras_names(&self) -> (Option<&str>, Option<&str>) {
        let Some(architecture) = &self.architecture else { return (None, None) };
        (architecture.input_names().next(), architecture.output_names().next())
    }

    /// A table of the layers; with settings, of what training takes too.
    #[pyo3(signature = (settings=None))]
    fn summary(&self, settings: Option<&str>) -> PyResult<String> {
        let Some(settings) = settings else { return self.model.summary().or_raise() };
        Ok(train::summary(&self.model, &settings::config(settings)?).or_raise()?.to_string())
    }

    /// What is hardly meant, in sentences.
    fn warnings(&self, settings: &str) -> PyResult<Vec<String>> {
        train::warnings(&self.model, &settings::config(settings)?).or_raise()
    }

    /// Whether a loss, as JSON, takes labels in place of numbers.
    #[staticmethod]
    fn takes_labels(loss: &str) -> PyResult<bool> {
        fn takes(loss: &Loss) -> bool {
            match loss {
                Loss::CrossEntropy { .. } | Loss::Dice { sigmoid: false, .. } => true,
                Loss::Sum { terms } => terms.first().is_some_and(|(_, loss)| takes(loss)),
                _ => false,
            }
        }
        Ok(takes(&settings::read::<Loss>("loss", loss)?))
    }

    /// The weights of the file that the model is from, once.
    fn take_weights<'py>(&self, py: Python<'py>) -> PyResult<Option<crate::arrays::Named<'py>>> {
        let mut weights = self.weights.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        weights.take().map(|weights| crate::imported::named(py, &weights)).transpose()
    }
}
