//! What commands cost in time, as the planner estimates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::class::is_product;
use super::regression::{Sample, least_errors};
use crate::graph::Graph;
use crate::ops::Target;
use crate::ops::stored::dispatches;
use crate::tensor::{NodeId, TensorDesc, ValueId};

/// What a node asks of a device, from which its time is predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Launches of kernels.
    pub launches: u64,
    /// Flops that the kernels spend, with tiles rounded up.
    pub flops: u64,
    /// Bytes of inputs.
    pub read_bytes: u64,
    /// Bytes of everything else that moves: outputs, what is changed in place, workspaces.
    pub written_bytes: u64,
}

impl Work {
    /// The work of a node on devices of this kind; `None` is the CPU with native code.
    pub fn of(graph: &Graph, node: NodeId, target: Option<&Target>) -> Self {
        let node = graph.node(node);
        let descs = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect::<Vec<TensorDesc>>();
        let (inputs, outputs) = (descs(&node.inputs), descs(&node.outputs));
        let cost = node.op.cost(&inputs, &outputs);
        let dispatches = target.map(|target| dispatches(&*node.op, &inputs, &outputs, target));
        let spent: u64 = dispatches.iter().flatten().map(|dispatch| dispatch.flops).sum();
        let read_bytes = inputs.iter().map(TensorDesc::size_bytes).sum::<u64>().min(cost.bytes_moved);
        Work {
            launches: dispatches.map_or(1, |dispatches| dispatches.len() as u64),
            flops: if spent == 0 { cost.flops } else { spent },
            read_bytes,
            written_bytes: cost.bytes_moved - read_bytes,
        }
    }

    fn terms(self) -> [f64; 4] {
        [self.launches, self.flops, self.read_bytes, self.written_bytes].map(|count| count as f64)
    }
}

/// Time of an op: the sum of each kind of work times its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpRates {
    /// Fixed time of a launch.
    pub launch_ns: f64,
    /// Time of a flop.
    pub flop_ns: f64,
    /// Time of a byte of the inputs.
    pub read_ns: f64,
    /// Time of a byte of all else.
    pub write_ns: f64,
}

impl OpRates {
    /// The rates that predict these times best, by relative error.
    pub fn fit(times: &[(Work, f64)]) -> Self {
        let samples: Vec<_> = times.iter().map(|(work, ns)| Sample { terms: work.terms(), value: *ns }).collect();
        let [launch_ns, flop_ns, read_ns, write_ns] = least_errors(&samples);
        OpRates { launch_ns, flop_ns, read_ns, write_ns }
    }

    /// The time of this work.
    pub fn ns(&self, work: Work) -> f64 {
        work.terms().iter().zip(self.figures()).map(|(count, (_, ns))| count * ns).sum()
    }

    /// Names and values.
    fn figures(&self) -> [(&'static str, f64); 4] {
        let OpRates { launch_ns, flop_ns, read_ns, write_ns } = *self;
        [("launch_ns", launch_ns), ("flop_ns", flop_ns), ("read_ns", read_ns), ("write_ns", write_ns)]
    }
}

/// Time of a copy between device and host: `fixed_ns + bytes · byte_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyRates {
    /// Fixed time of a copy.
    pub fixed_ns: f64,
    /// Time of a byte.
    pub byte_ns: f64,
}

impl CopyRates {
    /// The rates that predict these times (bytes, nanoseconds) best, by relative error.
    pub fn fit(times: &[(u64, f64)]) -> Self {
        let samples: Vec<_> =
            times.iter().map(|&(bytes, ns)| Sample { terms: [1.0, bytes as f64], value: ns }).collect();
        let [fixed_ns, byte_ns] = least_errors(&samples);
        CopyRates { fixed_ns, byte_ns }
    }

    /// Names and values.
    fn figures(&self) -> [(&'static str, f64); 2] {
        [("fixed_ns", self.fixed_ns), ("byte_ns", self.byte_ns)]
    }

    /// The time of a copy.
    pub fn ns(&self, size_bytes: u64) -> f64 {
        self.fixed_ns + size_bytes as f64 * self.byte_ns
    }
}

/// What running things costs on a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostModel {
    /// Which kernels the device runs; `None` is the CPU with native code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// Rates of ops by name.
    pub ops: BTreeMap<String, OpRates>,
    /// Rates of all other ops.
    pub other_ops: OpRates,
    /// What one run of a program takes besides its nodes: upload, submission, and the readback of the loss.
    pub run_ns: f64,
    /// Copies to the host.
    pub offload: CopyRates,
    /// Copies from the host.
    pub prefetch: CopyRates,
    /// Whether the device uses the host's memory, so that moving data to the host frees nothing.
    pub unified_memory: bool,
}

