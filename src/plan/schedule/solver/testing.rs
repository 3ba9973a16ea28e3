//! Made-up problems for the tests of the scheduler, and what every sequence must hold.

use proptest::prelude::*;

use super::problem::{OperationSpec, Problem, Transfer, Value};
use super::search::Numbers;
use super::seeds;
use super::sequence::{Entry, Event, Simulator};
use super::solve::{Effort, least_peak};
use super::tracker::Tracker;

/// Little work, as small problems need.
pub(super) const LITTLE: Effort = Effort { search_work: 6_000_000, bound_work: 60_000, good_enough: 0.0 };

/// What a random problem is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mixture {
    pub(super) operations: usize,
    pub(super) most_bytes: u64,
    /// Whether values can move to the host, and some live there.
    pub(super) moves: bool,
    /// Whether operations change those.
    pub(super) changes: bool,
    /// Whether memory of values that can move may be reused in place.
    pub(super) moved_are_reused: bool,
    pub(super) in_place: bool,
    /// Whether operations make several values, need workspaces, and some run once only.
    pub(super) rich: bool,
}

/// Any problem of a few operations.
pub(super) fn problems() -> impl Strategy<Value = Problem> {
    (any::<u64>(), 1..24_usize, any::<[bool; 3]>()).prop_map(|(seed, operations, [moves, in_place, rich])| {
        let mixture =
            Mixture { operations, most_bytes: 100, moves, changes: true, moved_are_reused: true, in_place, rich };
        random(mixture, &mut Numbers::new(seed))
    })
}

struct Builder {
    operations: Vec<OperationSpec>,
    values: Vec<Value>,
}

/// A problem with the forward part's values read again by the backward part, more or less.
pub(super) fn random(mixture: Mixture, numbers: &mut Numbers) -> Problem {
    let count = mixture.operations;
    let mut builder = Builder { operations: Vec::new(), values: Vec::new() };
    let bytes = |numbers: &mut Numbers| 1 + numbers.below(mixture.most_bytes as usize) as u64;
    for i in 0..1 + numbers.below(2) {
        let hosted = mixture.moves && i > 0;
        let to_end = !hosted && numbers.below(6) == 0;
        let moves = hosted || (mixture.moves && !to_end && numbers.below(2) == 0);
        let transfer = moves.then(|| transfer(hosted, numbers));
        builder.values.push(Value { bytes: bytes(numbers), to_end, transfer, ..Value::default() });
    }
    for operation in 0..count {
        let known = builder.values.len();
        // Backward parts read what the forward part made last first.
        let mirrored = (2 * count).saturating_sub(2 * operation).min(known - 1);
        let mut inputs = vec![known - 1 - numbers.below(known.min(2))];
        if numbers.below(3) > 0 {
            inputs.push(if operation > count / 2 { mirrored * known / (count + 1) } else { numbers.below(known) });
        }
        if mixture.rich && numbers.below(4) == 0 {
            inputs.push(numbers.below(known));
        }
        inputs.sort_unstable();
        inputs.dedup();
        let mut spec = OperationSpec {
            cost: 1 + numbers.below(30) as u64,
            repeatable_before: count,
            workspace_bytes: if mixture.rich && numbers.below(3) == 0 { bytes(numbers) / 2 } else { 0 },
            ..OperationSpec::default()
        };
        if mixture.rich && numbers.below(8) == 0 {
            spec.repeatable_before = operation + numbers.below(count - operation);
        }
        let outputs = 1 + usize::from(mixture.rich && numbers.below(4) == 0);
        for slot in 0..outputs {
            let to_end = numbers.below(10) == 0;
            let hosted = !to_end && mixture.rich && numbers.below(12) == 0;
            let moves = mixture.moves && !to_end && numbers.below(2) == 0;
            let mut value = Value { bytes: bytes(numbers), to_end, ..Value::default() };
            value.transfer = moves.then(|| transfer(hosted, numbers));
            if hosted && moves {
                spec.repeatable_before = operation;
            }
            if slot == 0 && mixture.in_place && numbers.below(2) == 0 {
                reuse_in_place(&builder, &mut spec, &mut value, &inputs, mixture);
            }
            spec.outputs.push(builder.values.len());
            builder.values.push(value);
        }
        spec.inputs = inputs;
        let hosted = |&&v: &&usize| builder.values[v].transfer.is_some_and(|transfer| transfer.hosted);
        if let Some(&changed) = spec.inputs.iter().find(hosted)
            && mixture.changes
            && numbers.below(2) == 0
        {
            change(&mut builder, &mut spec, changed, operation);
        }
        builder.operations.push(spec);
    }
    Problem::new(&builder.operations, builder.values, count / 2)
}

