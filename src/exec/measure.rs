//! How long the nodes of a graph, copies between device and host, and runs of a program take on a device.
//!
//! Wall-clock times: what is measured is what training waits for. A submission repeats the work often enough to be long
//! against an empty submission, whose time is subtracted. Of several, the quickest counts: the others are slower by
//! what other programs did meanwhile. Where the quickest is far from the median, or not longer than an empty submission, more
//! are made.

use std::collections::HashMap;
use std::time::Duration;

use web_time::Instant;

use super::launch::{Launch, Location, Storage, access};
use crate::device::{Buffer, Device, Range, Readback, UploadRing};
use crate::error::DeviceError;
use crate::graph::{Graph, Node};
use crate::ops::stored::dispatches;
use crate::ops::{Dispatch, Slot, Target, workspaces};
use crate::tensor::{NodeId, TensorDesc, ValueId};

/// What a cost model is fitted to.
pub trait Measure {
    /// Times of the nodes of each graph, views left out. Tensors are zeros; nodes that are alike are measured once.
    ///
    /// # Errors
    /// Where memory is short or the device fails.
    fn node_times(&self, graphs: &[&Graph]) -> Result<Vec<Vec<(NodeId, f64)>>, DeviceError>;

    /// Times of copies between the device and the host, as moving a value there takes them.
    ///
    /// # Errors
    /// Where memory is short or the device fails.
    fn copy_times(&self) -> Result<Vec<CopyTime>, DeviceError>;

    /// Time of a run of a program without nodes.
    ///
    /// # Errors
    /// Where memory is short or the device fails.
    fn run_ns(&self) -> Result<f64, DeviceError>;
}

/// How carefully to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A submission repeats the work until it should take so long.
    pub submission: Duration,
    /// Submissions, of which the quickest counts.
    pub rounds: usize,
}

/// Many short submissions: one of them has the device, or the cores of a software device, to itself.
impl Default for Timing {
    fn default() -> Self {
        Timing { submission: Duration::from_millis(3), rounds: 10 }
    }
}

impl Timing {
    /// The least that gives any figures at all, for tests.
    pub fn quick() -> Self {
        Timing { submission: Duration::from_millis(1), rounds: 3 }
    }
}

/// Most repetitions in one submission: recording them takes time too.
const MAX_REPETITIONS: f64 = 200.0;

/// Runs in one submission of a [`Repeat`]: heavy nodes must not hold a device for seconds.
#[cfg(any(test, feature = "testing"))]
const RUNS_OF_SUBMISSION: u64 = 20;

/// A stopwatch for work on one device.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch<'a> {
    device: &'a Device,
    target: Target,
    timing: Timing,
    empty_ns: f64,
}

/// Work to be timed, and what came of it so far.
struct Lap<T> {
    work: T,
    repetitions: usize,
    /// Times of submissions.
    times: Vec<f64>,
}

/// Submissions that are slower than this many times the quickest met other work on the machine.
pub(crate) const OUTLIER: f64 = 2.0;

/// How often the rounds of unsteady work are repeated.
const MORE_ROUNDS: usize = 2;

/// Whether half of the times are near the quickest, and that is longer than an empty submission.
fn is_steady(times: &[f64], empty_ns: f64) -> bool {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.first(), sorted.get(sorted.len() / 2)) {
        (Some(least), Some(median)) => *least > empty_ns && *median < OUTLIER * least,
        _ => false,
    }
}

