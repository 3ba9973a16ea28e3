//! Costs that are typical of a class of devices, for those that were not measured.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::costs::{CopyRates, CostModel, OpRates};
use crate::ops::{Family, Target};

/// A kind of device, by what its memory and its links are.
///
/// Each class has typical costs, [`CostModel::of_class`]. Those of software devices and of CPUs were measured: `tightfit calibrate` on
/// two CPU cores, under Mesa's lavapipe and with native code. Those of GPUs are calculated from data sheets:
///
/// | | discrete | integrated |
/// |---|---|---|
/// | taken as typical | Radeon RX 6600 | Iris Xe with 96 execution units |
/// | f32 | 8.93 TFLOP/s | 2.07 TFLOP/s: 96 · 16 flops at 1.35 GHz |
/// | memory | 224 GB/s | 68 GB/s, LPDDR4X-4266 of 128 bits, shared with the host |
/// | link to the host | 15.75 GB/s, PCIe 4.0 with 8 lanes | its memory |
///
/// and from shares of these that are assumed: matrix products and convolutions take 35% of the flops (900 of 2,600 GFLOP/s is
/// what public WGSL kernels reach on an Apple M1), all else 10%; kernels take 70% of the memory's bandwidth; copies take 75% of
/// the link, or 15% of shared memory, which they read and write by way of the host's caches. A launch takes 10 µs, a run
/// 200 µs, a copy 20 µs besides: more than recording a launch, which is about 1 µs, and less than the 24 to 36 µs that were
/// measured for WebGPU with its validation on Vulkan (arXiv 2604.02344).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceClass {
    /// A GPU with memory of its own, behind a link that is slower than it.
    #[default]
    Discrete,
    /// A GPU that uses the host's memory.
    Integrated,
    /// A driver that runs kernels on the CPU.
    Software,
    /// The CPU itself, with native code.
    Cpu,
}

/// Threads on which the costs of [`DeviceClass::Cpu`] were measured.
const CPU_THREADS: usize = 2;

/// The type of the CPU, where an adapter has its own: `cpu` is that of drivers that run kernels on it.
pub(crate) const NATIVE: &str = "native";

impl DeviceClass {
    /// All classes.
    pub const ALL: [DeviceClass; 4] =
        [DeviceClass::Discrete, DeviceClass::Integrated, DeviceClass::Software, DeviceClass::Cpu];

    /// The class of a device of this type, as [`AdapterInfo`](crate::device::AdapterInfo) names it. What a driver does not tell
    /// is taken for an integrated GPU, and one in a virtual machine for a discrete one.
    pub fn of(device_type: &str) -> Self {
        match device_type {
            "discrete" | "virtual" => DeviceClass::Discrete,
            "cpu" => DeviceClass::Software,
            NATIVE => DeviceClass::Cpu,
            _ => DeviceClass::Integrated,
        }
    }

    /// The name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            DeviceClass::Discrete => "discrete",
            DeviceClass::Integrated => "integrated",
            DeviceClass::Software => "software",
            DeviceClass::Cpu => "cpu",
        }
    }

    /// What the costs are those of, in words.
    pub fn article(self) -> &'static str {
        match self {
            DeviceClass::Discrete => "a discrete GPU",
            DeviceClass::Integrated => "an integrated GPU",
            DeviceClass::Software => "a software device",
            DeviceClass::Cpu => "a CPU",
        }
    }
}

impl fmt::Display for DeviceClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// From data sheets, per nanosecond: see [`DeviceClass`].
struct DataSheet {
    flops: f64,
    bytes: f64,
    copied_bytes: f64,
    subgroup: u32,
    unified_memory: bool,
}

const DISCRETE: DataSheet =
    DataSheet { flops: 8930.0, bytes: 224.0, copied_bytes: 0.75 * 15.75, subgroup: 32, unified_memory: false };
const INTEGRATED: DataSheet =
    DataSheet { flops: 2070.0, bytes: 68.0, copied_bytes: 0.15 * 68.0, subgroup: 16, unified_memory: true };

