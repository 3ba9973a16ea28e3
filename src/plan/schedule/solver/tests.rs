//! Properties that hold for any problem.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::bound::{LowerBound, certificate};
use super::problem::Problem;
use super::search::Numbers;
use super::seeds;
use super::sequence::{Entry, Event, Simulator};
use super::solve::{Known, least_peak, solve, solve_from};
use super::testing::{LITTLE, change_one, check, extremes, problems};
use super::tracker::Tracker;

fn compare(problem: &Problem, tracker: &Tracker<'_>, budget_bytes: u64) -> Result<(), TestCaseError> {
    let mut simulator = Simulator::new(problem);
    let outcome = simulator.run(tracker.entries(), budget_bytes);
    prop_assert_eq!(tracker.memory(), &simulator.memory[..], "of {:?}", tracker.entries());
    prop_assert_eq!(tracker.cost(), outcome.cost);
    prop_assert_eq!(tracker.peak_bytes(), outcome.peak_bytes);
    prop_assert_eq!(tracker.excess_bytes(budget_bytes), outcome.excess_bytes);
    check(problem, tracker.entries()).map_err(TestCaseError::fail)
}

/// Changes a sequence by luck, comparing all the way.
fn walk(problem: &Problem, seed: u64) -> Result<(), TestCaseError> {
    let mut numbers = Numbers::new(seed);
    let base = seeds::plain(problem);
    let mut tracker = Tracker::new(problem, &base);
    let budget_bytes = extremes(problem).0 * 2 / 3;
    compare(problem, &tracker, budget_bytes)?;
    for _ in 0..40 {
        let before = tracker.entries().to_vec();
        for _ in 0..1 + numbers.below(3) {
            change_one(problem, &mut tracker, &mut numbers);
            compare(problem, &tracker, budget_bytes)?;
        }
        if numbers.below(2) == 0 {
            tracker.undo();
            prop_assert_eq!(tracker.entries(), &before[..]);
            compare(problem, &tracker, budget_bytes)?;
        } else {
            tracker.commit();
        }
    }
    // Followed from the start, it is the same.
    let again = Tracker::new(problem, tracker.entries());
    prop_assert_eq!(again.memory(), tracker.memory());
    prop_assert_eq!(again.cost(), tracker.cost());
    Ok(())
}

fn assert_solved(problem: &Problem, share: u64) -> Result<(), TestCaseError> {
    let (plain_bytes, floor_bytes) = extremes(problem);
    let (least, least_bytes) = least_peak(problem, LITTLE);
    check(problem, &least).map_err(TestCaseError::fail)?;
    let mut simulator = Simulator::new(problem);
    prop_assert_eq!(simulator.run(&least, 0).peak_bytes, least_bytes);
    prop_assert!(floor_bytes <= least_bytes && least_bytes <= plain_bytes);
    prop_assert_eq!(&least_peak(problem, LITTLE), &(least.clone(), least_bytes));

    let budget_bytes = least_bytes + (plain_bytes - least_bytes) * share / 4;
    // What fits at the least is only known to the other search.
    let solved = |bound: Option<LowerBound>| {
        let before = problem.work();
        let solution = solve_from(problem, budget_bytes, LITTLE, Known { sequences: vec![&least], bound });
        (solution, problem.work() - before)
    };
    let (solution, work) = solved(None);
    // A bound that is known spares making it, and changes nothing: not even the work that is counted.
    let (again, work_again) = solved(Some(certificate(problem, budget_bytes, LITTLE.bound_work)));
    prop_assert_eq!((&solution.entries, solution.cost, work), (&again.entries, again.cost, work_again));
    prop_assert_eq!(&solution.bound, &again.bound);
    prop_assert!(solution.bound.extra_cost.is_finite());
    let entries = solution.entries.as_ref().expect("one was known");
    check(problem, entries).map_err(TestCaseError::fail)?;
    let outcome = simulator.run(entries, budget_bytes);
    prop_assert!(outcome.peak_bytes <= budget_bytes);
    prop_assert_eq!((outcome.cost, outcome.peak_bytes), (solution.cost, solution.peak_bytes));
    prop_assert_eq!(simulator.needed(entries), entries.clone());
    let lower = problem.plain_cost() as f64 + solution.bound.extra_cost;
    prop_assert!(outcome.cost as f64 >= lower - 1e-6 * lower, "{} is below the bound {lower}", outcome.cost);
    // Below what any operation needs, nothing is found.
    let none = solve(problem, floor_bytes.saturating_sub(1), LITTLE);
    prop_assert!(none.entries.is_none());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn followed_changes_come_to_what_the_sequence_comes_to(problem in problems(), seed in any::<u64>()) {
        walk(&problem, seed)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn solutions_keep_budget_and_bound(problem in problems(), share in 0..4_u64) {
        assert_solved(&problem, share)?;
    }
}

#[test]
fn entries_stand_in_the_order_of_what_they_make() {
    let sorted = [
        Entry::fetch(3, 5, None),
        Entry::run(3, 0),
        Entry::fetch(3, 0, Some(0)),
        Entry::run(3, 2),
        Entry::first(3),
        Entry::run(4, 0),
    ];
    assert!(sorted.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(sorted[2].event(), Event::Fetch(0));
    assert_eq!(sorted.map(Entry::is_first), [false, false, false, false, true, false]);
}
