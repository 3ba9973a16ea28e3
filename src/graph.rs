//! The computation graph: values, and the nodes that compute them with an op, in an order in which they can run. Shapes are checked
//! while it is built.

mod fusion;
mod precision;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use fusion::FusionStage;

use crate::error::{GraphError, OpError};
use crate::ops::shape::copy::Copy;
use crate::ops::{Builder, Op};
use crate::tensor::{NodeId, TensorDesc, ValueId, hex};

/// What a value is to training, which decides where it lives and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Uploaded before every run of the graph: a batch's samples and labels, the optimizer's numbers.
    Input,
    /// A trained tensor: lives as long as training.
    Parameter,
    /// What the model keeps between steps without training it, such as running statistics: lives as long as training.
    Buffer,
    /// Optimizer state: lives as long as training, starts as zeros.
    State,
    /// A gradient or metric that is summed over the micro-batches of a step: lives for a step.
    Accumulator,
    /// Made and used up within one run of the graph.
    Intermediate,
    /// Made in a run of the graph and read back to the host at its end.
    Output,
}

impl Role {
    /// Whether the value lives outside a single run of a graph. Such values are matched by name between graphs.
    pub fn is_persistent(self) -> bool {
        matches!(self, Role::Parameter | Role::Buffer | Role::State | Role::Accumulator)
    }

    /// Whether the value lives as long as training.
    pub(crate) fn lasts(self) -> bool {
        matches!(self, Role::Parameter | Role::Buffer | Role::State)
    }
}

/// A tensor in a graph.
#[derive(Clone, Debug)]
pub struct Value {
    /// `conv1.weight`, `relu2.output`; unique among persistent values and inputs.
    pub name: String,
    /// Shape and element type.
    pub desc: TensorDesc,
    /// What it is to training.
    pub role: Role,
    /// The node that makes it; `None` for inputs and for persistent values that exist beforehand.
    pub producer: Option<NodeId>,
}

/// The part of a step that a node belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// From the inputs to the loss.
    Forward,
    /// From the loss to the gradients.
    Backward,
    /// From the gradients to new parameters.
    Update,
}

/// Which of a step's micro-batches a graph is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Pass {
    /// The whole batch at once: forward, backward, update.
    Only,
    /// The first of several: its gradients become the accumulators.
    First,
    /// Neither first nor last: gradients are added to the accumulators.
    Middle,
    /// The last: gradients are added, then parameters are updated.
    Last,
    /// Forward only, to a prediction that is read back.
    Evaluate,
}

/// What becomes of a buffer at the end of a training step:
/// `buffer = (1 − momentum) · buffer + momentum · factor · value`, unless the step's loss is not finite.
///
/// Over micro-batches, the mean of `value` counts, weighted by their samples; or, of a buffer that has a row for each sample
/// of the step, each micro-batch's rows are its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BufferUpdate {
    /// The buffer.
    pub buffer: ValueId,
    /// A forward value of its shape, or the rows of the graph's samples.
    pub value: ValueId,
    /// Where the buffer has a row for each sample: the input that says which of them the graph's samples are, as
    /// [`ReadRows`](crate::ops::recurrent::state::ReadRows) takes it.
    pub rows: Option<ValueId>,
    /// How much of the value is taken over.
    pub momentum: f32,
    /// Multiplies the value.
    pub factor: f32,
}

/// One execution of an op.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name of the layer it belongs to.
    pub name: String,
    /// The op.
    pub op: Arc<dyn Op>,
    /// What it reads, and where [`Op::mutates`] says so, changes.
    pub inputs: Vec<ValueId>,
    /// What it makes.
    pub outputs: Vec<ValueId>,
    /// Part of the step.
    pub phase: Phase,
}

/// Values and nodes. Nodes stand in an order in which they can run.
#[derive(Clone, Debug)]
pub struct Graph {
    values: Vec<Value>,
    nodes: Vec<Node>,
    scope: String,
    phase: Phase,
}

