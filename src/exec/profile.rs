//! How long each node of a run takes.

use std::fmt;

use crate::graph::Graph;
use crate::ops::Cost;
use crate::shader::Kernel;
use crate::tensor::{NodeId, TensorDesc, ValueId};

/// Where the times of a profile come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The device's own clock, read before and after each launch of the run.
    Timestamps,
    /// The host's, around repetitions of each node by itself, for devices that have no clock: the nodes' times are those
    /// of an idle device, and those of their launches are not known.
    Stopwatch,
    /// The host's, around each node of the run: the CPU.
    Host,
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Clock::Timestamps => "timestamps",
            Clock::Stopwatch => "stopwatch",
            Clock::Host => "host",
        })
    }
}

/// What one run of a node took.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeTime {
    /// The layer that the node belongs to.
    pub name: String,
    /// The op.
    pub op: &'static str,
    /// What it reads.
    pub inputs: Vec<TensorDesc>,
    /// What it makes.
    pub outputs: Vec<TensorDesc>,
    /// What the op says it takes.
    pub cost: Cost,
    /// Nanoseconds, over all launches.
    pub ns: f64,
    /// Its launches in order, with nanoseconds; none where only the whole is known.
    pub kernels: Vec<(Kernel, f64)>,
}

impl NodeTime {
    pub(super) fn new(graph: &Graph, id: NodeId, ns: f64, kernels: Vec<(Kernel, f64)>) -> Self {
        let node = graph.node(id);
        let descs = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect::<Vec<_>>();
        let (inputs, outputs) = (descs(&node.inputs), descs(&node.outputs));
        let cost = node.op.cost(&inputs, &outputs);
        NodeTime { name: node.name.clone(), op: node.op.name(), inputs, outputs, cost, ns, kernels }
    }
}
