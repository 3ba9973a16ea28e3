//! The account of the search for schedules and that of plans are the same, byte for byte and nanosecond for nanosecond.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::candidate::{Candidate, Form};
use super::layout::Layout;
use super::layout::placement::MOST_WORK;
use super::schedule::solver::sequences;
use super::schedule::{GraphProblem, OffloadPolicy, Schedule};
use super::toy::{Chain, tangles};
use super::*;

/// Costs in whole nanoseconds, so that sums are exact.
fn costs() -> CostModel {
    let other_ops = OpRates { launch_ns: 1000.0, flop_ns: 1.0, read_ns: 2.0, write_ns: 3.0 };
    CostModel {
        ops: BTreeMap::new(),
        other_ops,
        run_ns: 50_000.0,
        offload: CopyRates { fixed_ns: 700.0, byte_ns: 2.0 },
        prefetch: CopyRates { fixed_ns: 500.0, byte_ns: 1.0 },
        ..CostModel::default()
    }
}

/// Compares the accounts for many sequences of all programs of a step, with every so-many-th value in the host tier.
fn compare(source: &dyn Source, micro_batches: &[usize], seed: u64, every: usize) -> Result<(), TestCaseError> {
    let failed = |error: crate::error::PlanError| TestCaseError::fail(error.to_string());
    let batch = micro_batches.iter().sum();
    let levers = Levers { offload: every < 4, ..Levers::default() };
    let request =
        Request { batch, budget_bytes: None, micro_batches: None, levers, limits: Limits::default(), costs: costs() };
    let candidate = Candidate::new(source, &request, micro_batches.to_vec(), Form::default()).map_err(failed)?;
    let candidate = Rc::new(candidate);
    let all = OffloadPolicy::all(&candidate).pop().expect("a policy").hosted.into_iter();
    let hosted: BTreeSet<String> = if every < 4 { all.step_by(every.max(1)).collect() } else { BTreeSet::new() };
    let policy = OffloadPolicy { hosted, moves: every < 4 };
    let mut found = Vec::new();
    for of_program in GraphProblem::all(&candidate, &policy) {
        let sequences = sequences(&of_program.problem, seed);
        let accounts = sequences.into_iter().map(|(entries, cost, peak)| (of_program.events(&entries), cost, peak));
        found.push(accounts.collect::<Vec<_>>());
    }
    for number in 0..found.iter().map(Vec::len).max().unwrap_or(0) {
        // A program of no nodes has one sequence.
        let found: Vec<_> = found.iter().map(|of_program| &of_program[number.min(of_program.len() - 1)]).collect();
        let events = found.iter().map(|(events, ..)| events.clone()).collect();
        let schedule = Schedule { candidate: candidate.clone(), offload: policy.clone(), events, sequences: None };
        let Planned { plan, graphs } = emit::plan(&Layout::new(schedule.into(), 0, MOST_WORK));
        check(&plan, &graphs).map_err(failed)?;
        for (program, (_, cost, peak_bytes)) in plan.programs.iter().zip(found) {
            prop_assert_eq!(program.live_peak_bytes, *peak_bytes, "{:?} of {:?}", program.pass, program.commands);
            prop_assert_eq!(program.predicted_ns, cost + 50_000, "{:?} of {:?}", program.pass, program.commands);
        }
    }
    Ok(())
}

#[test]
fn chains_are_accounted_for_alike() -> Result<(), TestCaseError> {
    let chain = Chain { layers: 5, width: 90, mixes_samples: false };
    for every in 0..5 {
        compare(&chain, &[8], 3, every)?;
        compare(&chain, &[4, 3, 3], 4, every)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_graphs_are_accounted_for_alike(tangle in tangles(), seed in any::<u64>(), every in 1..5_usize) {
        compare(&tangle, &[3], seed, every)?;
        compare(&tangle, &[2, 2, 1], seed, every)?;
    }
}