/// What the cost names of depthwise convolutions end in.
const DEPTHWISE: &str = ".depthwise";

/// Under which name the time of a node is known: [`Op::cost_name`](crate::ops::Op::cost_name).
pub(crate) fn cost_name(graph: &Graph, node: NodeId) -> &'static str {
    let node = graph.node(node);
    let descs = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect::<Vec<_>>();
    node.op.cost_name(&descs(&node.inputs), &descs(&node.outputs))
}

impl Default for CostModel {
    /// Those of a software device, [`DeviceClass::Software`](super::DeviceClass::Software).
    fn default() -> Self {
        serde_json::from_str(include_str!("lavapipe.json")).expect("bug: the default costs are not a cost model")
    }
}

impl CostModel {
    /// One run of a node's kernels.
    pub fn node_ns(&self, graph: &Graph, node: NodeId) -> f64 {
        self.op_rates(cost_name(graph, node)).ns(Work::of(graph, node, self.target.as_ref()))
    }

    /// One run of each node of a graph. Nodes of one op and the same shapes, of which deep models have many, take the same.
    pub(super) fn all_ns(&self, graph: &Graph) -> Vec<f64> {
        let mut known: BTreeMap<(String, Vec<&TensorDesc>), f64> = BTreeMap::new();
        let of_node = |id: NodeId| {
            let node = graph.node(id);
            if node.op.is_view() {
                return 0.0;
            }
            let descs = node.inputs.iter().chain(&node.outputs).map(|&id| &graph.value(id).desc).collect();
            *known.entry((format!("{:?}", node.op), descs)).or_insert_with(|| self.node_ns(graph, id))
        };
        graph.node_ids().map(of_node).collect()
    }

    /// The rates of an op, by the name under which its time is known: [`Op::cost_name`](crate::ops::Op::cost_name).
    pub fn op_rates(&self, op: &str) -> &OpRates {
        // Where the code of some shapes was not measured apart, it is that of the others.
        let common = || op.strip_suffix(DEPTHWISE).and_then(|op| self.ops.get(op));
        self.ops.get(op).or_else(common).unwrap_or(&self.other_ops)
    }

    /// What one run of a program takes besides its nodes and copies.
    pub fn run_ns(&self) -> f64 {
        self.run_ns
    }

    /// A copy to the host.
    pub fn offload_ns(&self, size_bytes: u64) -> f64 {
        self.offload.ns(size_bytes)
    }

    /// A copy from the host.
    pub fn prefetch_ns(&self, size_bytes: u64) -> f64 {
        self.prefetch.ns(size_bytes)
    }

