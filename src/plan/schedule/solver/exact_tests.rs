//! Optima of small problems, found in two ways that share nothing with the search: by dynamic programming over what is
//! in memory, and as a mixed-integer program as in Checkmate (Jain et al., 2020), with copies to the host as in POET
//! (Patil et al., 2022).

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Variable};

use super::bound::certificate;
use super::problem::{OperationSpec, Problem, Transfer, Value};
use super::search::Numbers;
use super::sequence::{Entry, Event, Simulator};
use super::solve::{least_peak, solve};
use super::testing::{LITTLE, Mixture, check, extremes, random, training};

const NEVER: u32 = u32::MAX / 2;
/// Bits of a state, at most.
const STATE_BITS: usize = 16;

/// All entries that a sequence may have, in order.
fn slots(problem: &Problem) -> Vec<Entry> {
    let mut slots = Vec::new();
    for stage in 0..problem.len() {
        let runs = (0..=stage).filter(|&o| o == stage || problem.is_repeatable(o, stage));
        slots.extend(runs.map(|operation| Entry::run(stage, operation)));
        for (v, value) in problem.values().iter().enumerate() {
            let made = value.producer.is_none_or(|producer| (producer as usize) < stage);
            if made && value.transfer.is_some() {
                slots.push(Entry::fetch(stage, v, value.producer));
            }
        }
    }
    slots.sort_unstable();
    slots
}

fn is_hosted(problem: &Problem, value: usize) -> bool {
    problem.values()[value].transfer.is_some_and(|transfer| transfer.hosted)
}

/// Least costs by what is in memory, and of which values the host has a copy that is up to date.
struct States<'a> {
    problem: &'a Problem,
    budget_bytes: u64,
    /// Values that can move: the host's copy of number `k` is bit `values + k`.
    movable: Vec<usize>,
    /// Bytes of each set of values.
    bytes: Vec<u64>,
    costs: Vec<u32>,
}

impl<'a> States<'a> {
    /// None where there are too many states.
    fn new(problem: &'a Problem, budget_bytes: u64) -> Option<Self> {
        let values = problem.values();
        let movable: Vec<_> = (0..values.len()).filter(|&v| values[v].transfer.is_some()).collect();
        if values.len() + movable.len() > STATE_BITS {
            return None;
        }
        let of = |set: usize| (0..values.len()).filter(|v| set >> v & 1 == 1).map(|v| values[v].bytes).sum();
        let bytes = (0..1 << values.len()).map(of).collect();
        let costs = vec![NEVER; 1 << (values.len() + movable.len())];
        Some(States { problem, budget_bytes, movable, bytes, costs })
    }

    fn values(&self) -> usize {
        self.problem.values().len()
    }

    fn copy_bit(&self, value: usize) -> usize {
        let number = self.movable.iter().position(|&v| v == value).expect("it moves");
        1 << (self.values() + number)
    }

    /// The costs where values may be dropped.
    fn dropped(&self) -> Vec<u32> {
        let mut costs = self.costs.clone();
        for v in 0..self.values() {
            for state in (0..costs.len()).filter(|state| state >> v & 1 == 0) {
                costs[state] = costs[state].min(costs[state | 1 << v]);
            }
        }
        costs
    }

    fn run(&mut self, stage: usize, operation: usize) {
        let problem = self.problem;
        let set = |ids: &[u32]| ids.iter().fold(0, |set, &id| set | 1 << id);
        let (inputs, outputs) = (set(problem.inputs(operation)), set(problem.outputs(operation)));
        let shared = problem.outputs(operation).first().map_or(0, |&output| problem.values()[output as usize].bytes);
        let in_place = problem
            .in_place(operation)
            .map_or(0, |(a, b)| [a, b].into_iter().filter(|&v| v != u32::MAX).fold(0, |set, v| set | 1 << v));
        let changes = |&&v: &&usize| problem.changers(v).contains(&(operation as u32));
        let outdated = self.movable.iter().filter(changes).fold(0, |bits, &v| bits | self.copy_bit(v));
        let dropped = self.dropped();
        let all = (1 << self.values()) - 1;
        let mut costs = if stage == operation { vec![NEVER; dropped.len()] } else { self.costs.clone() };
        for (state, &cost) in dropped.iter().enumerate() {
            // What is in memory without outputs: inputs, and what stays.
            if state & outputs != 0 || state & inputs != inputs || cost == NEVER {
                continue;
            }
            let cost = cost + problem.cost(operation) as u32;
            // Any inputs may end here, and any outputs may stay.
            let free = inputs | outputs;
            let mut part = free;
            loop {
                let after = state & !free | part;
                let ended = in_place & !part != 0;
                let bytes = self.bytes[(state | outputs) & all] + problem.workspace_bytes(operation)
                    - if ended { shared } else { 0 };
                if bytes <= self.budget_bytes {
                    let after = after & !outdated;
                    costs[after] = costs[after].min(cost);
                }
                if part == 0 {
                    break;
                }
                part = (part - 1) & free;
            }
        }
        self.costs = costs;
    }

