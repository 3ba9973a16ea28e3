//! A plan as inert data: what executors run, and what is printed, checked and stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Pass, SavedActivations};
use crate::graph::{Graph, Role};
use crate::tensor::{NodeId, TensorDesc, ValueId};

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
        /// The input whose memory output 0 reuses.
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
    /// Nanoseconds a step that one more byte would save, at the moment where memory is tightest.
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
    /// Threads of the CPU that it is for, with native code; `None` where it is for kernels of a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
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
    /// One graph per program, shared with whoever planned.
    pub graphs: Vec<Arc<Graph>>,
}
