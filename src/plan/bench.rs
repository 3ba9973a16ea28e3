//! Published instances for the scheduler and the placement, in their own accounting. Text in, figures out: reading files
//! and clocks is left to the caller.

use serde::Deserialize;

use super::layout::placement::{Interval, PackWork, pack_with};
use super::schedule::solver::{Effort, Entry, Known, OperationSpec, Problem, Solution, Transfer, Value, solve_from};

/// Bytes are counted in units of this where an instance is in the accounting of Checkmate.
const UNIT_BYTES: f64 = 1024.0;
/// Units of cost in a nanojoule, for instances of POET, whose costs are energies.
const PER_JOULE: f64 = 1e9;
/// Steps of work that the branch and bound may take for one packing: a second or so, where a plan, which packs many times, is
/// given less.
const PLACE_WORK: u64 = 1_000_000_000;

/// What was found for an instance at a budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The budget, in the instance's unit of memory.
    pub budget: u64,
    /// Cost of the schedule; none where no schedule was found.
    pub cost: Option<u64>,
    /// Its peak, in the instance's unit of memory; without one, the lowest that was seen.
    pub peak: u64,
    /// A lower bound on the cost of any schedule that keeps the order of first runs.
    pub bound: f64,
    /// Schedules that were looked at.
    pub evaluations: u64,
}

impl Outcome {
    /// How far the cost is above the bound, as a share.
    pub fn gap(&self) -> Option<f64> {
        self.cost.map(|cost| cost as f64 / self.bound.max(1.0) - 1.0)
    }

    fn of(solution: &Solution, plain_cost: u64, budget: u64) -> Self {
        Outcome {
            budget,
            cost: solution.entries.as_ref().map(|_| solution.cost),
            peak: solution.peak_bytes,
            bound: plain_cost as f64 + solution.bound.extra_cost,
            evaluations: solution.evaluations,
        }
    }
}

/// A training graph with measured costs (Checkmate's instances, as published with MONeT).
#[derive(Debug)]
pub struct CheckmateInstance {
    problem: Problem,
    /// Memory that is taken from any budget.
    fixed: u64,
}

#[derive(Deserialize)]
struct CheckmateFile {
    loss_node: usize,
    nodes: Vec<CheckmateNode>,
}

#[derive(Deserialize)]
struct CheckmateNode {
    deps: Vec<usize>,
    mem_bytes: f64,
    fixed_mem_bytes: f64,
    compute_ms: Vec<f64>,
}