    /// With the rates of ops that predict these times best: op, work and nanoseconds of each node.
    #[must_use]
    pub fn fitted(mut self, times: &[(&'static str, Work, f64)]) -> Self {
        let mut by_op: BTreeMap<&str, Vec<(Work, f64)>> = BTreeMap::new();
        for &(op, work, ns) in times {
            by_op.entry(op).or_default().push((work, ns));
        }
        let all: Vec<_> = times.iter().map(|&(_, work, ns)| (work, ns)).collect();
        self.other_ops = OpRates::fit(&all);
        self.ops = by_op.into_iter().map(|(op, times)| (op.to_owned(), OpRates::fit(&times))).collect();
        self
    }

    /// These costs at the speed of a device on which these few nodes were measured: op, work and nanoseconds of each. Launches
    /// are scaled by what nodes took that are mostly launches, the rest of matrix products and of all other ops by what larger
    /// ones took, each by the median of the ratios.
    #[must_use]
    pub fn scaled(mut self, times: &[(&'static str, Work, f64)]) -> Self {
        let parts = |op: &str, work: Work| {
            let launches = work.launches as f64 * self.op_rates(op).launch_ns;
            (launches, self.op_rates(op).ns(work) - launches)
        };
        let mut of_launches = Vec::new();
        for &(op, work, ns) in times {
            let (launches, rest) = parts(op, work);
            if launches > 2.0 * rest {
                of_launches.push(ns / (launches + rest));
            }
        }
        let launch = median(of_launches).unwrap_or(1.0);
        let rest = |products: bool| {
            let mut ratios = Vec::new();
            for &(op, work, ns) in times.iter().filter(|(op, ..)| is_product(op) == products) {
                let (launches, rest) = parts(op, work);
                if rest > 2.0 * launches {
                    ratios.push((ns - launch * launches) / rest);
                }
            }
            median(ratios)
        };
        let (products, others) = (rest(true), rest(false));
        let products = products.or(others).unwrap_or(launch);
        let others = others.unwrap_or(products);
        let scale = |rates: &mut OpRates, factor: f64| {
            rates.launch_ns *= launch;
            rates.flop_ns *= factor;
            rates.read_ns *= factor;
            rates.write_ns *= factor;
        };
        for (op, rates) in &mut self.ops {
            scale(rates, if is_product(op) { products } else { others });
        }
        scale(&mut self.other_ops, others);
        self
    }

    /// Costs on other threads of a CPU than those that they were measured on: all but launches is shared among threads. What memory's
    /// bandwidth bounds gains less from many threads than this says, which only measuring on them tells.
    #[must_use]
    pub fn on_threads(mut self, measured: usize, threads: usize) -> Self {
        let factor = measured.max(1) as f64 / threads.max(1) as f64;
        for rates in self.ops.values_mut().chain([&mut self.other_ops]) {
            rates.flop_ns *= factor;
            rates.read_ns *= factor;
            rates.write_ns *= factor;
        }
        self
    }

    /// Whether every figure is a time that a device can take: a number, not below zero, not of centuries, and not nothing for
    /// all that an op or a copy does.
    ///
    /// # Errors
    /// The name of the first that is not.
    pub fn check(&self) -> Result<(), String> {
        self.clone().repair(&CostModel::default()).into_iter().next().map_or(Ok(()), Err)
    }

    /// Puts usual costs in the place of those that no device has: of a whole op or copy where one of its figures makes no sense.
    /// Returns what was wrong, in words.
    pub fn repair(&mut self, usual: &CostModel) -> Vec<String> {
        let mut wrong = Vec::new();
        let run_ns = self.run_ns;
        wrong.extend(repair(&mut self.run_ns, usual.run_ns, "", [("run_ns", run_ns)], run_ns));
        for (op, rates) in &mut self.ops {
            let (figures, least) = (rates.figures(), rates.ns(LITTLE_WORK));
            wrong.extend(repair(rates, *usual.op_rates(op), &format!("ops.{op}."), figures, least));
        }
        let (figures, least) = (self.other_ops.figures(), self.other_ops.ns(LITTLE_WORK));
        wrong.extend(repair(&mut self.other_ops, usual.other_ops, "other_ops.", figures, least));
        for (copy, usual, name) in
            [(&mut self.offload, usual.offload, "offload."), (&mut self.prefetch, usual.prefetch, "prefetch.")]
        {
            let (figures, least) = (copy.figures(), copy.byte_ns * LITTLE_WORK.read_bytes as f64);
            wrong.extend(repair(copy, usual, name, figures, least));
        }
        wrong
    }
}

/// The middle one of ratios that a device may have; none of none.
fn median(mut ratios: Vec<f64>) -> Option<f64> {
    ratios.sort_by(f64::total_cmp);
    Some(ratios.get(ratios.len() / 2)?.clamp(MAX_RATIO.recip(), MAX_RATIO))
}

/// Between a device and what is typical of its class.
const MAX_RATIO: f64 = 1000.0;

/// Replaces costs whose figures are not all times, or which are next to nothing for a little work.
fn repair<T, const N: usize>(
    costs: &mut T,
    usual: T,
    name: &str,
    figures: [(&'static str, f64); N],
    little_work_ns: f64,
) -> Option<String> {
    let is_of_unit = |figure: &str| ["flop_ns", "read_ns", "write_ns", "byte_ns"].contains(&figure);
    let most = |figure: &str| if is_of_unit(figure) { MAX_UNIT_NS } else { MAX_LAUNCH_NS };
    let wrong = figures.into_iter().find(|(figure, value)| !(0.0..=most(figure)).contains(value));
    let wrong = match wrong {
        Some((figure, value)) => format!("{name}{figure} = {value} is not a time"),
        None if little_work_ns < LEAST_NS => {
            let figures = figures.map(|(figure, value)| format!("{name}{figure} = {value}"));
            format!("{}: less time than any device takes", figures.join(", "))
        }
        None => return None,
    };
    *costs = usual;
    Some(wrong)
}

/// A second for one launch or copy, a microsecond for one flop or byte: no device is that slow, and a step ends within centuries, which is
/// as long as nanoseconds can be counted.
const MAX_LAUNCH_NS: f64 = 1e9;
const MAX_UNIT_NS: f64 = 1e3;

/// What takes any device longer than [`LEAST_NS`]: at a thousand times the speed of today's it would be that long.
const LITTLE_WORK: Work = Work { launches: 1, flops: 1 << 20, read_bytes: 1 << 20, written_bytes: 1 << 20 };
const LEAST_NS: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::conv::conv2d::Conv2d;
    use crate::ops::elementwise::relu::Relu;
    use crate::plan::DeviceClass;

    const RATES: OpRates = OpRates { launch_ns: 40_000.0, flop_ns: 0.03, read_ns: 0.25, write_ns: 0.5 };

    fn works() -> Vec<Work> {
        let sizes = [1_000, 30_000, 1_000_000, 50_000_000];
        let work = |flops: u64, launches: u64| Work {
            launches,
            flops,
            read_bytes: flops / 7 * launches,
            written_bytes: (flops / 5).abs_diff(flops / launches / 11),
        };
        sizes.iter().flat_map(|&flops| [1, 2, 3].map(|launches| work(flops, launches))).collect()
    }

    #[test]
    fn a_few_measured_nodes_scale_all_rates() {
        let usual = CostModel::default();
        let faster = |op: &str, work: Work| {
            let rates = usual.op_rates(op);
            let rest = OpRates { launch_ns: 0.0, ..*rates }.ns(work) / if op == "relu" { 10.0 } else { 5.0 };
            work.launches as f64 * rates.launch_ns / 4.0 + rest
        };
        let small = Work { launches: 1, flops: 100, read_bytes: 400, written_bytes: 400 };
        let large = Work { launches: 1, flops: 1 << 32, read_bytes: 1 << 26, written_bytes: 1 << 26 };
        let times: Vec<_> = [("relu", small), ("matmul", small), ("relu", large), ("matmul", large)]
            .map(|(op, work)| (op, work, faster(op, work)))
            .into();
        let scaled = usual.clone().scaled(&times);
        for (op, work) in [("relu", small), ("matmul", large), ("conv2d", large), ("add", small)] {
            let ratio = usual.op_rates(op).ns(work) / scaled.op_rates(op).ns(work);
            let expected = if work == small { 4.0 } else { 5.0 };
            assert!((ratio / expected - 1.0).abs() < 0.1, "{op}: {ratio}");
        }
        let rates = scaled.op_rates("add");
        assert!((usual.op_rates("add").flop_ns / rates.flop_ns - 10.0).abs() < 0.5, "{rates:?}");
        assert_eq!(usual.clone().scaled(&[]), usual);
    }

    #[test]
    fn more_threads_share_all_but_launches() {
        let usual = CostModel::of_class(DeviceClass::Cpu);
        let large = Work { launches: 1, flops: 1 << 32, read_bytes: 1 << 26, written_bytes: 1 << 26 };
        for (threads, factor) in [(1, 2.0), (2, 1.0), (8, 0.25)] {
            let costs = usual.clone().on_threads(2, threads);
            for op in ["conv2d", "an op that nobody measured"] {
                let (before, after) = (usual.op_rates(op), costs.op_rates(op));
                let expected = factor * (before.ns(large) - before.launch_ns);
                let got = after.ns(large) - after.launch_ns;
                assert!((got / expected - 1.0).abs() < 1e-6, "{op} on {threads}: {got} instead of {expected}");
                assert_eq!(before.launch_ns, after.launch_ns);
            }
        }
    }

    #[test]
    fn a_fit_recovers_the_rates() {
        let times: Vec<_> = works().into_iter().map(|work| (work, RATES.ns(work))).collect();
        let found = OpRates::fit(&times);
        for ((name, found), (_, expected)) in found.figures().into_iter().zip(RATES.figures()) {
            assert!((found / expected - 1.0).abs() < 1e-6, "{name}: {found} instead of {expected}");
        }
        let copies = [(1 << 12, 9_024.0), (1 << 20, 270_144.0), (1 << 26, 16_785_216.0)];
        let found = CopyRates::fit(&copies);
        assert!((found.fixed_ns - 8_000.0).abs() < 1.0 && (found.byte_ns - 0.25).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn ops_have_their_own_rates_and_others_common_ones() {
        let slow = OpRates { flop_ns: 3.0, ..RATES };
        let times: Vec<_> = works()
            .into_iter()
            .flat_map(|work| [("relu", work, RATES.ns(work)), ("conv2d", work, slow.ns(work))])
            .collect();
        let mut costs = CostModel::default();
        costs = costs.fitted(&times);
        let work = works()[10];
        let time = |op: &str| costs.op_rates(op).ns(work);
        assert!((time("relu") / RATES.ns(work) - 1.0).abs() < 1e-6);
        assert!((time("conv2d") / slow.ns(work) - 1.0).abs() < 1e-6);
        let other = time("never measured");
        assert!(time("relu") * 0.999 < other && other < time("conv2d") * 1.001, "{other}");
    }

    #[test]
    fn work_counts_whole_tiles() {
        let mut graph = Graph::new();
        let input = graph.input("input", TensorDesc::f32([2, 3, 10, 10]));
        let weight = graph.parameter("weight", TensorDesc::f32([5, 3, 3, 3]));
        let conv = Conv2d { bias: false, ..Conv2d::default() };
        let output = graph.apply(conv, &[input, weight]).expect("fits");
        graph.apply(Relu, &[output]).expect("fits");
        let [conv, relu] = [0, 1].map(|node| Work::of(&graph, NodeId(node), Some(&Target::default())));
        // 64 rows for 5 channels, 128 columns for 2 × 64 pixels, 9 taps of 3 channels in vectors of 4.
        assert_eq!((conv.launches, conv.flops), (2, 2 * 64 * 128 * 9 * 4));
        assert_eq!(relu, Work { launches: 1, flops: 640, read_bytes: 2560, written_bytes: 2560 });
        let costs = CostModel::default();
        assert_eq!(costs.node_ns(&graph, NodeId(1)), costs.op_rates("relu").ns(relu));
        graph.apply(Relu, &[output]).expect("fits");
        let small = graph.input("small", TensorDesc::f32([3]));
        graph.apply(Relu, &[small]).expect("fits");
        let one_by_one: Vec<_> = graph.node_ids().map(|id| costs.node_ns(&graph, id)).collect();
        assert_eq!(costs.all_ns(&graph), one_by_one);
    }

    #[test]
    fn figures_that_are_no_times_are_found() {
        assert_eq!(CostModel::default().check(), Ok(()));
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e30] {
            let mut costs = CostModel::default();
            costs.ops.insert("relu".to_owned(), OpRates { read_ns: bad, ..RATES });
            costs.ops.insert("conv2d".to_owned(), RATES);
            assert!(costs.check().expect_err("must be refused").starts_with("ops.relu.read_ns"));
            let wrong = costs.repair(&CostModel::default());
            assert!(wrong.len() == 1 && wrong[0].starts_with("ops.relu.read_ns"), "{wrong:?}");
            assert_eq!(costs.op_rates("relu"), CostModel::default().op_rates("relu"));
            assert_eq!(*costs.op_rates("conv2d"), RATES, "what is right stays");
            assert_eq!(costs.check(), Ok(()));
            assert!(CostModel { run_ns: bad, ..CostModel::default() }.check().is_err());
            let prefetch = CopyRates { fixed_ns: bad, byte_ns: 0.0 };
            assert!(CostModel { prefetch, ..CostModel::default() }.check().is_err());
        }
        // Each figure may be 0, not all of them together, and no copy is free however long.
        let mut costs = CostModel::default();
        costs.ops.insert("relu".to_owned(), OpRates { launch_ns: 0.0, flop_ns: 0.0, read_ns: 0.1, write_ns: 0.0 });
        assert_eq!(costs.check(), Ok(()));
        costs.ops.insert("relu".to_owned(), OpRates::default());
        assert!(costs.check().expect_err("must be refused").contains("ops.relu.launch_ns = 0, ops.relu.flop_ns = 0"));
        assert!(CostModel { run_ns: 0.0, ..CostModel::default() }.check().is_err());
        let free = CopyRates { fixed_ns: 1e3, byte_ns: 0.0 };
        let mut costs = CostModel { offload: free, ..CostModel::default() };
        assert_eq!(costs.repair(&CostModel::default()).len(), 1);
        assert_eq!(costs, CostModel::default());
        // What may be the time of a launch is not that of a byte.
        let slow = CopyRates { fixed_ns: 1e8, byte_ns: 1e2 };
        assert_eq!(CostModel { prefetch: slow, ..CostModel::default() }.check(), Ok(()));
        let slower = CopyRates { byte_ns: 1e8, ..slow };
        assert!(CostModel { prefetch: slower, ..CostModel::default() }.check().is_err());
    }
}