    fn fetch(&mut self, value: usize) {
        let transfer = self.problem.values()[value].transfer.expect("it moves");
        let (copy, all) = (self.copy_bit(value), (1 << self.values()) - 1);
        for (state, cost) in self.dropped().into_iter().enumerate() {
            if state >> value & 1 == 1 || cost == NEVER || self.bytes[(state | 1 << value) & all] > self.budget_bytes {
                continue;
            }
            let offload_cost = if state & copy == 0 { transfer.offload_cost } else { 0 };
            let after = state | 1 << value | copy;
            self.costs[after] = self.costs[after].min(cost + (transfer.prefetch_cost + offload_cost) as u32);
        }
    }

    /// The least cost of any sequence.
    fn optimum(mut self) -> Option<u64> {
        let problem = self.problem;
        let inputs = (0..self.values()).filter(|&v| problem.values()[v].producer.is_none());
        let (hosted, uploaded): (Vec<_>, Vec<_>) = inputs.partition(|&v| is_hosted(problem, v));
        let start = uploaded.iter().fold(0, |set, v| set | 1 << v);
        let copies = hosted.iter().fold(0, |set, &v| set | self.copy_bit(v));
        if self.bytes[start] > self.budget_bytes {
            return None;
        }
        self.costs[start | copies] = 0;
        for slot in slots(problem) {
            match slot.event() {
                Event::Run(operation) => self.run(slot.stage(), operation),
                Event::Fetch(value) => self.fetch(value),
            }
        }
        let to_end = (0..self.values()).filter(|&v| problem.values()[v].to_end).fold(0, |set, v| set | 1 << v);
        let returned = |state: usize| {
            let stale = self.movable.iter().filter(|&&v| is_hosted(problem, v) && state & self.copy_bit(v) == 0);
            stale.map(|&v| problem.values()[v].transfer.map_or(0, |transfer| transfer.offload_cost)).sum::<u64>()
        };
        let ends = self.costs.iter().enumerate().filter(|&(state, &cost)| state & to_end == to_end && cost < NEVER);
        ends.map(|(state, &cost)| u64::from(cost) + returned(state)).min()
    }
}

/// The least cost of any sequence, by dynamic programming.
pub(super) fn optimum(problem: &Problem, budget_bytes: u64) -> Option<u64> {
    States::new(problem, budget_bytes).expect("a small problem").optimum()
}

/// A mixed-integer program: which entries of all slots are in the sequence, and what is in memory after each.
struct Program<'a> {
    problem: &'a Problem,
    program: microlp::Problem,
    /// For each value, whether it is in memory now; none before it is made.
    held: Vec<Option<Variable>>,
    /// Whether each entry is in the sequence.
    chosen: Vec<(Entry, Variable)>,
    /// Whether the value is ever copied to the host.
    copied: Vec<Option<Variable>>,
    budget_bytes: u64,
}

impl<'a> Program<'a> {
    fn new(problem: &'a Problem, budget_bytes: u64) -> Self {
        let mut program = microlp::Problem::new(OptimizationDirection::Minimize);
        let held = problem.values().iter().enumerate().map(|(v, value)| {
            let there = value.producer.is_none() && !is_hosted(problem, v);
            there.then(|| program.add_var(0.0, (0.0, 1.0)))
        });
        let held = held.collect();
        let copied = problem.values().iter().map(|value| {
            let transfer = value.transfer.filter(|transfer| !transfer.hosted)?;
            Some(program.add_var(transfer.offload_cost as f64, (0.0, 1.0)))
        });
        let copied = copied.collect();
        Program { problem, program, held, chosen: Vec::new(), copied, budget_bytes }
    }

    /// A variable for whether a value is in memory, at most where any of these is.
    fn hold(&mut self, value: usize, sources: &[Option<Variable>]) {
        let held = self.program.add_var(0.0, (0.0, 1.0));
        let mut terms = LinearExpr::empty();
        terms.add(held, 1.0);
        sources.iter().flatten().for_each(|&source| terms.add(source, -1.0));
        self.program.add_constraint(terms, ComparisonOp::Le, 0.0);
        self.held[value] = Some(held);
    }

    /// What is in memory besides these values.
    fn others(&self, values: &[u32]) -> LinearExpr {
        let mut bytes = LinearExpr::empty();
        for (v, held) in self.held.iter().enumerate().filter(|&(v, _)| !values.contains(&(v as u32))) {
            held.iter().for_each(|&held| bytes.add(held, self.problem.values()[v].bytes as f64));
        }
        bytes
    }

