//! Layouts of one candidate with low peaks.

use std::rc::Rc;

use super::fit::{Attempt, Goal};
use super::{Allowance, Depth, NODE_WORK};
use crate::plan::candidate::{Candidate, Size};
use crate::plan::layout::placement::MOST_WORK;
use crate::plan::layout::{self, Layout};
use crate::plan::schedule::solver::least_peak;
use crate::plan::schedule::{GraphProblem, OffloadPolicy, Schedule};

/// Times that a layout with little memory is searched for one with less.
const SQUEEZES: usize = 6;
/// The least by which a peak can be lower.
const UNIT_BYTES: u64 = 256;
/// By what share of its memory one large program must be smaller than another to count as smaller.
const LARGE_SHARE: u64 = 256;
/// What is worth it to pack one of them.
const PACK_WORK: u64 = MOST_WORK / 8;

/// Peaks from which on a layout is of no use.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeakLimits {
    /// Where values move to the host tier.
    pub(super) moving_bytes: u64,
    /// Where all stays on the device.
    pub(super) staying_bytes: u64,
}

impl PeakLimits {
    fn of(&mut self, policy: &OffloadPolicy) -> &mut u64 {
        if policy.moves { &mut self.moving_bytes } else { &mut self.staying_bytes }
    }
}

/// Layouts with low peaks: with nothing moved to the host tier, and with more and more there. Of large graphs few are made;
/// with `both`, one with nothing moved in any case.
pub(super) fn smallest<'a>(
    candidate: &Rc<Candidate<'a>>,
    both: bool,
    mut limits: PeakLimits,
    allowance: &Allowance,
) -> Vec<Layout<'a>> {
    let offload = candidate.request.levers.offload;
    let mut policies = Vec::new();
    // Where everything can move, nothing needs less; on small graphs the staging for that may be more than it saves.
    let large = candidate.size() == Size::Large;
    if !large || both || !offload {
        policies.push(OffloadPolicy::default());
    }
    if offload {
        let others = OffloadPolicy::all(candidate).into_iter().rev();
        policies.extend(others.take(if large { 1 } else { usize::MAX }));
    }
    let mut found = Vec::new();
    for policy in policies {
        let (mut events, mut sequences) = (Vec::new(), Vec::new());
        let limit_bytes = limits.of(&policy);
        // To pack large programs takes too long for a little less.
        let worth_bytes = *limit_bytes - if large { *limit_bytes / LARGE_SHARE } else { 0 };
        let fixed_bytes = layout::fixed_bytes(candidate, &policy);
        let mut live_bytes = 0;
        for number in 0..candidate.programs.len() {
            let of_program = GraphProblem::under(candidate, number, &policy);
            let problem = &of_program.problem;
            if fixed_bytes + problem.floor_bytes().max(live_bytes) >= worth_bytes {
                break;
            }
            let (entries, peak_bytes) = least_peak(problem, Depth::Quick.effort(problem.len(), allowance));
            allowance.spend(problem.work());
            live_bytes = live_bytes.max(peak_bytes);
            events.push(of_program.events(&entries));
            sequences.push(entries);
        }
        if sequences.len() < candidate.programs.len() || fixed_bytes + live_bytes >= worth_bytes {
            continue;
        }
        let candidate = candidate.clone();
        let schedule = Schedule { candidate, offload: policy, events, sequences: Some(sequences) };
        let layout = Layout::new(schedule.into(), 0, PACK_WORK.min(allowance.left() / 2));
        allowance.spend(layout.work + NODE_WORK * layout.candidate().nodes() as u64);
        *limit_bytes = layout.peak_bytes.min(*limit_bytes);
        found.push(layout);
    }
    found
}

/// The same candidate under the same policy with less and less memory, in steps that shrink where nothing is found.
pub(super) fn squeezed<'a>(layout: Rc<Layout<'a>>, allowance: &Allowance) -> Rc<Layout<'a>> {
    let mut best = layout;
    let fixed_bytes = layout::fixed_bytes(best.candidate(), &best.schedule.offload);
    let mut share = 16;
    for _ in 0..SQUEEZES {
        if allowance.is_spent() {
            break;
        }
        let step_bytes = (best.peak_bytes.saturating_sub(fixed_bytes) / share).max(UNIT_BYTES);
        let goal = Goal { budget_bytes: best.peak_bytes - step_bytes, most_ns: u64::MAX, near: &[&best] };
        let (candidate, policy) = (best.candidate(), &best.schedule.offload);
        let attempt = Attempt { candidate, policy, goal, depth: Depth::Quick, tightly: true, allowance };
        match attempt.run() {
            Some(lower) => best = lower.into(),
            None if step_bytes == UNIT_BYTES => break,
            None => share *= 8,
        }
    }
    best
}