fn transfer(hosted: bool, numbers: &mut Numbers) -> Transfer {
    Transfer { offload_cost: 1 + numbers.below(20) as u64, prefetch_cost: 1 + numbers.below(20) as u64, hosted }
}

/// Gives output 0 the size of inputs whose memory it can reuse.
fn reuse_in_place(builder: &Builder, spec: &mut OperationSpec, output: &mut Value, inputs: &[usize], mixture: Mixture) {
    let can = |&&v: &&usize| {
        let value = &builder.values[v];
        let moves = value.transfer.is_some_and(|transfer| transfer.hosted || !mixture.moved_are_reused);
        !value.to_end && !moves
    };
    let Some(&first) = inputs.iter().find(can) else { return };
    output.bytes = builder.values[first].bytes;
    let second = inputs.iter().filter(can).find(|&&v| v != first && builder.values[v].bytes == output.bytes);
    spec.in_place = [Some(first), second.copied()];
}

/// Has an operation change a hosted value: what touched the value before cannot run again afterwards.
fn change(builder: &mut Builder, spec: &mut OperationSpec, value: usize, operation: usize) {
    spec.changes.push(value);
    spec.repeatable_before = operation;
    for earlier in &mut builder.operations {
        if earlier.inputs.contains(&value) || earlier.outputs.contains(&value) {
            earlier.repeatable_before = earlier.repeatable_before.min(operation + 1);
        }
    }
}

/// Layers, a loss, and a backward part that reads what the layers read; `skips` layers also read earlier values.
pub(super) fn training(layers: usize, skips: usize, numbers: &mut Numbers) -> Problem {
    let count = 2 * layers + 1;
    let mut values = vec![Value { bytes: 1 + numbers.below(60) as u64, ..Value::default() }];
    let mut operations: Vec<OperationSpec> = Vec::new();
    for layer in 0..layers {
        let mut inputs = vec![layer];
        if layer > 1 && layer - 2 < skips {
            inputs.insert(0, numbers.below(layer - 1));
        }
        let cost = 1 + numbers.below(30) as u64;
        operations.push(OperationSpec { inputs, outputs: vec![layer + 1], cost, ..OperationSpec::default() });
        values.push(Value { bytes: 1 + numbers.below(60) as u64, ..Value::default() });
    }
    let mut grad = values.len();
    values.push(Value { bytes: 1, ..Value::default() });
    let inputs = vec![layers];
    operations.push(OperationSpec { inputs, outputs: vec![grad], cost: 1, ..OperationSpec::default() });
    for layer in (0..layers).rev() {
        let forward = &operations[layer];
        let (mut inputs, cost) = (forward.inputs.clone(), forward.cost * 2);
        inputs.push(grad);
        // Either way of writing a derivative: some need the output too.
        if numbers.below(4) == 0 {
            inputs.push(layer + 1);
        }
        grad = values.len();
        values.push(Value { bytes: values[layer].bytes, to_end: layer == 0, ..Value::default() });
        operations.push(OperationSpec { inputs, outputs: vec![grad], cost, ..OperationSpec::default() });
    }
    operations.iter_mut().for_each(|operation| operation.repeatable_before = count);
    Problem::new(&operations, values, layers)
}