impl<'a> Stopwatch<'a> {
    /// Measures an empty submission.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn new(device: &'a Device, timing: Timing) -> Result<Self, DeviceError> {
        let mut watch = Stopwatch { device, target: device.target(), timing, empty_ns: 0.0 };
        let times = (0..timing.rounds * 10).map(|_| watch.once(|_| {})).collect::<Result<Vec<_>, _>>()?;
        watch.empty_ns = least(times);
        Ok(watch)
    }

    /// A watch for nodes whose kernels are those of another target.
    #[must_use]
    pub fn with_target(self, target: Target) -> Self {
        Stopwatch { target, ..self }
    }

    fn once(&self, record: impl FnOnce(&mut wgpu::CommandEncoder)) -> Result<f64, DeviceError> {
        let start = Instant::now();
        let mut encoder = self.device.encoder();
        record(&mut encoder);
        let submission = self.device.submit(encoder)?;
        self.device.wait(Some(submission))?;
        Ok(start.elapsed().as_nanos() as f64)
    }

    /// Time of one repetition of each work, as `record` records it so many times.
    fn laps<T>(
        &self,
        works: Vec<T>,
        record: impl Fn(&T, &mut wgpu::CommandEncoder, usize),
    ) -> Result<Vec<f64>, DeviceError> {
        let mut laps = Vec::with_capacity(works.len());
        for work in works {
            // Some drivers compile in the first run; the second tells how often to repeat.
            self.once(|encoder| record(&work, encoder, 1))?;
            let single_ns = (self.once(|encoder| record(&work, encoder, 1))? - self.empty_ns).max(1.0);
            let wanted = self.timing.submission.as_nanos() as f64 / single_ns;
            laps.push(Lap { work, repetitions: wanted.clamp(1.0, MAX_REPETITIONS) as usize, times: Vec::new() });
        }
        // Round after round, so that another program's burst of work does not meet all laps of one work.
        for round in 0..self.timing.rounds * (1 + MORE_ROUNDS) {
            for lap in &mut laps {
                if round < self.timing.rounds || !is_steady(&lap.times, self.empty_ns) {
                    lap.times.push(self.once(|encoder| record(&lap.work, encoder, lap.repetitions))?);
                }
            }
        }
        let of_one = |lap: Lap<T>| ((least(lap.times) - self.empty_ns) / lap.repetitions as f64).max(1.0);
        Ok(laps.into_iter().map(of_one).collect())
    }

    /// A buffer of zeros for the tensors of any of these nodes.
    fn arena(&self, layouts: &[Layout<'_>]) -> Result<Buffer, DeviceError> {
        let size_bytes = layouts.iter().map(|layout| layout.size_bytes).max().unwrap_or(0);
        let arena = self.device.create_storage("tensors of one node", size_bytes)?;
        self.once(|encoder| encoder.clear_buffer(arena.raw(), 0, None))?;
        Ok(arena)
    }

    fn launch_times(&self, launches: Vec<Vec<Launch>>) -> Result<Vec<f64>, DeviceError> {
        self.laps(launches, |launches, encoder, repetitions| record(launches, encoder, repetitions))
    }

    /// Times of each node with the kernels of each target. What other programs do meets all targets of a node alike, since they
    /// run in turn; where two launch the same, they have the same time.
    ///
    /// # Errors
    /// As [`Stopwatch::node_times`].
    pub fn times_as(&self, targets: &[Target], nodes: &[(&Graph, NodeId)]) -> Result<Vec<Vec<f64>>, DeviceError> {
        let layouts: Vec<_> =
            nodes.iter().map(|&(graph, node)| Layout::new(self.device, graph, graph.node(node))).collect();
        let arena = self.arena(&layouts)?;
        let (mut works, mut index) = (Vec::new(), Vec::new());
        for layout in &layouts {
            let mut seen: Vec<(Vec<Dispatch>, usize)> = Vec::new();
            for target in targets {
                let dispatches = layout.dispatches(target);
                let alike = seen.iter().find(|(other, _)| *other == dispatches).map(|(_, work)| *work);
                let work = alike.unwrap_or(works.len());
                if alike.is_none() {
                    works.push(layout.launches(self.device, target, &arena)?);
                    seen.push((dispatches, work));
                }
                index.push(work);
            }
        }
        let times = self.launch_times(works)?;
        let of_node = |works: &[usize]| works.iter().map(|&work| times[work]).collect();
        Ok(index.chunks(targets.len().max(1)).map(of_node).collect())
    }
}

