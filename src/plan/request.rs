//! What the planner is given: where graphs come from, what a device allows, and what may be done to save memory.

use serde::{Deserialize, Serialize};

use super::{CostModel, Pass, SavedActivations};
use crate::error::GraphError;
use crate::graph::Graph;
use crate::tensor::Half;

/// Where the planner gets its graphs. Implemented by the trainer over a model, a loss and an optimizer.
pub trait Source {
    /// The graph of one pass over `samples` of the `batch` samples of a step, which keeps forward values for backward in
    /// this form.
    ///
    /// # Errors
    /// Where the model cannot be built at that size.
    fn graph(&self, pass: Pass, samples: usize, batch: usize, saved: SavedActivations) -> Result<Graph, GraphError>;
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
    /// Threads of the CPU, where native code of ops runs on it; `None` where kernels do on a device. Workspaces depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
}

impl Limits {
    /// More threads than any machine has cores.
    pub const MOST_THREADS: usize = 1024;

    /// What to assume where the device is not at hand: what devices allow, and what wgpu reserves to open one.
    pub fn any_device() -> Self {
        Limits { baseline_bytes: 4 << 20, ..Limits::default() }
    }

    /// Those of native code on so many threads of the CPU: memory is one piece.
    pub fn of_cpu(threads: usize) -> Self {
        let most = 1 << 50;
        Limits { max_buffer_bytes: most, max_binding_bytes: most, threads: Some(threads), ..Limits::default() }
    }
}

/// Those of the reference on the CPU.
impl Default for Limits {
    fn default() -> Self {
        let (max_buffer_bytes, max_binding_bytes) = (1 << 30, 1 << 30);
        Limits { max_buffer_bytes, max_binding_bytes, alignment_bytes: 256, baseline_bytes: 0, threads: None }
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
    /// Fuse elementwise ops with what they follow.
    pub fusion: bool,
    /// Keep forward values for backward in 16 bits of this format, which rounds gradients; `None` does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_activations: Option<Half>,
}

impl Levers {
    /// The forms in which forward values may be kept, the largest first.
    pub(crate) fn saved_forms(&self) -> Vec<SavedActivations> {
        let mut forms = vec![SavedActivations::Full];
        if self.compression {
            forms.push(SavedActivations::Compressed);
        }
        forms.extend(self.half_activations.map(SavedActivations::Half));
        forms
    }
}

impl Default for Levers {
    fn default() -> Self {
        Levers { recompute: true, offload: true, compression: true, fusion: true, half_activations: None }
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