const PRODUCTS_SHARE: f64 = 0.35;
const OTHERS_SHARE: f64 = 0.1;
const MEMORY_SHARE: f64 = 0.7;
const LAUNCH_NS: f64 = 10_000.0;
const RUN_NS: f64 = 200_000.0;
const COPY_NS: f64 = 20_000.0;

/// Ops that are mostly matrix products, by how their names begin.
const PRODUCTS: [&str; 7] = ["matmul", "conv2d", "conv_transpose2d", "lstm", "gru", "rnn", "rnn_relu"];

impl DataSheet {
    fn costs(&self) -> CostModel {
        let byte_ns = 1.0 / (MEMORY_SHARE * self.bytes);
        let rates = |share: f64| {
            let flop_ns = 1.0 / (share * self.flops);
            OpRates { launch_ns: LAUNCH_NS, flop_ns, read_ns: byte_ns, write_ns: byte_ns }
        };
        let copy = CopyRates { fixed_ns: COPY_NS, byte_ns: 1.0 / self.copied_bytes };
        // The names of all ops are those that were measured.
        let names = CostModel::default().ops.into_keys();
        let products = names.filter(|name| is_product(name)).map(|name| (name, rates(PRODUCTS_SHARE)));
        CostModel {
            target: Some(Target::new(Family::Subgroup { size: self.subgroup })),
            ops: products.collect(),
            other_ops: rates(OTHERS_SHARE),
            run_ns: RUN_NS,
            offload: copy,
            prefetch: copy,
            unified_memory: self.unified_memory,
        }
    }
}

/// Whether an op is mostly matrix products.
pub(super) fn is_product(op: &str) -> bool {
    let kind = op.split('.').next().expect("a split has a first part");
    PRODUCTS.contains(&kind) && !op.ends_with(".grad_bias")
}

impl CostModel {
    /// What is typical of a class: see [`DeviceClass`], which says where each figure comes from.
    pub fn of_class(class: DeviceClass) -> Self {
        match class {
            DeviceClass::Discrete => DISCRETE.costs(),
            DeviceClass::Integrated => INTEGRATED.costs(),
            DeviceClass::Software => CostModel::default(),
            DeviceClass::Cpu => {
                serde_json::from_str(include_str!("cpu.json")).expect("bug: the costs of a CPU are not a cost model")
            }
        }
    }

    /// Threads that the costs of a class were measured on; `None` of devices.
    pub(crate) fn class_threads(class: DeviceClass) -> Option<usize> {
        (class == DeviceClass::Cpu).then_some(CPU_THREADS)
    }

    /// What is typical of the class on so many threads of the CPU, where that is what runs.
    pub fn of_class_on(class: DeviceClass, threads: Option<usize>) -> Self {
        let costs = CostModel::of_class(class);
        match (class, threads) {
            (DeviceClass::Cpu, Some(threads)) => costs.on_threads(CPU_THREADS, threads),
            _ => costs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Work;

    #[test]
    fn costs_of_every_class_are_those_of_a_device() {
        let product = Work { launches: 1, flops: 2 << 30, read_bytes: 8 << 20, written_bytes: 4 << 20 };
        let mut times = Vec::new();
        for class in DeviceClass::ALL {
            let costs = CostModel::of_class(class);
            assert_eq!(costs.check(), Ok(()), "{class}");
            assert_eq!(costs.unified_memory, class != DeviceClass::Discrete);
            times.push(costs.op_rates("matmul").ns(product));
            let json = serde_json::to_string(&class).expect("a name");
            assert_eq!(json, format!("\"{class}\""));
        }
        assert!(times[..3].is_sorted() && times[2] > 10.0 * times[0], "{times:?}");
        assert!(times[3] < times[2], "native code is quicker than kernels on the CPU: {times:?}");
    }

    #[test]
    fn products_are_told_by_their_names() {
        let names: Vec<_> = CostModel::default().ops.into_keys().collect();
        let products: Vec<_> = names.iter().filter(|name| is_product(name)).collect();
        assert!(["conv2d.grad_weight", "matmul", "lstm", "gru.backward"].iter().all(|&op| is_product(op)));
        assert!(!["conv2d.grad_bias", "bias_add", "relu", "matmuls"].iter().any(|&op| is_product(op)));
        assert!((8..names.len() / 4).contains(&products.len()), "{products:?}");
    }
}