fn record(launches: &[Launch], encoder: &mut wgpu::CommandEncoder, repetitions: usize) {
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    for _ in 0..repetitions {
        launches.iter().for_each(|launch| launch.record(&mut pass));
    }
}

/// A node that runs as often as asked, for benchmarks. Tensors are zeros.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug)]
pub struct Repeat<'a> {
    watch: &'a Stopwatch<'a>,
    launches: Vec<Launch>,
    _arena: Buffer,
}

#[cfg(any(test, feature = "testing"))]
impl Stopwatch<'_> {
    /// Makes a node ready to run again and again.
    ///
    /// # Errors
    /// Where memory is short, a kernel does not compile or the device fails.
    pub fn repeat(&self, graph: &Graph, node: NodeId) -> Result<Repeat<'_>, DeviceError> {
        let layout = Layout::new(self.device, graph, graph.node(node));
        let arena = self.arena(std::slice::from_ref(&layout))?;
        Ok(Repeat { watch: self, launches: layout.launches(self.device, &self.target, &arena)?, _arena: arena })
    }
}

#[cfg(any(test, feature = "testing"))]
impl Repeat<'_> {
    /// Time of so many runs, without that of empty submissions.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn time(&self, runs: u64) -> Result<Duration, DeviceError> {
        let mut ns = 0.0;
        let mut left = runs;
        while left > 0 {
            let repetitions = left.min(RUNS_OF_SUBMISSION);
            left -= repetitions;
            let took_ns = self.watch.once(|encoder| record(&self.launches, encoder, repetitions as usize))?;
            ns += (took_ns - self.watch.empty_ns).max(1.0);
        }
        Ok(Duration::from_nanos(ns as u64))
    }
}

/// Bytes of one copy between device and host, with the time of a copy to the host and of one from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyTime {
    /// Bytes.
    pub size_bytes: u64,
    /// To the host.
    pub offload_ns: f64,
    /// From the host.
    pub prefetch_ns: f64,
}

/// Sizes of copies: where the fixed time counts, and where the rate does.
const COPY_BYTES: [u64; 4] = [4 << 10, 256 << 10, 4 << 20, 32 << 20];

/// Sizes of copies that are measured where a buffer has this size at most.
pub(crate) fn copy_sizes(largest_bytes: u64) -> [u64; 4] {
    COPY_BYTES.map(|size| size.min(largest_bytes))
}

/// Size of the staging buffers through which values move.
const STAGING_BYTES: u64 = 256 << 10;