/// Checks that a sequence contains every first run, replays only what may run again, and finds every operand in memory.
pub(super) fn check(problem: &Problem, entries: &[Entry]) -> Result<(), String> {
    if !entries.windows(2).all(|pair| pair[0] < pair[1]) {
        return Err("not in order".to_owned());
    }
    let firsts = entries.iter().filter(|entry| entry.is_first()).count();
    if firsts != problem.len() {
        return Err(format!("{firsts} of {} operations run", problem.len()));
    }
    let hosted = |value: &Value| value.transfer.is_some_and(|transfer| transfer.hosted);
    let mut made: Vec<bool> = problem.values().iter().map(|value| value.producer.is_none()).collect();
    let mut there: Vec<bool> =
        problem.values().iter().map(|value| value.producer.is_none() && !hosted(value)).collect();
    for &entry in entries {
        match entry.event() {
            Event::Run(operation) => {
                if !entry.is_first() && !problem.is_repeatable(operation, entry.stage()) {
                    return Err(format!("{operation} runs again before {}", entry.stage()));
                }
                if let Some(missing) = problem.inputs(operation).iter().find(|&&input| !there[input as usize]) {
                    return Err(format!("{missing} is missing at {operation}"));
                }
                for &output in problem.outputs(operation) {
                    (made[output as usize], there[output as usize]) = (true, true);
                }
            }
            Event::Fetch(value) => {
                if problem.values()[value].transfer.is_none() || !made[value] {
                    return Err(format!("{value} cannot be fetched before {}", entry.stage()));
                }
                there[value] = true;
            }
        }
    }
    Ok(())
}

/// The peak of the sequence that runs everything once, and the most that one operation needs for itself.
pub(super) fn extremes(problem: &Problem) -> (u64, u64) {
    let plain = Simulator::new(problem).run(&seeds::plain(problem), 0).peak_bytes;
    let upload: u64 = problem
        .values()
        .iter()
        .filter(|value| value.producer.is_none() && value.transfer.is_none_or(|t| !t.hosted))
        .map(|value| value.bytes)
        .sum();
    let floor = (0..problem.len()).map(|operation| problem.operand_bytes(operation)).max().unwrap_or(0);
    (plain, floor.max(upload))
}

/// An entry for a random stage: a run that may be there, or a fetch.
fn extra(problem: &Problem, numbers: &mut Numbers) -> Option<Entry> {
    let stage = numbers.below(problem.len());
    if numbers.below(2) == 0 {
        let operation = numbers.below(problem.len());
        return problem.is_repeatable(operation, stage).then(|| Entry::run(stage, operation));
    }
    let value = numbers.below(problem.values().len());
    let described = problem.values()[value];
    let made = described.producer.is_none_or(|producer| (producer as usize) < stage);
    (made && described.transfer.is_some()).then(|| Entry::fetch(stage, value, described.producer))
}

/// Adds a run or a fetch to a sequence that something there needs, or takes one out.
pub(super) fn change_one(problem: &Problem, tracker: &mut Tracker<'_>, numbers: &mut Numbers) {
    if numbers.below(3) > 0 {
        let Some(entry) = extra(problem, numbers) else { return };
        if tracker.insert(entry) && !tracker.is_needed(entry) {
            tracker.remove(entry);
        }
    } else {
        let entry = tracker.entries()[numbers.below(tracker.entries().len())];
        if !entry.is_first() && tracker.is_removable(entry) {
            tracker.remove(entry);
        }
    }
}

/// Sequences of a problem, each with its cost and peak: the plain one, some by luck, and what is found for less memory.
pub(crate) fn sequences(problem: &Problem, seed: u64) -> Vec<(Vec<Entry>, u64, u64)> {
    let mut numbers = Numbers::new(seed);
    let base = seeds::plain(problem);
    let mut found = vec![base.clone()];
    if problem.len() > 0 {
        let mut tracker = Tracker::new(problem, &base);
        for _ in 0..4 {
            (0..2 * problem.len()).for_each(|_| change_one(problem, &mut tracker, &mut numbers));
            found.push(tracker.entries().to_vec());
        }
        found.push(least_peak(problem, LITTLE).0);
    }
    let mut simulator = Simulator::new(problem);
    let figures = |entries: Vec<Entry>| {
        let outcome = simulator.run(&entries, 0);
        (entries, outcome.cost, outcome.peak_bytes)
    };
    found.into_iter().map(figures).collect()
}
