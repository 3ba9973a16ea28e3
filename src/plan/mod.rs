//! The planner: from graphs and a budget to a [`Plan`], inert data that says what runs when and where every byte lives.
//!
//! Pure: no device, no clock, no randomness, no I/O.

#[cfg(test)]
mod account_tests;
mod allowance;
pub mod bench;
mod build;
mod candidates;
mod check;
mod class;
mod costs;
mod explain;
mod fit;
mod infeasible;
mod lifetime;
mod microbatch;
mod order;
mod placement;
mod possible;
mod reasons;
mod recompute;
mod regression;
mod restore;
mod schedule;
mod search;
mod sweep;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod toy;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use check::check;
pub use class::DeviceClass;
pub use costs::{CopyRates, CostModel, OpRates, Work};
pub use explain::{LeverUse, Table, format_bytes, format_ns, format_parts};
pub use possible::is_possible;
pub use restore::restore;
pub use search::plan;
pub use sweep::{Largest, largest, sweep};

use crate::error::GraphError;
pub use crate::graph::Pass;
use crate::graph::{FusionStage, Graph, Role};
pub use crate::ops::SavedActivations;
use crate::tensor::{NodeId, TensorDesc, ValueId};

/// Where the planner gets its graphs. Implemented by the trainer over a model, a loss and an optimizer.
pub trait Source {
    /// The graph of one pass over `samples` of the `batch` samples of a step, which keeps forward values for backward in
    /// this form.
    ///
    /// # Errors
    /// Where the model cannot be built at that size.
    fn graph(&self, pass: Pass, samples: usize, batch: usize, saved: SavedActivations) -> Result<Graph, GraphError>;
}

/// What may be different about the graphs of a step that all make the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Form {
    /// In which form forward values are kept for backward.
    saved: SavedActivations,
    /// Whether elementwise nodes are fused with what they follow.
    fused: bool,
}

impl Form {
    /// The graph of one pass in this form.
    fn graph(self, source: &dyn Source, pass: Pass, samples: usize, batch: usize) -> Result<Graph, GraphError> {
        let mut graph = source.graph(pass, samples, batch, self.saved)?;
        if self.fused {
            graph.fuse(FusionStage::Complete, &[]);
        }
        Ok(graph)
    }
}

/// What a device allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Largest buffer: arenas are cut at this size.
    pub max_buffer_bytes: u64,
    /// Largest binding: no tensor may be larger.
    pub max_binding_bytes: u64,
    /// Offsets are multiples of this.
    pub alignment_bytes: u64,
    /// Charged from the start, for what the device takes when it is opened.
    pub baseline_bytes: u64,
}

impl Limits {
    /// What to assume where the device is not at hand: what devices allow, and what wgpu reserves to open one.
    pub fn any_device() -> Self {
        Limits { baseline_bytes: 4 << 20, ..Limits::default() }
    }
}

/// Those of the interpreter on the host.
impl Default for Limits {
    fn default() -> Self {
        Limits { max_buffer_bytes: 1 << 30, max_binding_bytes: 1 << 30, alignment_bytes: 256, baseline_bytes: 0 }
    }
}

/// What the planner may do to save memory, besides micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levers {
    /// Run nodes again whose outputs were dropped.
    pub recompute: bool,
    /// Move values to the host and back.
    pub offload: bool,
    /// Keep forward values for backward in smaller forms.
    pub compression: bool,
    /// Join elementwise ops with what they follow.
    pub fusion: bool,
}

impl Default for Levers {
    fn default() -> Self {
        Levers { recompute: true, offload: true, compression: true, fusion: true }
    }
}

/// What to plan for.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Samples of a step.
    pub batch: usize,
    /// Bytes that may be on the device at once; `None` for no limit.
    pub budget_bytes: Option<u64>,
    /// Fixes the number of micro-batches; `None` lets the planner choose.
    pub micro_batches: Option<usize>,
    /// What may be done to save memory.
    pub levers: Levers,
    /// What the device allows.
    pub limits: Limits,
    /// What ops cost.
    pub costs: CostModel,
}

/// One entry of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Runs a node's kernels. A second `Dispatch` of one node is a recompute.
    Dispatch {
        /// The node.
        node: NodeId,
        /// Where each output goes.
        outputs: Vec<Allocation>,
        /// Scratch of the node, free again after it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        workspaces: Vec<Allocation>,
        /// The input whose memory output 0 takes over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        in_place: Option<usize>,
    },
    /// Copies a value to the host tier; its memory on the device is then free.
    Offload {
        /// The value.
        value: ValueId,
        /// Where in the host tier.
        to: Allocation,
    },
    /// Brings a value back from the host tier, which keeps its copy until something else is put there.
    Prefetch {
        /// The value.
        value: ValueId,
        /// Where in the host tier.
        from: Allocation,
        /// Where on the device.
        to: Allocation,
    },
    /// The value's memory is free from here on.
    Free {
        /// The value.
        value: ValueId,
    },
}