/// Tensors of nodes share one buffer, as in an arena; copies go through staging buffers.
impl Measure for Stopwatch<'_> {
    fn node_times(&self, graphs: &[&Graph]) -> Result<Vec<Vec<(NodeId, f64)>>, DeviceError> {
        let mut index = HashMap::new();
        let mut layouts = Vec::new();
        for graph in graphs {
            for node in graph.nodes().iter().filter(|node| !node.op.is_view()) {
                index.entry(key(graph, node)).or_insert_with(|| {
                    layouts.push(Layout::new(self.device, graph, node));
                    layouts.len() - 1
                });
            }
        }
        let arena = self.arena(&layouts)?;
        let launches = layouts
            .iter()
            .map(|layout| layout.launches(self.device, &self.target, &arena))
            .collect::<Result<Vec<_>, _>>()?;
        let times = self.launch_times(launches)?;
        let of = |graph: &Graph| {
            let nodes = graph.node_ids().filter(|&id| !graph.node(id).op.is_view());
            nodes.map(|id| (id, times[index[&key(graph, graph.node(id))]])).collect()
        };
        Ok(graphs.iter().map(|graph| of(graph)).collect())
    }

    fn copy_times(&self) -> Result<Vec<CopyTime>, DeviceError> {
        let largest = COPY_BYTES[COPY_BYTES.len() - 1].min(self.device.info().max_buffer_bytes / 256 * 256);
        let near = self.device.create_storage("copies", largest)?;
        let mut upload = UploadRing::new(self.device, 2, STAGING_BYTES)?;
        let mut readback = Readback::new(self.device, STAGING_BYTES)?;
        let mut times = Vec::new();
        for size_bytes in copy_sizes(largest) {
            let mut far = vec![0; size_bytes as usize];
            let range = Range { buffer: &near, offset_bytes: 0, size_bytes };
            let offload_ns = self.best(|| {
                let data = readback.read(self.device, &[range])?.swap_remove(0);
                far.copy_from_slice(&data);
                Ok(())
            })?;
            let prefetch_ns = self.best(|| {
                upload.write(self.device, &near, 0, &far)?;
                upload.flush(self.device)?;
                self.device.synchronize()
            })?;
            times.push(CopyTime { size_bytes, offload_ns, prefetch_ns });
        }
        Ok(times)
    }

    fn run_ns(&self) -> Result<f64, DeviceError> {
        let mut upload = UploadRing::new(self.device, 2, RUN_INPUT_BYTES)?;
        let mut readback = Readback::new(self.device, 256)?;
        let buffer = self.device.create_storage("inputs", RUN_INPUT_BYTES)?;
        let input = vec![0; RUN_INPUT_BYTES as usize];
        let range = Range { buffer: &buffer, offset_bytes: 0, size_bytes: 4 };
        let times = (0..RUNS).map(|_| {
            self.best(|| {
                upload.write(self.device, &buffer, 0, &input)?;
                let mut encoder = self.device.encoder();
                upload.encode(&mut encoder);
                drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()));
                let submission = self.device.submit(encoder)?;
                upload.submitted(&submission);
                readback.read(self.device, &[range])?;
                readback.read(self.device, &[range]).map(|_| ())
            })
        });
        Ok(least(times.collect::<Result<Vec<_>, _>>()?))
    }
}

impl Stopwatch<'_> {
    /// The quickest of several rounds.
    fn best(&self, mut work: impl FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        work()?;
        let mut times = Vec::new();
        for round in 0..self.timing.rounds * (1 + MORE_ROUNDS) {
            if round < self.timing.rounds || !is_steady(&times, 0.0) {
                let start = Instant::now();
                work()?;
                times.push(start.elapsed().as_nanos() as f64);
            }
        }
        Ok(least(times).max(1.0))
    }
}

/// A small batch.
const RUN_INPUT_BYTES: u64 = 64 << 10;

/// Runs are short, so many can be timed.
const RUNS: usize = 10;

fn least(times: Vec<f64>) -> f64 {
    times.into_iter().fold(f64::INFINITY, f64::min)
}

/// Nodes with the same key take the same time.
pub(crate) fn key(graph: &Graph, node: &Node) -> String {
    let (inputs, outputs) = descs(graph, node);
    format!("{:?} {inputs:?} {outputs:?}", node.op)
}

pub(crate) fn descs(graph: &Graph, node: &Node) -> (Vec<TensorDesc>, Vec<TensorDesc>) {
    let of = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect();
    (of(&node.inputs), of(&node.outputs))
}

/// One node's tensors and workspaces in a buffer.
struct Layout<'a> {
    node: &'a Node,
    inputs: Vec<TensorDesc>,
    outputs: Vec<TensorDesc>,
    in_place: Option<(usize, usize)>,
    /// First byte and size of each input, each output, each workspace.
    regions: Vec<(u64, u64)>,
    size_bytes: u64,
}

impl<'a> Layout<'a> {
    fn new(device: &Device, graph: &Graph, node: &'a Node) -> Self {
        let (inputs, outputs) = descs(graph, node);
        // Plans work in place wherever an op can.
        let fits = |&(i, output): &(usize, usize)| output == 0 && inputs[i].dtype == outputs[0].dtype;
        let in_place = node.op.in_place().iter().copied().find(fits);
        let sizes = inputs.iter().chain(&outputs).map(TensorDesc::size_bytes);
        let alignment_bytes = device.alignment_bytes();
        let mut end = 0;
        let mut regions = Vec::new();
        for size_bytes in sizes.chain(workspaces(&*node.op, &inputs, &outputs, None)) {
            let size_bytes = size_bytes.max(1).next_multiple_of(alignment_bytes);
            regions.push((end, size_bytes));
            end += size_bytes;
        }
        if let Some((input, _)) = in_place {
            regions[inputs.len()] = regions[input];
        }
        Layout { node, inputs, outputs, in_place, regions, size_bytes: end }
    }

