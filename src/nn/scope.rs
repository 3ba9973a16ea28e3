//! A model under construction, and the layer that is being added to it.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use super::init::Init;
use super::layers::{Module, Pair, Skips};
use super::model::{LayerInfo, MAX_ELEMENTS, Mode, Parameter, Statistics};
use super::tensor::{Net, Tensor};
use crate::error::GraphError;
use crate::graph::{BufferUpdate, Graph, Role, Value};
use crate::ops::Op;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// Largest number that a layer's setting may have. Keeps products of a few of them inside 64 bits.
const MAX_SETTING: usize = 1 << 24;

/// Name of the input that tells one run of a graph from another: `u32 [4]` of the seed's low and high word, the number of
/// the step, and the place in the step's batch of the first sample.
pub const RUN: &str = "run";

/// A model under construction.
#[derive(Debug)]
pub(super) struct Building {
    pub(super) graph: Graph,
    pub(super) parameters: Vec<Parameter>,
    pub(super) buffers: Vec<Parameter>,
    pub(super) states: Vec<Parameter>,
    pub(super) outputs: Vec<(String, ValueId)>,
    pub(super) counters: Vec<String>,
    pub(super) buffer_updates: Vec<BufferUpdate>,
    pub(super) skips: Skips,
    pub(super) layers: Vec<LayerInfo>,
    names: BTreeSet<String>,
    /// How many streams of random numbers a layer's name has.
    streams: BTreeMap<String, u32>,
    mode: Mode,
    /// Whether dropout drops in training.
    drops: bool,
    /// Whether the layer that is being added takes the parameters that are there under its name.
    pub(super) shares: bool,
    /// Samples of a step.
    batch: usize,
    /// Names of what the next layer is within.
    path: Vec<String>,
}

impl Building {
    pub(super) fn new(batch: usize, mode: Mode, drops: bool) -> Self {
        Building {
            graph: Graph::new(),
            parameters: Vec::new(),
            buffers: Vec::new(),
            states: Vec::new(),
            outputs: Vec::new(),
            counters: Vec::new(),
            buffer_updates: Vec::new(),
            skips: Skips::default(),
            layers: Vec::new(),
            names: BTreeSet::new(),
            streams: BTreeMap::new(),
            mode,
            drops,
            shares: false,
            batch,
            path: Vec::new(),
        }
    }

    pub(super) fn enter(&mut self, name: &str) {
        self.path.push(name.to_owned());
    }

    pub(super) fn leave(&mut self) {
        self.path.pop();
    }

    /// Adds a layer.
    pub(super) fn layer(&mut self, name: &str, layer: &dyn Module, input: ValueId) -> Result<ValueId, GraphError> {
        self.scope(name, |scope| layer.build(scope, input))
    }

    /// Adds what `function` adds, as a layer of this name.
    pub(super) fn scope(
        &mut self,
        name: &str,
        function: impl FnOnce(&mut Scope<'_>) -> Result<ValueId, GraphError>,
    ) -> Result<ValueId, GraphError> {
        let first = self.parameters.len();
        self.enter(name);
        let layer = self.path.join(".");
        self.graph.set_scope(layer.clone());
        let output = function(&mut Scope { building: self, layer: layer.clone() });
        self.leave();
        self.graph.set_scope(self.path.join("."));
        let output = output?;
        let new = &self.parameters[first..];
        let parameters = new.iter().map(|parameter| self.graph.value(parameter.value).desc.numel()).sum();
        self.layers.push(LayerInfo { name: layer, output, parameters });
        Ok(output)
    }

    /// Names an output.
    pub(super) fn output(&mut self, name: &str, value: ValueId) -> Result<ValueId, GraphError> {
        if self.outputs.iter().any(|(other, _)| other == name) || name.is_empty() {
            let reason = format!("the name of an output, `{name}`, must not be empty or taken: use another");
            return Err(GraphError::Layer { layer: self.path.join("."), reason });
        }
        self.outputs.push((name.to_owned(), value));
        Ok(value)
    }

    /// The input of this name, which is made where there is none.
    pub(super) fn input(&mut self, name: &str, desc: &TensorDesc) -> Result<ValueId, GraphError> {
        match self.graph.find(name) {
            None => Ok(self.graph.input(name, desc.clone())),
            Some(value) if self.graph.value(value).role == Role::Input && self.graph.value(value).desc == *desc => {
                Ok(value)
            }
            Some(value) => Err(GraphError::Layer {
                layer: self.path.join("."),
                reason: format!(
                    "the input `{name}` cannot be {desc}, because there is a `{name}` that is {}: use another name",
                    self.graph.value(value).desc
                ),
            }),
        }
    }
}

/// The layer under construction: its name, and where its parameters and nodes go.
#[derive(Debug)]
pub struct Scope<'a> {
    building: &'a mut Building,
    layer: String,
}

