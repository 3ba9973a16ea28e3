//! How long the nodes of a graph take on the cores of the CPU.

use std::collections::HashMap;

use web_time::Instant;

use super::memory::Memory;
use super::operands::{Operands, WORD_BYTES};
use super::processor::Cpu;
use crate::error::DeviceError;
use crate::exec::measure::{CopyTime, Measure, OUTLIER, Timing, copy_sizes, descs, key};
use crate::graph::{Graph, Node};
use crate::native::Cores;
use crate::ops::{Epilogue, Input, Resources, run_native};
use crate::tensor::NodeId;

/// Runs of which the quickest counts, however short they are.
const MOST_RUNS: usize = 1000;
/// Bytes that a run of a program takes and gives besides what its nodes do.
const RUN_BYTES: usize = 64 << 10;

/// A stopwatch for work of native code.
#[derive(Debug)]
pub(crate) struct CpuStopwatch {
    cores: Cores,
    timing: Timing,
}

impl CpuStopwatch {
    /// Starts the threads.
    pub(crate) fn new(cpu: Cpu, timing: Timing) -> Self {
        CpuStopwatch { cores: Cores::new(cpu.threads(), cpu.level()), timing }
    }

    /// The quickest of several runs. Where half of them are far from it, there are more.
    fn least_ns(&self, mut work: impl FnMut()) -> f64 {
        work();
        let mut times = Vec::new();
        let enough = self.timing.submission.as_nanos() as f64 * self.timing.rounds as f64;
        let mut sum = 0.0;
        while times.len() < self.timing.rounds || (sum < enough && times.len() < MOST_RUNS) {
            let start = Instant::now();
            work();
            let ns = (start.elapsed().as_nanos() as f64).max(1.0);
            times.push(ns);
            sum += ns;
        }
        times.sort_by(f64::total_cmp);
        // What is usual, unless other work on the machine met most of the runs.
        let (least, median) = (times[0], times[times.len() / 2]);
        if median < OUTLIER * least { median } else { least }
    }

    fn node_ns(&self, graph: &Graph, node: &Node) -> Result<f64, DeviceError> {
        let (inputs, outputs) = descs(graph, node);
        let op = node.op.as_ref();
        let (operands, words) = Operands::alone(op, [inputs, outputs], self.cores.threads(), None, 0);
        let arenas = &mut [Memory::new(words as u64 * WORD_BYTES)?];
        Ok(self.least_ns(|| {
            let (mut call, workspaces) = operands.call(arenas, Input::InPlace);
            let (cores, epilogue) = (&self.cores, Epilogue::default());
            run_native(op, &mut call, &mut Resources { cores, workspaces, epilogue });
        }))
    }
}

impl Measure for CpuStopwatch {
    fn node_times(&self, graphs: &[&Graph]) -> Result<Vec<Vec<(NodeId, f64)>>, DeviceError> {
        let mut known = HashMap::new();
        let mut times = Vec::new();
        for graph in graphs {
            let mut of_graph = Vec::new();
            for id in graph.node_ids().filter(|&id| !graph.node(id).op.is_view()) {
                let node = graph.node(id);
                let key = key(graph, node);
                let ns = match known.get(&key) {
                    Some(&ns) => ns,
                    None => self.node_ns(graph, node)?,
                };
                known.insert(key, ns);
                of_graph.push((id, ns));
            }
            times.push(of_graph);
        }
        Ok(times)
    }

    fn copy_times(&self) -> Result<Vec<CopyTime>, DeviceError> {
        let time = |size_bytes: u64| {
            let near = Memory::new(size_bytes)?;
            let mut far = Memory::new(size_bytes)?;
            let ns = self.least_ns(|| far.words_mut().copy_from_slice(near.words()));
            Ok(CopyTime { size_bytes, offload_ns: ns, prefetch_ns: ns })
        };
        copy_sizes(u64::MAX).into_iter().map(time).collect()
    }

    fn run_ns(&self) -> Result<f64, DeviceError> {
        let (from, mut to) = (vec![0_u8; RUN_BYTES], vec![0_u8; RUN_BYTES]);
        Ok(self.least_ns(|| to.copy_from_slice(std::hint::black_box(&from))))
    }
}
