//! What can be trained: an input and the layers that follow from it.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Sequential;
use super::init::Init;
use super::normalization::Normalization;
use super::scope::Building;
use super::tensor::{Net, Tensor};
use crate::error::GraphError;
use crate::graph::{BufferUpdate, FusionStage, Graph};
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// Samples of a batch and elements of a tensor at most: kernels count in 32 bits. Where the host does too, bytes are counted that
/// must not pass what it can address.
pub(super) const MAX_ELEMENTS: usize = if usize::BITS > 32 { u32::MAX as usize } else { usize::MAX / 16 };

/// One sample of what a model takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its shape, without the batch axis.
    pub shape: Shape,
    /// Numbers or indices.
    pub dtype: DType,
}

impl Input {
    /// Numbers.
    pub fn values(shape: impl Into<Shape>) -> Self {
        Input { shape: shape.into(), dtype: DType::F32 }
    }

    /// Indices, such as words of a vocabulary.
    pub fn tokens(shape: impl Into<Shape>) -> Self {
        Input { shape: shape.into(), dtype: DType::U32 }
    }

    /// As a tensor with a batch axis.
    pub(crate) fn batched(&self, batch: usize) -> TensorDesc {
        let mut shape = vec![batch];
        shape.extend(self.shape.iter());
        TensorDesc { shape: shape.into(), dtype: self.dtype }
    }
}

impl<S: Into<Shape>> From<S> for Input {
    fn from(shape: S) -> Self {
        Input::values(shape)
    }
}

/// Which statistics batch norm uses in training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistics {
    /// Those of the whole batch: it cannot be cut into micro-batches.
    #[default]
    Exact,
    /// Those of each micro-batch, as in ghost batch norm (<https://arxiv.org/abs/1705.08741>). Running statistics follow
    /// the mean over the micro-batches, weighted by their samples.
    Ghost,
    /// The running statistics, which stay as they are, as if evaluating: for fine-tuning.
    Frozen,
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Statistics::Exact => "exact",
            Statistics::Ghost => "ghost",
            Statistics::Frozen => "frozen",
        })
    }
}

/// What a graph of a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Dropout drops, and batch norm uses these statistics.
    Train(Statistics),
    /// Nothing is random, and batch norm uses its running statistics.
    Evaluate,
}

/// A model: what it takes, and the layers as a function of that.
///
/// Made from layers one after the other by [`Sequential`], or from a function in which layers are applied to tensors.
/// A residual block, as a part of such a function:
///
/// ```
/// use tightfit::nn::{BatchNorm, Conv2d, Model, Tensor};
///
/// fn block(x: Tensor<'_>, channels: usize) -> Tensor<'_> {
///     let conv = || Conv2d::new(channels, 3).padding(1).bias(false);
///     let y = x.layer("conv1", conv()).layer("bn1", BatchNorm::new()).relu();
///     let y = y.layer("conv2", conv()).layer("bn2", BatchNorm::new());
///     (y + x).relu()
/// }
///
/// let model = Model::new("two-blocks", [16, 8, 8], |x| {
///     let x = x.within("0", |x| block(x, 16));
///     x.within("1", |x| block(x, 16))
/// });
/// assert_eq!(model.output_shape()?[..], [16, 8, 8]);
/// # Ok::<(), tightfit::error::GraphError>(())
/// ```
#[derive(Clone)]
pub struct Model {
    name: String,
    input: Input,
    normalization: Option<Normalization>,
    drops: bool,
    forward: Forward,
}

type Function = dyn for<'a> Fn(Tensor<'a>) -> Tensor<'a> + Send + Sync;

#[derive(Clone)]
enum Forward {
    Layers(Arc<Sequential>),
    Function(Arc<Function>),
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("name", &self.name).field("input", &self.input).finish_non_exhaustive()
    }
}