impl Scope<'_> {
    /// Full name of the layer.
    pub fn name(&self) -> &str {
        &self.layer
    }

    /// Whether the graph is one for training.
    pub fn is_training(&self) -> bool {
        self.building.mode != Mode::Evaluate
    }

    /// Whether dropout drops: in training, unless the model is one without.
    pub fn drops(&self) -> bool {
        self.is_training() && self.building.drops
    }

    /// Which statistics batch norm uses in training; `None` where the graph is one for evaluation.
    pub fn statistics(&self) -> Option<Statistics> {
        match self.building.mode {
            Mode::Train(statistics) => Some(statistics),
            Mode::Evaluate => None,
        }
    }

    /// Creates the parameter `<layer>.<name>`.
    ///
    /// # Errors
    /// Where it is too large or the name is taken.
    pub fn parameter(&mut self, name: &str, shape: impl Into<Shape>, init: Init) -> Result<ValueId, GraphError> {
        let shape = shape.into();
        if self.building.shares {
            return self.parameter_again(name, &shape);
        }
        let parameter = self.lasting(name, shape, init, Role::Parameter)?;
        let value = parameter.value;
        self.building.parameters.push(parameter);
        Ok(value)
    }

    /// Creates a parameter whose whole name is given, as files of other frameworks have it.
    ///
    /// # Errors
    /// As [`Scope::parameter`].
    #[cfg(feature = "interop")]
    pub(crate) fn parameter_named(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        init: Init,
    ) -> Result<ValueId, GraphError> {
        let parameter = self.lasting_named(name.to_owned(), shape.into(), init, Role::Parameter)?;
        let value = parameter.value;
        self.building.parameters.push(parameter);
        Ok(value)
    }

    /// As [`Scope::parameter_named`], of a buffer.
    ///
    /// # Errors
    /// As [`Scope::buffer`].
    #[cfg(feature = "interop")]
    pub(crate) fn buffer_named(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        init: Init,
    ) -> Result<ValueId, GraphError> {
        let buffer = self.lasting_named(name.to_owned(), shape.into(), init, Role::Buffer)?;
        let value = buffer.value;
        self.building.buffers.push(buffer);
        Ok(value)
    }

    /// Creates the buffer `<layer>.<name>`: kept between steps like a parameter, but not trained. [`Scope::update_buffer`] changes
    /// it.
    ///
    /// # Errors
    /// Where it is too large or the name is taken.
    pub fn buffer(&mut self, name: &str, shape: impl Into<Shape>, init: Init) -> Result<ValueId, GraphError> {
        if self.building.shares {
            return Err(self.error(format!(
                "keeps `{name}`, which would be of two places at once: only layers without statistics and states can be applied again"
            )));
        }
        let buffer = self.lasting(name, shape.into(), init, Role::Buffer)?;
        let value = buffer.value;
        self.building.buffers.push(buffer);
        Ok(value)
    }

    /// Creates the buffer `<layer>.<name>` for what is carried from one batch to the next: it starts as zeros, and no file
    /// holds it.
    ///
    /// # Errors
    /// As [`Scope::buffer`].
    pub fn state(&mut self, name: &str, shape: impl Into<Shape>) -> Result<ValueId, GraphError> {
        if self.building.shares {
            return Err(self.error(format!("keeps `{name}` from batch to batch, so it cannot be applied again")));
        }
        let state = self.lasting(name, shape.into(), Init::ZEROS, Role::Buffer)?;
        let value = state.value;
        self.building.states.push(state);
        Ok(value)
    }

    /// Samples of a whole step, of which the graph may hold a part.
    pub fn step_batch(&self) -> usize {
        self.building.batch
    }

    /// Says that files of weights hold the number of steps under the name `<layer>.<name>`, as PyTorch's do.
    pub fn counter(&mut self, name: &str) {
        self.building.counters.push(format!("{}.{name}", self.layer));
    }

    /// At the end of a training step whose loss is finite, changes a buffer as [`BufferUpdate`] says.
    pub fn update_buffer(&mut self, update: BufferUpdate) {
        self.building.buffer_updates.push(update);
    }

    /// The input that tells runs apart: see [`RUN`].
    ///
    /// # Errors
    /// Where the model has another input of that name.
    pub fn run_input(&mut self) -> Result<ValueId, GraphError> {
        self.building.input(RUN, &TensorDesc { shape: [4].into(), dtype: DType::U32 })
    }

    /// Another input of the model: `name` is what the dataset calls it, `desc` has the batch axis.
    ///
    /// # Errors
    /// Where the model has another input of that name.
    pub fn input(&mut self, name: &str, desc: &TensorDesc) -> Result<ValueId, GraphError> {
        self.building.input(name, desc)
    }

    /// Which stream of random numbers is the layer's own: a number that depends on the layer's name, and where the name
    /// has asked before, on how often.
    pub fn stream(&mut self) -> u32 {
        let asked = self.building.streams.entry(self.layer.clone()).or_insert(0u32);
        *asked += 1;
        let digest = Sha256::digest(match *asked {
            1 => self.layer.clone(),
            n => format!("{}#{n}", self.layer),
        });
        u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])
    }

    /// Adds a layer that is a part of this one, under `<layer>.<name>`.
    ///
    /// # Errors
    /// Those of the layer.
    pub fn layer(&mut self, name: &str, layer: &dyn Module, input: ValueId) -> Result<ValueId, GraphError> {
        let first = self.building.layers.len();
        let output = self.building.layer(name, layer, input);
        // It is a part of this one in lists of layers too.
        self.building.layers.truncate(first);
        self.building.graph.set_scope(self.layer.clone());
        output
    }

    /// Adds an op that has one output.
    ///
    /// # Errors
    /// Where the op refuses its inputs, or makes more elements than kernels can count.
    pub fn apply(&mut self, op: impl Op, inputs: &[ValueId]) -> Result<ValueId, GraphError> {
        Ok(self.apply_all(op, inputs)?[0])
    }

    /// Adds an op; returns its outputs.
    ///
    /// # Errors
    /// As [`Scope::apply`].
    pub fn apply_all(&mut self, op: impl Op, inputs: &[ValueId]) -> Result<Vec<ValueId>, GraphError> {
        let outputs = self.building.graph.apply_all(op, inputs)?;
        for &output in &outputs {
            self.check_elements("the output", &self.building.graph.value(output).desc.shape)?;
        }
        Ok(outputs)
    }

    /// Adds what a formula makes of some values, so that a layer can be written as tensors are computed with.
    ///
    /// # Errors
    /// The first of the formula's.
    pub fn formula<const N: usize>(
        &mut self,
        values: [ValueId; N],
        formula: impl for<'a> FnOnce([Tensor<'a>; N]) -> Tensor<'a>,
    ) -> Result<ValueId, GraphError> {
        let empty = Building::new(self.building.batch, self.building.mode, self.building.drops);
        let net = Net::new(std::mem::replace(self.building, empty));
        let output = formula(values.map(|value| net.tensor(value))).value();
        let (building, output) = net.finish(output)?;
        *self.building = building;
        self.building.graph.set_scope(self.layer.clone());
        Ok(output)
    }

    /// Extents, batch first.
    pub fn shape(&self, value: ValueId) -> Vec<usize> {
        self.building.graph.value(value).desc.shape.to_vec()
    }

    /// Whether the value is an input of the model, which has no gradient.
    pub fn is_input(&self, value: ValueId) -> bool {
        self.building.graph.value(value).role == Role::Input
    }

    /// Whether the value is a buffer, which steps may change.
    #[cfg(feature = "interop")]
    pub(crate) fn is_buffer(&self, value: ValueId) -> bool {
        self.building.graph.value(value).role == Role::Buffer
    }

    /// Shape and element type.
    pub fn desc(&self, value: ValueId) -> &TensorDesc {
        &self.building.graph.value(value).desc
    }

    /// An error of this layer.
    pub fn error(&self, reason: impl Into<String>) -> GraphError {
        GraphError::Layer { layer: self.layer.clone(), reason: reason.into() }
    }

    /// Whether the value is one of the samples or made of them. Others, made of parameters alone, are the same for each part of a batch.
    pub(super) fn depends_on_samples(&self, value: ValueId) -> bool {
        let graph = &self.building.graph;
        let mut seen = BTreeSet::new();
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            let Value { role, name, producer, .. } = graph.value(value);
            if *role == Role::Input && name != RUN {
                return true;
            }
            if let Some(producer) = producer.filter(|_| seen.insert(value)) {
                open.extend(&graph.node(producer).inputs);
            }
        }
        false
    }

    pub(super) fn skips(&mut self) -> &mut Skips {
        &mut self.building.skips
    }

    /// The layer cannot take a sample of this shape.
    pub(super) fn wrong_input(&self, expected: &str, shape: &[usize], advice: &str) -> GraphError {
        let sample = Shape::from(&shape[1..]);
        let advice = if advice.is_empty() { String::new() } else { format!("; {advice}") };
        self.error(format!("expects {expected}, found {sample}{advice}"))
    }

    /// A setting that counts something is at least `least`.
    pub(super) fn check_setting(&self, name: &str, value: usize, least: usize) -> Result<(), GraphError> {
        if value < least {
            Err(self.error(format!("{name} must be at least {least}, found {value}")))
        } else if value > MAX_SETTING {
            Err(self.error(format!("{name} must be at most {MAX_SETTING}, found {value}")))
        } else {
            Ok(())
        }
    }

    pub(super) fn check_pair(&self, name: &str, Pair(h, w): Pair, least: usize) -> Result<(), GraphError> {
        self.check_setting(name, h, least)?;
        self.check_setting(name, w, least)
    }

    /// Turns an axis of the sample (negative: from the end) into an axis of the batched tensor.
    pub(super) fn axis(&self, axis: isize, shape: &[usize]) -> Result<usize, GraphError> {
        let rank = shape.len() - 1;
        let index = if axis < 0 { axis + rank as isize } else { axis };
        usize::try_from(index).ok().filter(|&index| index < rank).map(|index| index + 1).ok_or_else(|| {
            let sample = Shape::from(&shape[1..]);
            self.error(format!(
                "axis {axis} does not exist in a sample of shape {sample} (the batch axis is not counted)"
            ))
        })
    }

    /// The parameter `<layer>.<name>` of the same layer where it was applied first.
    fn parameter_again(&self, name: &str, shape: &Shape) -> Result<ValueId, GraphError> {
        let name = format!("{}.{name}", self.layer);
        let found = self.building.parameters.iter().find(|parameter| parameter.name == name);
        let found = found.ok_or_else(|| self.error(format!("there is no `{name}` yet: apply the layer first")))?;
        let own = &self.building.graph.value(found.value).desc.shape;
        if own == shape {
            return Ok(found.value);
        }
        Err(self.error(format!("`{name}` is {own}, and here it would be {shape}: the two places must be alike")))
    }

    fn lasting(&mut self, name: &str, shape: Shape, init: Init, role: Role) -> Result<Parameter, GraphError> {
        self.lasting_named(format!("{}.{name}", self.layer), shape, init, role)
    }

    fn lasting_named(&mut self, name: String, shape: Shape, init: Init, role: Role) -> Result<Parameter, GraphError> {
        self.check_elements(&name, &shape)?;
        if !self.building.names.insert(name.clone()) {
            return Err(self.error(format!("the name `{name}` is taken: give layers different names")));
        }
        let value = self.building.graph.source(name.clone(), TensorDesc::f32(shape), role);
        Ok(Parameter { name, value, init })
    }

    fn check_elements(&self, what: &str, shape: &Shape) -> Result<(), GraphError> {
        let numel = shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim));
        if numel.is_none_or(|numel| numel > MAX_ELEMENTS) {
            let (layer, what, shape) = (self.layer.clone(), what.to_owned(), shape.clone());
            return Err(GraphError::TooLarge { layer, what, shape, limit: MAX_ELEMENTS });
        }
        Ok(())
    }
}
