//! Whether there is a plan at all, without looking for a good one.

use std::rc::Rc;

use super::candidate::{Candidate, Form, Size, microbatch};
use super::layout::{self, Layout};
use super::schedule::solver::low_peak;
use super::schedule::{GraphProblem, OffloadPolicy, Schedule};
use super::search::{Allowance, Depth, PACKING_TRIES};
use super::{Request, Source};
use crate::error::PlanError;

/// Work that is worth it to see whether there is a plan at all.
const WORK: u64 = 200_000_000;

/// Whether a plan within the budget of a request is found with little work. Where it is, [`plan`](super::plan()) finds one;
/// where it is not, that may still do so, for a budget a little below what is found here.
///
/// # Errors
/// As `plan`, but for requests that no plan meets.
pub(crate) fn is_possible(source: &dyn Source, request: &Request) -> Result<bool, PlanError> {
    let Request { batch, micro_batches, .. } = *request;
    if batch > microbatch::MOST_SAMPLES {
        return Ok(false);
    }
    let most = batch.min(microbatch::MOST);
    let mixes = microbatch::mixing(source, batch)?.is_some();
    // Single samples need least, but for what is summed over micro-batches.
    let counts = match micro_batches {
        Some(count) if !(1..=most).contains(&count) || (count > 1 && mixes) => return Ok(false),
        Some(count) => vec![count],
        None if mixes || batch == 1 => vec![1],
        None => vec![most, 1],
    };
    let all_saved = request.levers.saved_forms();
    for count in counts {
        for &saved in all_saved.iter().rev() {
            let form = Form { saved, fused: false };
            let candidate = match Candidate::new(source, request, microbatch::split(batch, count), form) {
                Err(PlanError::Binding { .. } | PlanError::Graph(_)) => continue,
                candidate => Rc::new(candidate?),
            };
            if policies(&candidate).iter().any(|policy| is_within(&candidate, policy)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Policies under which a layout may need least.
fn policies(candidate: &Candidate<'_>) -> Vec<OffloadPolicy> {
    let mut policies = vec![OffloadPolicy::default()];
    if candidate.request.levers.offload {
        // With all in the host tier, nothing needs less, but for the staging for that.
        let fewest = if candidate.size() == Size::Large { 1 } else { usize::MAX };
        policies.extend(OffloadPolicy::all(candidate).into_iter().rev().take(fewest));
    }
    policies
}

/// Whether a layout under this policy is within the budget: the first that is found, be it slow, is enough.
fn is_within(candidate: &Rc<Candidate<'_>>, policy: &OffloadPolicy) -> bool {
    let budget_bytes = candidate.request.budget_bytes.unwrap_or(u64::MAX);
    let Some(headroom_bytes) = layout::headroom_bytes(candidate, policy, budget_bytes) else { return false };
    let problems = GraphProblem::all(candidate, policy);
    if problems.iter().any(|of_program| of_program.problem.floor_bytes() > headroom_bytes) {
        return false;
    }
    let mut enough_bytes = headroom_bytes;
    let allowance = Allowance::new(WORK);
    for _ in 0..PACKING_TRIES {
        let (mut events, mut sequences) = (Vec::new(), Vec::new());
        for of_program in &problems {
            let problem = &of_program.problem;
            let (effort, before) = (Depth::Quick.effort(problem.len(), &allowance), problem.work());
            let (entries, peak_bytes) = low_peak(problem, effort, enough_bytes);
            allowance.spend(problem.work() - before);
            if peak_bytes > headroom_bytes {
                return false;
            }
            events.push(of_program.events(&entries));
            sequences.push(entries);
        }
        let schedule =
            Schedule { candidate: candidate.clone(), offload: policy.clone(), events, sequences: Some(sequences) };
        let work = Depth::Quick.pack_work().min(allowance.left());
        let layout = Layout::new(schedule.into(), headroom_bytes, work);
        allowance.spend(layout.work);
        if layout.peak_bytes <= budget_bytes {
            return true;
        }
        enough_bytes = enough_bytes.saturating_sub(layout.peak_bytes - budget_bytes);
    }
    false
}