/// A model as a graph for one size of batch.
#[derive(Clone, Debug)]
pub struct Built {
    /// The forward graph.
    pub graph: Graph,
    /// The samples, `[batch, sample…]`: the graph's input named `input`.
    pub input: ValueId,
    /// What the last layer makes.
    pub output: ValueId,
    /// What [`Tensor::output`] names, in the order in which it does.
    pub outputs: Vec<(String, ValueId)>,
    /// All parameters in the order of the layers.
    pub parameters: Vec<Parameter>,
    /// What else files of weights hold, such as running statistics, in the order of the layers.
    pub buffers: Vec<Parameter>,
    /// Of each batch anew: what is carried from one batch to the next. Starts as zeros, and no file holds it.
    pub states: Vec<Parameter>,
    /// Names of numbers that PyTorch counts steps in (`bn1.num_batches_tracked`). They are no part of the graph: all are
    /// the number of steps.
    pub counters: Vec<String>,
    /// What buffers become at the end of a step.
    pub buffer_updates: Vec<BufferUpdate>,
}

/// A tensor that lasts: trained, or a buffer.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// `conv1.weight`
    pub name: String,
    /// Where it is in the graph.
    pub value: ValueId,
    /// How it starts.
    pub init: Init,
}

impl Model {
    /// A model whose layers are those that `forward` applies. It is called whenever a graph is made, for any size of
    /// batch, and must do the same each time. Where the input does not fit, it is called with others that might.
    pub fn new(
        name: impl Into<String>,
        input: impl Into<Input>,
        forward: impl for<'a> Fn(Tensor<'a>) -> Tensor<'a> + Send + Sync + 'static,
    ) -> Self {
        let forward = Forward::Function(Arc::new(forward));
        Model { name: name.into(), input: input.into(), normalization: None, drops: true, forward }
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a sample is.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// Shape of a sample.
    pub fn input_shape(&self) -> &Shape {
        &self.input.shape
    }

    /// The same model for samples of another shape, for example larger images.
    #[must_use]
    pub fn with_input(mut self, shape: impl Into<Shape>) -> Self {
        self.input.shape = shape.into();
        self
    }

    /// The same model of bytes, such as pixels, which it makes numbers of on the device: they travel as a quarter of the bytes.
    /// Parameters and their names stay.
    ///
    /// ```
    /// use tightfit::models;
    /// use tightfit::nn::Normalization;
    ///
    /// // As torchvision's weights of ImageNet want it.
    /// let model = models::resnet50(10, models::Stem::ImageNet).normalized(Normalization::imagenet());
    /// # let _ = model;
    /// ```
    #[must_use]
    pub fn normalized(mut self, normalization: Normalization) -> Self {
        self.normalization = Some(normalization);
        self
    }

    /// How bytes become numbers; `None` where the model takes numbers.
    pub fn normalization(&self) -> Option<&Normalization> {
        self.normalization.as_ref()
    }

    /// The same model of numbers in place of tokens.
    pub(super) fn of_values(&self) -> Self {
        Model { input: Input::values(self.input.shape.clone()), ..self.clone() }
    }

    /// The same model without dropout of any kind, in training too.
    #[must_use]
    pub fn without_dropout(mut self) -> Self {
        self.drops = false;
        self
    }

    /// The same model on sequences of another length, if it takes sequences `[time, features]` or `[time]` of tokens and
    /// has the same parameters whatever their length.
    pub fn with_length(&self, length: usize) -> Option<Model> {
        let shape = match (&self.input.shape[..], self.input.dtype) {
            (&[_, features], DType::F32) => Shape::from([length, features]),
            (&[_], DType::U32) => Shape::from([length]),
            _ => return None,
        };
        let model = self.clone().with_input(shape);
        let parameters = |model: &Model| -> Option<Vec<TensorDesc>> {
            let built = model.build(1, Mode::Evaluate).ok()?;
            Some(built.parameters.iter().map(|parameter| built.graph.value(parameter.value).desc.clone()).collect())
        };
        (parameters(self)? == parameters(&model)?).then_some(model)
    }

    /// The model as a graph for `batch` samples.
    ///
    /// # Errors
    /// Where a layer cannot take what comes before it, or a setting makes no sense; the message names the layer.
    pub fn build(&self, batch: usize, mode: Mode) -> Result<Built, GraphError> {
        self.build_part(batch, batch, mode)
    }

    /// The model as a graph for `samples` of the `batch` samples of a step.
    ///
    /// # Errors
    /// As [`Model::build`].
    pub fn build_part(&self, samples: usize, batch: usize, mode: Mode) -> Result<Built, GraphError> {
        Ok(self.build_layers(samples, batch, mode)?.0)
    }

    /// Shape of the output for one sample.
    ///
    /// # Errors
    /// As [`Model::build`].
    pub fn output_shape(&self) -> Result<Shape, GraphError> {
        let built = self.build(1, Mode::Evaluate)?;
        Ok(sample_shape(&built.graph, built.output))
    }

    /// Number of trained values.
    ///
    /// # Errors
    /// As [`Model::build`].
    pub fn parameter_count(&self) -> Result<usize, GraphError> {
        let built = self.build(1, Mode::Evaluate)?;
        Ok(built.parameters.iter().map(|parameter| built.graph.value(parameter.value).desc.numel()).sum())
    }

    /// Names and shapes of all that a file of the model's weights holds, in the order of the layers: parameters and
    /// buffers as PyTorch's `state_dict` names them.
    ///
    /// # Errors
    /// As [`Model::build`].
    pub fn state_dict(&self) -> Result<Vec<(String, Shape)>, GraphError> {
        let built = self.build(1, Mode::Evaluate)?;
        let tensors = built.parameters.iter().chain(&built.buffers);
        let mut entries: Vec<_> =
            tensors.map(|tensor| (tensor.name.clone(), built.graph.value(tensor.value).desc.shape.clone())).collect();
        entries.extend(built.counters.into_iter().map(|name| (name, Shape::from([]))));
        Ok(entries)
    }

    /// A table of the layers: name, output shape, parameters. What a training of it takes is in
    /// [`train::summary`](crate::train::summary).
    ///
    /// # Errors
    /// As [`Model::build`].
    pub fn summary(&self) -> Result<String, GraphError> {
        let mut rows = vec![("input".to_owned(), self.input.shape.to_string(), String::new())];
        let (built, layers) = self.build_layers(1, 1, Mode::Evaluate)?;
        let mut total = 0;
        for layer in layers {
            total += layer.parameters;
            let numel = if layer.parameters == 0 { String::new() } else { thousands(layer.parameters) };
            rows.push((layer.name, sample_shape(&built.graph, layer.output).to_string(), numel));
        }
        rows.push(("total".to_owned(), String::new(), thousands(total)));

        let header = ("layer".to_owned(), "output".to_owned(), "parameters".to_owned());
        let all = || std::iter::once(&header).chain(&rows);
        let widths = [
            all().map(|row| row.0.len()).max().unwrap_or(0),
            all().map(|row| row.1.len()).max().unwrap_or(0),
            all().map(|row| row.2.len()).max().unwrap_or(0),
        ];
        let mut text = format!("{}\n", self.name);
        for (name, shape, numel) in all() {
            let line = format!("  {name:<0$}  {shape:<1$}  {numel:>2$}", widths[0], widths[1], widths[2]);
            let _ = writeln!(text, "{}", line.trim_end());
        }
        Ok(text)
    }

    /// Builds; with the layers in the order in which they were applied.
    pub(crate) fn build_layers(
        &self,
        samples: usize,
        batch: usize,
        mode: Mode,
    ) -> Result<(Built, Vec<LayerInfo>), GraphError> {
        self.assemble(samples, batch, mode).map_err(|error| self.with_advice(error, samples, batch, mode))
    }

    /// The samples as the first layer takes them.
    fn add_input(&self, graph: &mut Graph, samples: usize) -> Result<ValueId, GraphError> {
        let desc = self.input.batched(samples);
        let Some(normalization) = &self.normalization else { return Ok(graph.input("input", desc)) };
        if desc.dtype != DType::F32 {
            let reason = "the model takes tokens, which cannot be normalized".to_owned();
            return Err(GraphError::Layer { layer: "input".to_owned(), reason });
        }
        let bytes = graph.input("input", TensorDesc { dtype: DType::U8, ..desc });
        graph.set_scope("input");
        graph.apply(normalization.op(), &[bytes])
    }

    /// [`Model::build_layers`]; an error says nothing of other inputs.
    pub(super) fn assemble(
        &self,
        samples: usize,
        batch: usize,
        mode: Mode,
    ) -> Result<(Built, Vec<LayerInfo>), GraphError> {
        let error = |reason: String| Err(GraphError::Layer { layer: "input".to_owned(), reason });
        if samples == 0 {
            return error("the batch must have at least one sample".to_owned());
        }
        let shape = &self.input.shape;
        if shape.is_empty() || shape.contains(&0) {
            return error(format!("a sample of shape {shape} has no elements: every extent must be at least 1"));
        }
        let numel = shape.iter().try_fold(samples, |n, &dim| n.checked_mul(dim));
        if numel.is_none_or(|numel| numel > MAX_ELEMENTS) {
            let shape = self.input.batched(samples).shape;
            let (layer, what) = ("input".to_owned(), "the batch".to_owned());
            return Err(GraphError::TooLarge { layer, what, shape, limit: MAX_ELEMENTS });
        }
        let mut building = Building::new(batch, mode, self.drops);
        let input = self.add_input(&mut building.graph, samples)?;
        let (mut building, output) = match &self.forward {
            Forward::Layers(sequential) => {
                let mut output = input;
                for (name, layer) in sequential.layers() {
                    output = building.layer(&name, layer, output)?;
                }
                (building, output)
            }
            Forward::Function(forward) => {
                let net = Net::new(building);
                let output = forward(net.tensor(input)).value();
                net.finish(output)?
            }
        };
        building.skips.finish()?;
        let mut keep: Vec<_> = building.buffer_updates.iter().map(|update| update.value).collect();
        keep.push(output);
        keep.extend(building.outputs.iter().map(|(_, value)| *value));
        let now = building.graph.fuse(FusionStage::Forward, &keep);
        let now = |value: ValueId| now[value.index()];
        let Building { graph, outputs, parameters, buffers, states, counters, buffer_updates, layers, .. } = building;
        let moved = |parameters: Vec<Parameter>| -> Vec<Parameter> {
            parameters.into_iter().map(|parameter| Parameter { value: now(parameter.value), ..parameter }).collect()
        };
        let buffer_updates = buffer_updates.into_iter();
        let buffer_updates = buffer_updates.map(|update| BufferUpdate {
            buffer: now(update.buffer),
            value: now(update.value),
            rows: update.rows.map(now),
            ..update
        });
        let layers = layers.into_iter().map(|layer| LayerInfo { output: now(layer.output), ..layer });
        let built = Built {
            graph,
            input: now(input),
            output: now(output),
            outputs: outputs.into_iter().map(|(name, value)| (name, now(value))).collect(),
            parameters: moved(parameters),
            buffers: moved(buffers),
            states: moved(states),
            counters,
            buffer_updates: buffer_updates.collect(),
        };
        Ok((built, layers.collect()))
    }
}

/// A layer as it was applied.
#[derive(Clone, Debug)]
pub(crate) struct LayerInfo {
    pub(crate) name: String,
    pub(crate) output: ValueId,
    /// Trained values.
    pub(crate) parameters: usize,
}

impl From<Sequential> for Model {
    fn from(layers: Sequential) -> Self {
        let (name, input) = (layers.name().to_owned(), layers.input().clone());
        Model { name, input, normalization: None, drops: true, forward: Forward::Layers(Arc::new(layers)) }
    }
}

impl From<&Sequential> for Model {
    fn from(layers: &Sequential) -> Self {
        layers.clone().into()
    }
}

impl From<&Model> for Model {
    fn from(model: &Model) -> Self {
        model.clone()
    }
}

pub(crate) fn sample_shape(graph: &Graph, value: ValueId) -> Shape {
    Shape::from(&graph.value(value).desc.shape[1..])
}

/// `1234567` as `1,234,567`.
pub(crate) fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