impl Default for Graph {
    fn default() -> Self {
        Graph { values: Vec::new(), nodes: Vec::new(), scope: String::new(), phase: Phase::Forward }
    }
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Graph::default()
    }

    /// Adds a value that exists before the graph runs.
    pub fn source(&mut self, name: impl Into<String>, desc: TensorDesc, role: Role) -> ValueId {
        self.push_value(Value { name: name.into(), desc, role, producer: None })
    }

    /// Adds an input.
    pub fn input(&mut self, name: impl Into<String>, desc: TensorDesc) -> ValueId {
        self.source(name, desc, Role::Input)
    }

    /// Adds a parameter.
    pub fn parameter(&mut self, name: impl Into<String>, desc: TensorDesc) -> ValueId {
        self.source(name, desc, Role::Parameter)
    }

    /// Names the layer of the nodes added from here on.
    pub fn set_scope(&mut self, scope: impl Into<String>) {
        self.scope = scope.into();
    }

    /// Sets the phase of the nodes added from here on.
    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Adds a node; returns its outputs.
    ///
    /// # Errors
    /// Where the op refuses the shapes of its inputs.
    pub fn apply_all(&mut self, op: impl Op, inputs: &[ValueId]) -> Result<Vec<ValueId>, GraphError> {
        let op: Arc<dyn Op> = Arc::new(op);
        let name = if self.scope.is_empty() { op.name().to_owned() } else { self.scope.clone() };
        self.push_node(op, inputs).map_err(|source| GraphError::Op { node: name, source })
    }

    /// Adds a node that has one output.
    ///
    /// # Errors
    /// Where the op refuses the shapes of its inputs.
    pub fn apply(&mut self, op: impl Op, inputs: &[ValueId]) -> Result<ValueId, GraphError> {
        Ok(self.apply_all(op, inputs)?[0])
    }

    /// All values.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// All nodes, in an order in which they can run.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// One value.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// One node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Ids of all values.
    pub fn value_ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.values.len() as u32).map(ValueId)
    }

    /// Ids of all nodes.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// The value of this name that exists beforehand or is persistent.
    pub fn find(&self, name: &str) -> Option<ValueId> {
        self.value_ids().find(|&id| self.value(id).role != Role::Intermediate && self.value(id).name == name)
    }

    /// Keeps `id` to the end of a run and reads it back.
    pub(crate) fn mark_output(&mut self, id: ValueId) {
        self.values[id.index()].role = Role::Output;
    }

    /// Turns an intermediate value into a persistent one.
    pub(crate) fn promote(&mut self, id: ValueId, name: impl Into<String>, role: Role) {
        let value = &mut self.values[id.index()];
        value.name = name.into();
        value.role = role;
    }

    /// Runs `op` in the place of a node's. Its outputs are as many, and only such may differ as no node has read so far.
    pub(crate) fn substitute(&mut self, id: NodeId, op: Arc<dyn Op>) -> Result<(), OpError> {
        let node = &mut self.nodes[id.index()];
        let descs: Vec<_> = node.inputs.iter().map(|&input| self.values[input.index()].desc.computed()).collect();
        for (&output, desc) in node.outputs.iter().zip(op.outputs(&descs)?) {
            self.values[output.index()].desc = desc;
        }
        node.op = op;
        Ok(())
    }

    /// Moves forward nodes that stand after nodes of later phases to right after the last node that makes one of their
    /// inputs.
    pub(crate) fn hoist_forward(&mut self) {
        let count = self.nodes.len();
        let begin = self.nodes.iter().position(|node| node.phase != Phase::Forward).unwrap_or(count);
        // Each node's place among the nodes that stay: after which one it goes, and for ties in the order of now.
        let mut places: Vec<usize> = (0..count).collect();
        for n in begin..count {
            let node = &self.nodes[n];
            if node.phase == Phase::Forward {
                let makers = node.inputs.iter().filter_map(|&input| self.value(input).producer);
                places[n] = makers.map(|maker| places[maker.index()]).max().unwrap_or(0);
            }
        }
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&n| (places[n], n));
        let mut renamed = vec![NodeId(0); count];
        for (to, &from) in order.iter().enumerate() {
            renamed[from] = NodeId(to as u32);
        }
        self.nodes = order.into_iter().map(|n| self.nodes[n].clone()).collect();
        for value in &mut self.values {
            value.producer = value.producer.map(|node| renamed[node.index()]);
        }
    }

    /// The value whose memory `id` shares: itself, or through views the value that they show.
    pub fn storage_root(&self, id: ValueId) -> ValueId {
        match self.value(id).producer.map(|node| self.node(node)) {
            Some(node) if node.op.is_view() && node.outputs[0] == id => self.storage_root(node.inputs[0]),
            _ => id,
        }
    }

    /// SHA-256 over everything that a plan depends on, in hex.
    pub fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        for value in &self.values {
            hasher.update(format!("{}|{}|{:?}|{:?}\n", value.name, value.desc, value.role, value.producer));
        }
        for node in &self.nodes {
            hasher.update(format!("{:?}|{:?}|{:?}|{:?}\n", node.op, node.inputs, node.outputs, node.phase));
        }
        hex(&hasher.finalize())
    }

    fn push_value(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        ValueId(self.values.len() as u32 - 1)
    }

    fn push_node(&mut self, op: Arc<dyn Op>, inputs: &[ValueId]) -> Result<Vec<ValueId>, OpError> {
        let mut inputs = inputs.to_vec();
        for i in 1..inputs.len() {
            // One range of memory cannot be bound twice where a kernel may write to it.
            let root = self.storage_root(inputs[i]);
            if inputs[..i].iter().any(|&earlier| self.storage_root(earlier) == root) {
                inputs[i] = self.push_node(Arc::new(Copy), &[inputs[i]])?[0];
            }
        }
        let descs: Vec<_> = inputs.iter().map(|&id| self.value(id).desc.computed()).collect();
        let id = NodeId(self.nodes.len() as u32);
        let name = if self.scope.is_empty() { op.name().to_owned() } else { self.scope.clone() };
        let output_descs = op.outputs(&descs)?;
        let outputs = output_descs
            .into_iter()
            .enumerate()
            .map(|(i, desc)| {
                let suffix = if i == 0 { String::new() } else { format!(".{i}") };
                let name = format!("{name}:{}{suffix}", op.name());
                self.push_value(Value { name, desc, role: Role::Intermediate, producer: Some(id) })
            })
            .collect::<Vec<_>>();
        self.nodes.push(Node { name, op, inputs, outputs: outputs.clone(), phase: self.phase });
        Ok(outputs)
    }
}

impl Builder for Graph {
    fn apply(&mut self, op: Arc<dyn Op>, inputs: &[ValueId]) -> Result<Vec<ValueId>, OpError> {
        self.push_node(op, inputs)
    }

    fn apply_forward(&mut self, op: Arc<dyn Op>, inputs: &[ValueId]) -> Result<Vec<ValueId>, OpError> {
        let phase = std::mem::replace(&mut self.phase, Phase::Forward);
        let outputs = self.push_node(op, inputs);
        self.phase = phase;
        outputs
    }

    fn desc(&self, value: ValueId) -> &TensorDesc {
        &self.value(value).desc
    }
}
