//! Chains whose best schedules are known: of equal layers (Griewank and Walther, "Algorithm 799: revolve", 2000), and
//! unrolled recurrent nets (Gruslys et al., "Memory-efficient backpropagation through time", 2016).

use super::exact_tests::optimum;
use super::problem::{OperationSpec, Problem, Value};
use super::sequence::{Event, Simulator};
use super::solve::{Effort, solve};
use super::testing::check;

/// Bytes of a state, and of all that is small.
const STATE_BYTES: u64 = 1000;
const SMALL_BYTES: u64 = 10;

fn binomial(n: u64, k: u64) -> u64 {
    (0..k).fold(1, |product, i| product * (n - i) / (i + 1))
}

/// Runs of layers that `length` layers take at least where `slots` states can be kept.
fn fewest_runs(length: u64, slots: u64) -> u64 {
    let repeats = (0..).find(|&r| binomial(slots + r, slots) >= length).expect("some are enough");
    if repeats == 0 { 0 } else { repeats * length - binomial(slots + repeats, repeats - 1) }
}

/// Equal layers in place, a loss, and a backward part that reads what the layers read.
fn uniform(length: usize) -> Problem {
    let small = Value { bytes: 1, ..Value::default() };
    let mut values = vec![Value { bytes: STATE_BYTES, ..Value::default() }; length];
    let count = 2 * length;
    let operation = |inputs: Vec<usize>, output: usize| OperationSpec {
        inputs,
        outputs: vec![output],
        cost: 100,
        repeatable_before: count,
        ..OperationSpec::default()
    };
    let layer = |i: usize| OperationSpec { in_place: [Some(i - 1), None], ..operation(vec![i - 1], i) };
    let mut operations: Vec<_> = (1..length).map(layer).collect();
    operations.push(operation(vec![length - 1], length));
    values.push(small);
    for i in (0..length).rev() {
        operations.push(operation(vec![i, values.len() - 1], values.len()));
        values.push(small);
    }
    Problem::new(&operations, values, length - 1)
}

/// Runs of the first `forward` operations in a solution.
fn runs(problem: &Problem, budget_bytes: u64, forward: usize, effort: Effort) -> u64 {
    let solution = solve(problem, budget_bytes, effort);
    let entries = solution.entries.unwrap_or_else(|| panic!("{} do not fit", solution.peak_bytes));
    assert_eq!(check(problem, &entries), Ok(()));
    assert!(Simulator::new(problem).run(&entries, budget_bytes).peak_bytes <= budget_bytes);
    entries.iter().filter(|entry| matches!(entry.event(), Event::Run(operation) if operation < forward)).count() as u64
}

/// Too little work for the local search to find what it does not start from.
fn seeds_only(problem: &Problem) -> Effort {
    Effort { search_work: 100_000, bound_work: 4 * problem.len(), good_enough: 0.0 }
}

#[test]
fn equal_layers_run_as_often_as_the_binomial_formula_says() {
    assert_eq!((fewest_runs(10, 3), fewest_runs(1000, 50)), (15, 1948));
    let mut cases = Vec::new();
    for length in 4..40 {
        cases.extend((2..length.min(12)).map(|slots| (length, slots)));
    }
    cases.extend([(60, 3), (100, 5), (100, 10), (200, 4), (200, 10), (300, 7), (500, 20), (1000, 50)]);
    for (length, slots) in cases {
        let problem = uniform(length as usize);
        // The slots, and the state that is worked on.
        let budget_bytes = (slots + 1) * STATE_BYTES + SMALL_BYTES;
        let found = runs(&problem, budget_bytes, length as usize - 1, seeds_only(&problem));
        assert_eq!(found, fewest_runs(length, slots), "{length} layers, {slots} slots");
    }
}