/// What an arena holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ArenaRole {
    /// Trained tensors.
    Parameters,
    /// What the model keeps between steps without training it.
    Buffers,
    /// Optimizer state.
    State,
    /// Gradients and metrics that are summed over micro-batches.
    Accumulators,
    /// Inputs, activations, gradients and workspaces of one run of a program.
    Transient,
    /// Memory of the host, for values that are offloaded. It does not count towards the budget.
    Host,
}

/// A buffer that is created once, before the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arena {
    /// What it holds.
    pub role: ArenaRole,
    /// Its size.
    pub size_bytes: u64,
}

/// A range of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Allocation {
    /// Index in [`Plan::arenas`].
    pub arena: u32,
    /// First byte.
    pub offset_bytes: u64,
    /// Bytes, rounded up to the device's alignment.
    pub size_bytes: u64,
}

/// A value that lives across runs of programs. Graphs name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Persistent {
    /// Its name in every graph.
    pub name: String,
    /// What it is to training.
    pub role: Role,
    /// Shape and element type.
    pub desc: TensorDesc,
    /// Where it is between programs: in an arena of its role, or in the host tier.
    pub place: Allocation,
}

/// One micro-batch's worth of commands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Which micro-batch.
    pub pass: Pass,
    /// Samples in it.
    pub samples: usize,
    /// [`Graph::hash`] of the graph that node and value ids refer to.
    pub graph_hash: String,
    /// Where inputs and persistent values are before the first command. A view is where its storage root is.
    pub places: BTreeMap<ValueId, Allocation>,
    /// What to do, in order. Views have no command.
    pub commands: Vec<Command>,
    /// Most transient bytes live at once, before placement.
    pub live_peak_bytes: u64,
    /// Estimated time of one run.
    pub predicted_ns: u64,
}

/// Fixed buffers through which host and device exchange data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staging {
    /// Bytes of one upload slot; larger data goes in pieces.
    pub upload_slot_bytes: u64,
    /// Number of upload slots.
    pub upload_slots: u32,
    /// Bytes of the readback buffer; larger data comes in pieces.
    pub readback_bytes: u64,
}

impl Staging {
    /// Bytes of all staging buffers.
    pub fn total_bytes(&self) -> u64 {
        self.upload_slot_bytes.saturating_mul(u64::from(self.upload_slots)).saturating_add(self.readback_bytes)
    }
}

/// How a value comes to be in memory again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Lever {
    /// Its node runs again.
    Recompute,
    /// It comes back from the host tier.
    Offload,
}

/// Why a value is recomputed or offloaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// Index in [`Plan::programs`].
    pub program: u32,
    /// Position in [`Program::commands`] of the second `Dispatch`, or of the `Prefetch`.
    pub command: u32,
    /// Which of the two it is.
    pub lever: Lever,
    /// The value's name: the node's first output that is used again, or what is fetched.
    pub name: String,
    /// Bytes that are free in the meantime.
    pub size_bytes: u64,
    /// Commands for which they are free.
    pub absent_commands: u32,
    /// Time that the command takes, with the copy to the host where there is one.
    pub cost_ns: u64,
    /// In words.
    pub text: String,
}

/// A lower bound on the step time of any plan for the same micro-batches and order of nodes, and what memory is worth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// No such plan takes less.
    pub step_ns: f64,
    /// Nanoseconds a step that one more byte would save, at the moment where memory is tightest; with many more, each saves no more.
    pub shadow_price_ns_per_byte: f64,
}

/// All that execution needs: inert data, the same for every executor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Samples of a step.
    pub batch: usize,
    /// Bytes that may be on the device at once; `None` for no limit.
    pub budget_bytes: Option<u64>,
    /// Bytes on the device from the first step to the last: baseline, arenas and staging.
    pub peak_bytes: u64,
    /// Peak with the whole batch at once and no budget, or as much of it as kernels can count.
    pub unconstrained_peak_bytes: u64,
    /// Estimated time of a step with the whole batch at once and no budget.
    pub unconstrained_step_ns: u64,
    /// The smallest budget: there is a plan for every one from it on, and none below.
    pub minimum_budget_bytes: u64,
    /// Samples of each micro-batch of a step, in order.
    pub micro_batches: Vec<usize>,
    /// In which form forward values are kept for backward.
    pub saved: SavedActivations,
    /// Whether elementwise nodes are fused with what they follow ([`Graph::fuse`]).
    #[serde(default)]
    pub fused: bool,
    /// For each micro-batch of a step, the index of its program.
    pub schedule: Vec<usize>,
    /// The program that predicts without training, if any.
    pub evaluate: Option<usize>,
    /// The distinct programs.
    pub programs: Vec<Program>,
    /// The buffers.
    pub arenas: Vec<Arena>,
    /// Values that outlive a program's run.
    pub persistent: Vec<Persistent>,
    /// Upload and readback buffers.
    pub staging: Staging,
    /// What the device took when it was opened.
    pub baseline_bytes: u64,
    /// Estimated time of a step.
    pub predicted_step_ns: u64,
    /// Lower bound on the step time, where one was computed.
    pub bound: Option<Bound>,
    /// Why values are recomputed or offloaded.
    pub reasons: Vec<Reason>,
}

/// A plan with the graphs that its programs refer to, in the same order.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// One graph per program.
    pub graphs: Vec<Graph>,
}
