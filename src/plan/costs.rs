//! What commands cost in time, as the planner reckons.

use serde::{Deserialize, Serialize};

use crate::graph::Graph;
use crate::ops::Target;
use crate::tensor::{NodeId, TensorDesc, ValueId};

/// Time of an op: `launch_ns + max(flops / flops_per_ns, bytes / bytes_per_ns)`. Time of a copy between the device and
/// the host: `copy_ns + bytes / rate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostModel {
    /// Fixed time of one launch.
    pub launch_ns: f64,
    /// Arithmetic rate.
    pub flops_per_ns: f64,
    /// Memory rate.
    pub bytes_per_ns: f64,
    /// Fixed time of one copy between device and host.
    pub copy_ns: f64,
    /// Rate of copies to the host.
    pub offload_bytes_per_ns: f64,
    /// Rate of copies from the host.
    pub prefetch_bytes_per_ns: f64,
}

impl Default for CostModel {
    /// Two CPU cores under lavapipe, the slowest device there is.
    fn default() -> Self {
        CostModel {
            launch_ns: 40_000.0,
            flops_per_ns: 40.0,
            bytes_per_ns: 4.0,
            copy_ns: 100_000.0,
            offload_bytes_per_ns: 4.0,
            prefetch_bytes_per_ns: 4.0,
        }
    }
}

impl CostModel {
    /// One run of a node's kernels.
    pub fn node_ns(&self, graph: &Graph, node: NodeId) -> f64 {
        let node = graph.node(node);
        let descs = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect::<Vec<TensorDesc>>();
        let (inputs, outputs) = (descs(&node.inputs), descs(&node.outputs));
        let cost = node.op.cost(&inputs, &outputs);
        let launches = node.op.dispatches(&inputs, &outputs, &Target::default()).len();
        let (compute, memory) = (cost.flops as f64 / self.flops_per_ns, cost.bytes_moved as f64 / self.bytes_per_ns);
        self.launch_ns * launches as f64 + compute.max(memory)
    }

    /// What one run of a program takes besides its nodes and copies.
    pub fn run_ns(&self) -> f64 {
        0.0
    }

    /// A copy to the host.
    pub fn offload_ns(&self, size_bytes: u64) -> f64 {
        self.copy_ns + size_bytes as f64 / self.offload_bytes_per_ns
    }

    /// A copy from the host.
    pub fn prefetch_ns(&self, size_bytes: u64) -> f64 {
        self.copy_ns + size_bytes as f64 / self.prefetch_bytes_per_ns
    }
}