    fn run(&mut self, stage: usize, operation: usize) {
        let problem = self.problem;
        let cost = problem.cost(operation) as f64;
        let runs = self.program.add_integer_var(cost, if operation == stage { (1, 1) } else { (0, 1) });
        self.chosen.push((Entry::run(stage, operation), runs));
        let (inputs, outputs) = (problem.inputs(operation), problem.outputs(operation));
        let operands: Vec<u32> = inputs.iter().chain(outputs).copied().collect();
        let operand_bytes: u64 = operands.iter().map(|&v| problem.values()[v as usize].bytes).sum();
        let mut bytes = self.others(&operands);
        bytes.add(runs, (operand_bytes + problem.workspace_bytes(operation)) as f64);
        for &input in inputs {
            let mut terms = LinearExpr::empty();
            terms.add(runs, 1.0);
            self.held[input as usize].iter().for_each(|&held| terms.add(held, -1.0));
            self.program.add_constraint(terms, ComparisonOp::Le, 0.0);
            self.hold(input as usize, &[self.held[input as usize]]);
        }
        for &output in outputs {
            self.hold(output as usize, &[self.held[output as usize], Some(runs)]);
        }
        if let Some((a, b)) = problem.in_place(operation) {
            let shares = self.program.add_var(0.0, (0.0, 1.0));
            self.program.add_constraint([(shares, 1.0), (runs, -1.0)], ComparisonOp::Le, 0.0);
            let mut terms = LinearExpr::empty();
            terms.add(shares, 1.0);
            let candidates: Vec<u32> = [a, b].into_iter().filter(|&v| v != u32::MAX).collect();
            candidates.iter().filter_map(|&v| self.held[v as usize]).for_each(|held| terms.add(held, 1.0));
            self.program.add_constraint(terms, ComparisonOp::Le, candidates.len() as f64);
            bytes.add(shares, -(problem.values()[outputs[0] as usize].bytes as f64));
        }
        self.program.add_constraint(bytes, ComparisonOp::Le, self.budget_bytes as f64);
    }

    fn fetch(&mut self, entry: Entry, value: usize) {
        let described = self.problem.values()[value];
        let cost = described.transfer.map_or(0, |transfer| transfer.prefetch_cost) as f64;
        let fetches = self.program.add_binary_var(cost);
        self.chosen.push((entry, fetches));
        if let Some(copied) = self.copied[value] {
            self.program.add_constraint([(fetches, 1.0), (copied, -1.0)], ComparisonOp::Le, 0.0);
        }
        let mut bytes = self.others(&[value as u32]);
        bytes.add(fetches, described.bytes as f64);
        self.program.add_constraint(bytes, ComparisonOp::Le, self.budget_bytes as f64);
        self.hold(value, &[self.held[value], Some(fetches)]);
    }

    /// A sequence of least cost, and the cost. Operations must not change values.
    fn optimum(mut self) -> Option<(Vec<Entry>, u64)> {
        let problem = self.problem;
        let uploaded = self.held.iter().enumerate().filter(|(_, held)| held.is_some());
        let upload_bytes: u64 = uploaded.map(|(v, _)| problem.values()[v].bytes).sum();
        if upload_bytes > self.budget_bytes {
            return None;
        }
        for slot in slots(problem) {
            match slot.event() {
                Event::Run(operation) => self.run(slot.stage(), operation),
                Event::Fetch(value) => self.fetch(slot, value),
            }
        }
        for (v, held) in self.held.iter().enumerate().filter(|&(v, _)| problem.values()[v].to_end) {
            let held = held.unwrap_or_else(|| panic!("{v} is never made"));
            self.program.add_constraint([(held, 1.0)], ComparisonOp::Ge, 1.0);
        }
        match self.program.solve() {
            Ok(outcome) => {
                let solution = outcome.into_solution().expect("an optimum");
                let chosen = self.chosen.iter().filter(|&&(_, variable)| solution.var_value(variable) > 0.5);
                let cost = solution.objective().round() as u64 + problem.return_cost();
                Some((chosen.map(|&(entry, _)| entry).collect(), cost))
            }
            Err(microlp::Error::Infeasible) => None,
            Err(error) => panic!("{error}"),
        }
    }
}

/// How often the search is as good as it can be.
#[derive(Debug, Default)]
struct Tally {
    feasible: usize,
    found: usize,
    optimal: usize,
    /// Budgets for which the search for a low peak knows whether they can be kept.
    least_known: usize,
    budgets: usize,
    /// Cost above the optimum, as a share of it: summed, and at worst.
    above: f64,
    worst: f64,
}