/// An unrolled recurrent net: each step makes a state and what its backward part reads, `inner` times as large.
fn unrolled(steps: usize, inner: u64) -> Problem {
    let small = Value { bytes: 1, ..Value::default() };
    let state = Value { bytes: STATE_BYTES, ..Value::default() };
    let count = 2 * steps + 1;
    let operation = |inputs: Vec<usize>, outputs: Vec<usize>| OperationSpec {
        inputs,
        outputs,
        cost: 100,
        repeatable_before: count,
        ..OperationSpec::default()
    };
    // The first state, then state and inner values of each step.
    let mut values = vec![state];
    let mut operations = Vec::new();
    for step in 0..steps {
        let before = if step == 0 { 0 } else { 2 * step - 1 };
        operations.push(operation(vec![before], vec![2 * step + 1, 2 * step + 2]));
        values.extend([state, Value { bytes: inner * STATE_BYTES, ..Value::default() }]);
    }
    operations.push(operation(vec![2 * steps - 1], vec![values.len()]));
    values.push(small);
    for step in (0..steps).rev() {
        operations.push(operation(vec![2 * step + 2, values.len() - 1], vec![values.len()]));
        values.push(small);
    }
    Problem::new(&operations, values, steps)
}

/// Room for `slots` states besides what one step works on: the states before and after it, and its inner values.
fn unrolled_budget(slots: u64, inner: u64) -> u64 {
    (slots + 2 + inner) * STATE_BYTES + SMALL_BYTES
}

/// Fewest forward steps where only states are kept, for each number of steps and of slots (the paper's section 3.1).
fn states_kept(steps: usize, slots: usize) -> Vec<Vec<u64>> {
    let mut fewest = vec![vec![0; slots + 1]; steps + 1];
    for t in 1..=steps as u64 {
        for m in 1..=slots as u64 {
            let split = |y: u64| y + fewest[(t - y) as usize][m as usize - 1] + fewest[y as usize][m as usize];
            fewest[t as usize][m as usize] = match m {
                1 => t * (t + 1) / 2,
                _ if m >= t => 2 * t - 1,
                _ => (1..t).map(split).min().unwrap_or(t),
            };
        }
    }
    fewest
}

/// The same where inner values may be kept too (section 3.3), which then are not recomputed.
fn anything_kept(steps: usize, slots: usize, inner: usize) -> Vec<Vec<u64>> {
    const NEVER: u64 = u64::MAX / 4;
    let mut fewest = vec![vec![0; slots + 1]; steps + 1];
    for t in 1..=steps {
        for m in 0..=slots {
            let mut least = if t == 1 { 1 } else { NEVER };
            for y in 1..t {
                if m >= 1 {
                    least = least.min(y as u64 + fewest[t - y][m - 1] + fewest[y][m]);
                }
                // The state before the first step ends where that step's inner values stay.
                let taken = if y == 1 { inner } else { inner + 1 };
                if m >= taken {
                    least = least.min(y as u64 + fewest[t - y][m - taken] + fewest[y - 1][m]);
                }
            }
            fewest[t][m] = least.min(NEVER);
        }
    }
    fewest
}

#[test]
fn recurrent_nets_run_as_often_as_the_best_memorization_of_states_and_inner_values() {
    let mut cases = vec![(100, 5, 3), (100, 12, 1), (100, 20, 4), (300, 20, 4)];
    for steps in (3..=10).chain([16, 27]) {
        cases.extend((1..=steps.min(7)).flat_map(|slots| [1, 2, 4].map(|inner| (steps, slots, inner))));
    }
    for (steps, slots, inner) in cases {
        let expected = anything_kept(steps, slots, inner)[steps][slots];
        let problem = unrolled(steps, inner as u64);
        let budget_bytes = unrolled_budget(slots as u64, inner as u64);
        let found = runs(&problem, budget_bytes, steps, seeds_only(&problem));
        assert_eq!(found, expected, "{steps} steps, {slots} slots, inner values of {inner}");
        if steps <= 4 {
            let optimum = optimum(&problem, budget_bytes).expect("it fits");
            assert_eq!(problem.plain_cost() + 100 * (found - steps as u64), optimum);
        }
    }
}

#[test]
fn where_inner_values_are_too_large_states_are_kept_as_published() {
    // The paper's boundary conditions, and its recurrence by hand: one of two slots, three steps.
    let table = states_kept(30, 20);
    assert_eq!((table[5][1], table[5][5], table[3][2]), (15, 9, 5));
    for steps in [2, 3, 5, 8, 13, 30] {
        let problem = unrolled(steps, 40);
        for slots in (1..=steps.min(20)).step_by(1 + steps / 10) {
            let found = runs(&problem, unrolled_budget(slots as u64, 40), steps, seeds_only(&problem));
            assert_eq!(found, table[steps][slots], "{steps} steps, {slots} slots");
        }
    }
}