    fn dispatches(&self, target: &Target) -> Vec<Dispatch> {
        dispatches(&*self.node.op, &self.inputs, &self.outputs, target)
    }

    fn launches(&self, device: &Device, target: &Target, arena: &Buffer) -> Result<Vec<Launch>, DeviceError> {
        let locate = |slot: Slot| {
            let (offset_bytes, size_bytes) = self.regions[match slot {
                Slot::Input(i) => i,
                Slot::Output(i) => self.inputs.len() + i,
                Slot::Workspace(i) => self.inputs.len() + self.outputs.len() + i,
            }];
            Location { buffer: arena, offset_bytes, size_bytes }
        };
        let op = self.node.op.as_ref();
        let storage = Storage::new(device, &self.inputs, &self.outputs);
        self.dispatches(target)
            .into_iter()
            .map(|dispatch| {
                let access = access(op, &dispatch, self.in_place, &locate);
                Launch::new(device, dispatch, storage, access, self.in_place, &locate)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::device_or_skip;
    use crate::ops::elementwise::relu::Relu;
    use crate::ops::matmul::matmul::MatMul;
    use crate::ops::shape::reshape::Reshape;

    #[test]
    fn what_met_other_work_is_measured_again() {
        assert!(!is_steady(&[], 0.0));
        assert!(is_steady(&[10.0, 11.0, 90.0], 1.0));
        assert!(!is_steady(&[10.0, 25.0, 90.0], 1.0), "the median is far from the least");
        assert!(!is_steady(&[10.0, 11.0, 12.0], 10.0), "no longer than an empty submission");
        assert!(!is_steady(&[f64::NAN], 0.0));
    }

    #[test]
    fn every_node_but_views_has_a_time() {
        let Some(device) = device_or_skip() else { return };
        let graph = |rows: usize| {
            let mut graph = Graph::new();
            let input = graph.input("input", TensorDesc::f32([rows, 64]));
            let weight = graph.parameter("weight", TensorDesc::f32([64, 64]));
            let product = graph.apply(MatMul::default(), &[input, weight]).expect("fits");
            let active = graph.apply(Relu, &[product]).expect("fits");
            let view = graph.apply(Reshape { shape: [64 * rows].into() }, &[active]).expect("fits");
            graph.apply(Relu, &[view]).expect("fits");
            graph
        };
        let before = device.ledger().current_bytes();
        let watch = Stopwatch::new(&device, Timing::quick()).expect("measures");
        let (small, large) = (graph(1), graph(2048));
        let times = watch.node_times(&[&small, &large, &small]).expect("measures");
        assert_eq!(times.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3]);
        assert_eq!(times[0], times[2], "alike nodes are measured once");
        assert!(times.iter().flatten().all(|(_, ns)| ns.is_finite() && *ns >= 1.0), "{times:?}");
        assert!(times[1][0].1 > times[0][0].1, "2048 rows take longer than one: {times:?}");
        assert!(watch.node_times(&[]).expect("nothing to do").is_empty());
        assert_eq!(device.ledger().current_bytes(), before, "nothing is left on the device");
    }

    #[test]
    fn copies_and_runs_have_times() {
        let Some(device) = device_or_skip() else { return };
        let watch = Stopwatch::new(&device, Timing::quick()).expect("measures");
        let copies = watch.copy_times().expect("measures");
        assert!(copies.iter().all(|copy| copy.offload_ns >= 1.0 && copy.prefetch_ns >= 1.0), "{copies:?}");
        let run_ns = watch.run_ns().expect("measures");
        assert!((1.0..1e9).contains(&run_ns), "{run_ns}");
    }
}