impl Tally {
    /// Compares all that is known of a problem at several budgets.
    fn add(&mut self, problem: &Problem, with_program: bool) {
        let (plain_bytes, floor_bytes) = extremes(problem);
        let (_, least_bytes) = least_peak(problem, LITTLE);
        for share in 0..5 {
            let budget_bytes = floor_bytes + (plain_bytes - floor_bytes) * share / 5;
            let Some(states) = States::new(problem, budget_bytes) else { return };
            let optimum = states.optimum();
            if with_program {
                let program = Program::new(problem, budget_bytes).optimum();
                assert_eq!(program.as_ref().map(|&(_, cost)| cost), optimum, "of {budget_bytes} in {problem:?}");
                if let Some((entries, cost)) = program {
                    // Both count memory as the simulator does.
                    let outcome = Simulator::new(problem).run(&entries, budget_bytes);
                    assert_eq!((outcome.cost, outcome.excess_bytes), (cost, 0), "of {entries:?} in {problem:?}");
                    assert_eq!(check(problem, &entries), Ok(()));
                }
            }
            self.compare(problem, budget_bytes, optimum);
            assert!(optimum.is_some() || least_bytes > budget_bytes);
            self.budgets += 1;
            self.least_known += usize::from(optimum.is_some() == (least_bytes <= budget_bytes));
        }
    }

    fn compare(&mut self, problem: &Problem, budget_bytes: u64, optimum: Option<u64>) {
        let solution = solve(problem, budget_bytes, LITTLE);
        let Some(optimum) = optimum else {
            assert!(solution.entries.is_none(), "{budget_bytes} in {problem:?}");
            return;
        };
        let bound = solution.bound.extra_cost.max(certificate(problem, budget_bytes, LITTLE.bound_work).extra_cost);
        let lower = problem.plain_cost() as f64 + bound;
        assert!(lower <= optimum as f64 * (1.0 + 1e-9), "{lower} > {optimum} at {budget_bytes} in {problem:?}");
        self.feasible += 1;
        if solution.entries.is_some() {
            assert!(optimum <= solution.cost);
            self.found += 1;
            self.optimal += usize::from(optimum == solution.cost);
            let above = solution.cost as f64 / optimum as f64 - 1.0;
            self.above += above;
            self.worst = self.worst.max(above);
        }
    }
}

#[test]
fn random_problems_are_mostly_solved_to_the_optimum() {
    let mut numbers = Numbers::new(1);
    let mut tally = Tally::default();
    for number in 0..150 {
        let operations = 5 + number % 5;
        let mixture = Mixture {
            operations,
            most_bytes: 100,
            moves: number % 3 == 2,
            changes: number % 7 > 4,
            moved_are_reused: false,
            in_place: number % 2 == 0,
            rich: number % 4 > 1,
        };
        tally.add(&random(mixture, &mut numbers), !mixture.changes);
    }
    println!("{tally:?}");
    let Tally { feasible, found, optimal, least_known, budgets, above, worst } = tally;
    assert!(found * 100 >= feasible * 97 && optimal * 100 >= feasible * 94 && least_known * 100 >= budgets * 98);
    assert!(above < found as f64 * 0.005 && worst < 0.25);
}

#[test]
fn small_trainings_are_solved_to_the_optimum_or_nearly() {
    let mut numbers = Numbers::new(2);
    let mut tally = Tally::default();
    for number in 0..60 {
        let layers = 3 + number % 4;
        tally.add(&training(layers, number % 3, &mut numbers), layers <= 4);
    }
    println!("{tally:?}");
    let Tally { feasible, found, optimal, least_known, budgets, above, worst } = tally;
    assert!(found == feasible && least_known == budgets && optimal * 100 >= feasible * 97);
    assert!(above < found as f64 * 0.001 && worst < 0.03);
}

#[test]
fn a_value_that_leaves_twice_is_copied_to_the_host_once() {
    // Made at first and read twice, each time after an operation that leaves no memory for it.
    let transfer = Some(Transfer { offload_cost: 100, prefetch_cost: 1, hosted: false });
    let small = Value { bytes: 1, ..Value::default() };
    let values = vec![Value { bytes: 50, transfer, ..Value::default() }, small, small, small, small];
    let operation = |inputs: Vec<usize>, output: usize, workspace_bytes: u64| OperationSpec {
        inputs,
        outputs: vec![output],
        cost: 10,
        workspace_bytes,
        ..OperationSpec::default()
    };
    let operations = [
        operation(vec![], 0, 0),
        operation(vec![], 1, 90),
        operation(vec![0, 1], 2, 0),
        operation(vec![2], 3, 90),
        operation(vec![0, 3], 4, 0),
    ];
    let problem = Problem::new(&operations, values, 2);
    let mut tally = Tally::default();
    tally.compare(&problem, 100, optimum(&problem, 100));
    assert_eq!((tally.optimal, optimum(&problem, 100)), (1, Some(50 + 102)));
}