impl CheckmateInstance {
    /// Reads an instance. Costs are in units of 10 µs, memory is in KiB, workspaces do not count.
    ///
    /// # Errors
    /// Where the text is not such an instance.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: CheckmateFile = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let count = file.nodes.len();
        let last = file.nodes.last().ok_or("it has no nodes")?;
        let fixed = (last.fixed_mem_bytes / UNIT_BYTES).round() as u64;
        let (mut operations, mut values) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (number, node) in file.nodes.iter().enumerate() {
            let inputs = distinct(&node.deps, number)?;
            let cost = node.compute_ms.first().ok_or_else(|| format!("node {number} has no cost"))? * 100.0;
            operations.push(OperationSpec {
                inputs,
                outputs: vec![number],
                cost: cost.round() as u64,
                repeatable_before: count,
                ..OperationSpec::default()
            });
            values.push(Value { bytes: (node.mem_bytes / UNIT_BYTES).round() as u64, ..Value::default() });
        }
        if file.loss_node >= count {
            return Err(format!("there is no node {}", file.loss_node));
        }
        Ok(CheckmateInstance { problem: Problem::new(&operations, values, file.loss_node), fixed })
    }

    /// A made-up training graph of about so many operations: blocks of three layers with a skip around each, whose
    /// activations shrink and whose costs grow with depth, as in image networks.
    pub fn deep(operations: usize) -> Self {
        let layers = (operations / 5).max(3);
        let (mut specs, mut values): (Vec<OperationSpec>, Vec<Value>) = (Vec::new(), Vec::new());
        let level = |layer: usize| layer * 4 / layers;
        let mut add = |inputs: Vec<usize>, bytes: u64, cost: u64| {
            let made = values.len();
            values.push(Value { bytes, ..Value::default() });
            specs.push(OperationSpec { inputs, outputs: vec![made], cost, ..OperationSpec::default() });
            made
        };
        let size = |layer: usize| 4096u64 >> level(layer);
        let cost = |layer: usize| 400 + 100 * (layer as u64 % 7) + 200 * level(layer) as u64;
        let mut x = add(Vec::new(), size(0), 10);
        let (mut saved, mut skip) = (Vec::new(), x);
        for layer in 0..layers {
            let y = add(vec![x], size(layer), cost(layer));
            let read = if layer % 3 == 2 { vec![skip, y] } else { vec![y] };
            let z = add(read, size(layer), cost(layer) / 20);
            saved.push((x, y));
            x = z;
            if layer % 3 == 2 {
                skip = z;
            }
        }
        let boundary = add(vec![x], 1, 10);
        let mut gradient = add(vec![x, boundary], size(layers - 1), 10);
        for (layer, (x, y)) in saved.into_iter().enumerate().rev() {
            let through = add(vec![y, gradient], size(layer), cost(layer) / 20);
            add(vec![x, through], 1, cost(layer));
            gradient = add(vec![through], size(layer), cost(layer));
        }
        let count = specs.len();
        specs.iter_mut().for_each(|spec| spec.repeatable_before = count);
        CheckmateInstance { problem: Problem::new(&specs, values, boundary), fixed: 0 }
    }

    /// A schedule for a share of the memory that running each node once needs.
    pub fn solve_share(&self, share: f64, work: u64) -> Outcome {
        let need = solve_from(&self.problem, u64::MAX, Effort::default(), Known::default()).peak_bytes;
        let budget = (need as f64 * share) as u64;
        let effort = Effort { search_work: work, good_enough: 0.001, ..Effort::default() };
        Outcome::of(&solve_from(&self.problem, budget, effort, Known::default()), self.plain_cost(), budget)
    }

    /// Cost of running each node once.
    pub fn plain_cost(&self) -> u64 {
        self.problem.plain_cost()
    }

    /// A schedule for a budget in GB as the instances count it, found with so much work (about nanoseconds).
    ///
    /// # Errors
    /// Where the budget is not above the memory that is always taken.
    pub fn solve(&self, budget_gb: f64, work: u64) -> Result<Outcome, String> {
        let total = (budget_gb * 1_048_576.0) as u64;
        let budget = total.checked_sub(self.fixed).ok_or_else(|| format!("{budget_gb} GB are always taken"))?;
        let effort = Effort { search_work: work, good_enough: 0.0, ..Effort::default() };
        let solution = solve_from(&self.problem, budget, effort, Known::default());
        Ok(Outcome::of(&solution, self.plain_cost(), budget))
    }
}

/// Inputs of a node, each once; all come before it.
fn distinct(inputs: &[usize], node: usize) -> Result<Vec<usize>, String> {
    let mut inputs = inputs.to_vec();
    inputs.sort_unstable();
    inputs.dedup();
    match inputs.last() {
        Some(&last) if last >= node => Err(format!("node {node} depends on node {last}, which comes later")),
        _ => Ok(inputs),
    }
}

/// A small network for devices that recompute and page (POET's instances).
#[derive(Debug)]
pub struct PoetInstance {
    nodes: Vec<PoetNode>,
}

#[derive(Deserialize)]
struct PoetFile {
    nodes: Vec<PoetNode>,
}

#[derive(Debug, Deserialize)]
struct PoetNode {
    op: String,
    backward: bool,
    flop: f64,
    out_bytes: u64,
    deps: Vec<usize>,
}

/// What computing and paging cost on a device of POET.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub struct DeviceCosts {
    flops_per_watt: Option<f64>,
    pagein_latency: f64,
    pagein_throughput: f64,
    pageout_latency: f64,
    pageout_throughput: f64,
    memory_power: f64,
}

/// Devices by name.
///
/// # Errors
/// Where the text is not a list of devices.
pub fn devices(text: &str) -> Result<Vec<(String, DeviceCosts)>, String> {
    #[derive(Deserialize)]
    struct File {
        chipsets: std::collections::BTreeMap<String, DeviceCosts>,
    }
    let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(file.chipsets.into_iter().collect())
}

impl DeviceCosts {
    /// Whether the energy of computing is known.
    pub fn is_complete(&self) -> bool {
        self.flops_per_watt.is_some()
    }
}

/// What was found with recompute alone, paging alone, and both.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Recompute alone.
    pub recompute: Outcome,
    /// Paging alone.
    pub paging: Outcome,
    /// Both.
    pub both: Outcome,
}

impl PoetInstance {
    /// Reads an instance.
    ///
    /// # Errors
    /// Where the text is not such an instance.
    pub fn parse(text: &str) -> Result<Self, String> {
        let PoetFile { nodes } = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for (number, node) in nodes.iter().enumerate() {
            distinct(&node.deps, number)?;
        }
        if nodes.is_empty() {
            return Err("it has no nodes".to_owned());
        }
        Ok(PoetInstance { nodes })
    }

    fn problem(&self, device: &DeviceCosts, recompute: bool, paging: bool) -> Problem {
        let count = self.nodes.len();
        let unit = |joules: f64| (joules * PER_JOULE).round() as u64;
        let page = |latency: f64, throughput: f64, bytes: u64| {
            unit((latency + bytes as f64 / throughput) * device.memory_power)
        };
        let mut operations = Vec::with_capacity(count);
        let mut values = Vec::with_capacity(count);
        for (number, node) in self.nodes.iter().enumerate() {
            // A sample is there once; it can be kept or paged.
            let again = recompute && node.op != "InputLayer";
            let inputs = distinct(&node.deps, number).expect("bug: an instance that was read");
            operations.push(OperationSpec {
                inputs,
                outputs: vec![number],
                cost: unit(node.flop / device.flops_per_watt.unwrap_or(f64::INFINITY)),
                repeatable_before: if again { count } else { number },
                ..OperationSpec::default()
            });
            let transfer = paging.then(|| Transfer {
                offload_cost: page(device.pageout_latency, device.pageout_throughput, node.out_bytes),
                prefetch_cost: page(device.pagein_latency, device.pagein_throughput, node.out_bytes),
                hosted: false,
            });
            values.push(Value { bytes: node.out_bytes, transfer, ..Value::default() });
        }
        let boundary = self.nodes.iter().rposition(|node| !node.backward).unwrap_or(0);
        Problem::new(&operations, values, boundary)
    }

    /// Bytes that running every node once needs.
    pub fn need_bytes(&self) -> u64 {
        let device = DeviceCosts {
            flops_per_watt: None,
            pagein_latency: 0.0,
            pagein_throughput: 1.0,
            pageout_latency: 0.0,
            pageout_throughput: 1.0,
            memory_power: 0.0,
        };
        solve_from(&self.problem(&device, false, false), u64::MAX, Effort::default(), Known::default()).peak_bytes
    }

    /// Schedules for a budget with recompute alone, paging alone, and both. Costs are nanojoules.
    pub fn compare(&self, device: &DeviceCosts, budget_bytes: u64, work: u64) -> Comparison {
        let effort = Effort { search_work: work, good_enough: 0.0, ..Effort::default() };
        let solved = |recompute: bool, paging: bool, from: &[Vec<Entry>]| {
            let problem = self.problem(device, recompute, paging);
            let known = Known { sequences: from.iter().map(Vec::as_slice).collect(), bound: None };
            let solution = solve_from(&problem, budget_bytes, effort, known);
            (Outcome::of(&solution, problem.plain_cost(), budget_bytes), solution.entries)
        };
        let (recompute, recomputed) = solved(true, false, &[]);
        let (paging, paged) = solved(false, true, &[]);
        // Each alone is a schedule for both.
        let known: Vec<_> = recomputed.into_iter().chain(paged).collect();
        let (both, _) = solved(true, true, &known);
        Comparison { recompute, paging, both }
    }
}

/// How intervals were packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Bytes of the space.
    pub bytes: u64,
    /// Most bytes needed at one time: no packing is smaller.
    pub floor_bytes: u64,
}

/// Packs rows of first time, end and bytes, into `capacity_bytes` or, where none is given, into the smallest space found.
pub fn place(rows: &[(usize, usize, u64)], capacity_bytes: Option<u64>) -> Packed {
    let intervals: Vec<_> = rows.iter().map(|&(start, end, size_bytes)| Interval { start, end, size_bytes }).collect();
    let mut changes: Vec<(usize, i128)> = Vec::new();
    for &(start, end, bytes) in rows {
        changes.extend([(start, i128::from(bytes)), (end, -i128::from(bytes))]);
    }
    // What ends comes before what starts at the same time.
    changes.sort_unstable();
    let (mut live, mut floor) = (0, 0);
    for (_, change) in changes {
        live += change;
        floor = floor.max(live);
    }
    let floor_bytes = floor as u64;
    let packing = pack_with(
        &intervals,
        1 << 60,
        capacity_bytes.unwrap_or(floor_bytes),
        PackWork { orders: PLACE_WORK, fit: PLACE_WORK },
    );
    Packed { bytes: packing.total_bytes(), floor_bytes }
}
