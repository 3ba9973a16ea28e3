//! Fits a candidate to a budget: schedules its programs and lays them out, until all is within the budget.

use std::rc::Rc;

use super::{Allowance, Depth, NODE_WORK, PACKING_TRIES};
use crate::plan::candidate::{Candidate, Size};
use crate::plan::layout::placement::MOST_WORK;
use crate::plan::layout::{self, Layout};
use crate::plan::schedule::solver::{Entry, Known, LowerBound, certificate, solve_from};
use crate::plan::schedule::{GraphProblem, OffloadPolicy, Schedule};

/// Packing is this much cheaper where memory is to be packed tightly.
const TIGHTLY: u64 = 2;

/// What a layout is wanted for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal<'s, 'a> {
    /// Bytes that may be on the device.
    pub(super) budget_bytes: u64,
    /// No layout that takes longer is of use.
    pub(super) most_ns: u64,
    /// Layouts for budgets near this one, to start from.
    pub(super) near: &'s [&'s Layout<'a>],
}

/// Every node once, everything on the device. A budget is enough where there is one.
pub(super) fn plain<'a>(candidate: &Rc<Candidate<'a>>, budget_bytes: u64) -> Layout<'a> {
    let headroom_bytes = layout::headroom_bytes(candidate, &OffloadPolicy::default(), budget_bytes);
    Layout::new(Rc::new(Schedule::plain(candidate)), headroom_bytes.unwrap_or(0), MOST_WORK)
}

/// The same layout with its memory packed more tightly where that is found.
pub(super) fn packed<'a>(layout: Rc<Layout<'a>>, work: u64) -> Rc<Layout<'a>> {
    let packed = Layout::new(layout.schedule.clone(), 0, work);
    if packed.peak_bytes < layout.peak_bytes { Rc::new(packed) } else { layout }
}

/// A layout within the budget, found with little work, with or without offload; none where it would take longer than what is
/// wanted.
pub(super) fn quick<'a>(
    candidate: &Rc<Candidate<'a>>,
    goal: Goal<'_, 'a>,
    offload: bool,
    allowance: &Allowance,
) -> Option<Layout<'a>> {
    let mut best: Option<Layout<'a>> = None;
    // Something is left for the policies that follow.
    let fitted = |policy: &OffloadPolicy, most_ns: u64| {
        let found = allowance.share(if offload { 2 } else { 1 }, |allowance| {
            let goal = Goal { most_ns, ..goal };
            Attempt { candidate, policy, goal, depth: Depth::Quick, tightly: false, allowance }.run()
        });
        found.filter(|layout| layout.step_ns < most_ns)
    };
    if candidate.request.levers.recompute {
        best = fitted(&OffloadPolicy::default(), goal.most_ns);
    }
    if offload {
        let mut worse = 0;
        let policies = OffloadPolicy::all(candidate);
        let last = policies.len() - 1;
        let is_tried = |&(i, _): &(usize, _)| i == 0 || i == last || candidate.size() < Size::Large;
        for (_, policy) in policies.into_iter().enumerate().filter(is_tried) {
            if allowance.is_spent() {
                break;
            }
            let most_ns = best.as_ref().map_or(goal.most_ns, |best| best.step_ns);
            let found = fitted(&policy, most_ns);
            // More in the host tier than is good gets worse and worse.
            worse = if best.is_some() && found.is_none() { worse + 1 } else { 0 };
            best = found.or(best);
            if worse == 2 {
                break;
            }
        }
    }
    best
}

/// The same candidate with the same values in the host tier, scheduled with more work.
pub(super) fn thorough<'a>(layout: &Layout<'a>, goal: Goal<'_, 'a>, allowance: &Allowance) -> Option<Layout<'a>> {
    let (candidate, policy) = (layout.candidate(), &layout.schedule.offload);
    Attempt { candidate, policy, goal, depth: Depth::Thorough, tightly: false, allowance }.run()
}

/// One candidate under one policy, to be fitted to a budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt<'s, 'a> {
    pub(super) candidate: &'s Rc<Candidate<'a>>,
    pub(super) policy: &'s OffloadPolicy,
    pub(super) goal: Goal<'s, 'a>,
    pub(super) depth: Depth,
    /// Whether memory below the budget is worth the work of packing it.
    pub(super) tightly: bool,
    /// What may be done at most.
    pub(super) allowance: &'s Allowance,
}

impl<'a> Attempt<'_, 'a> {
    /// Schedules all programs for the budget and lays them out; again for less memory where that does not pack.
    pub(super) fn run(self) -> Option<Layout<'a>> {
        let Attempt { candidate, policy, depth, allowance, .. } = self;
        let Goal { budget_bytes, most_ns, near } = self.goal;
        let headroom_bytes = layout::headroom_bytes(candidate, policy, budget_bytes)?;
        let problems = GraphProblem::all(candidate, policy);
        allowance.spend(NODE_WORK * candidate.nodes() as u64);
        // Lower bounds for the first schedule of each program.
        let mut bounds: Vec<Option<LowerBound>> = vec![None; problems.len()];
        if most_ns < u64::MAX && depth == Depth::Quick {
            let mut least_ns = Vec::new();
            for (GraphProblem { problem, .. }, bound) in problems.iter().zip(&mut bounds) {
                let found = certificate(problem, headroom_bytes, depth.bound_work(problem.len()));
                allowance.spend(problem.work());
                least_ns.push(problem.plain_cost() as f64 + found.extra_cost);
                *bound = Some(found);
            }
            if self.is_slow(&problems, &least_ns) {
                return None;
            }
        }
        let near: Vec<_> = near.iter().filter_map(|layout| self.start(layout)).collect();
        let count = problems.len();
        let mut program_ns = vec![0.0; count];
        let (events, sequences) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        let sequences = Some(sequences);
        let mut schedule =
            Rc::new(Schedule { candidate: candidate.clone(), offload: policy.clone(), events, sequences });
        // What the sequences of each program may take: less by what its blocks do not pack.
        let mut program_bytes = vec![headroom_bytes; count];
        let mut peaks = program_bytes.clone();
        let mut is_open = vec![true; count];
        for _ in 0..PACKING_TRIES {
            let Schedule { events, sequences: Some(sequences), .. } = Rc::make_mut(&mut schedule) else { break };
            for (number, of_program) in problems.iter().enumerate().filter(|&(number, _)| is_open[number]) {
                let mut starts: Vec<&[Entry]> = near.iter().map(|sequences| &*sequences[number]).collect();
                // What did not pack is a start for less.
                starts.extend(Some(&*sequences[number]).filter(|entries| !entries.is_empty()));
                let known = Known { sequences: starts, bound: bounds[number].take() };
                let problem = &of_program.problem;
                let (effort, before) = (depth.effort(problem.len(), allowance), problem.work());
                let solution = solve_from(problem, program_bytes[number], effort, known);
                allowance.spend(problem.work() - before);
                let entries = solution.entries?;
                events[number] = of_program.events(&entries);
                sequences[number] = entries;
                program_ns[number] = solution.cost as f64;
                peaks[number] = solution.peak_bytes;
            }
            if self.is_slow(&problems, &program_ns) {
                return None;
            }
            let layout = self.lay_out(&schedule, headroom_bytes);
            if layout.peak_bytes <= budget_bytes {
                return Some(layout);
            }
            for (number, used_bytes) in layout.used_bytes().into_iter().enumerate() {
                let over_bytes = used_bytes.saturating_sub(headroom_bytes);
                is_open[number] = over_bytes > 0;
                // Below what the sequence needs, so that another one is found.
                program_bytes[number] = program_bytes[number].min(peaks[number]).saturating_sub(over_bytes);
            }
            if !is_open.contains(&true) {
                return None;
            }
        }
        None
    }

    /// Whether a step takes too long whose programs take so long, or the nodes in them: each of them is rounded.
    fn is_slow(&self, problems: &[GraphProblem], program_ns: &[f64]) -> bool {
        let runs = self.candidate.program_of.iter();
        let nodes: u64 = runs.clone().map(|&number| problems[number].problem.len() as u64).sum();
        let run_ns = self.candidate.request.costs.run_ns();
        let step_ns: f64 = runs.map(|&number| program_ns[number] + run_ns).sum();
        step_ns > self.goal.most_ns.saturating_add(nodes) as f64
    }

    /// The sequences of a layout, if they are possible for these programs with these values in the host tier.
    fn start<'l>(&self, layout: &'l Layout<'a>) -> Option<&'l [Vec<Entry>]> {
        let is_like = layout.candidate().key() == self.candidate.key() && layout.schedule.offload == *self.policy;
        layout.schedule.sequences.as_deref().filter(|_| is_like)
    }

    fn lay_out(&self, schedule: &Rc<Schedule<'a>>, headroom_bytes: u64) -> Layout<'a> {
        let work = if self.tightly { MOST_WORK / TIGHTLY } else { self.depth.pack_work() };
        let work = work.min(self.allowance.left() / 2);
        let layout = Layout::new(schedule.clone(), if self.tightly { 0 } else { headroom_bytes }, work);
        self.allowance.spend(layout.work);
        let each_fits = layout.used_bytes().iter().all(|&used_bytes| used_bytes <= headroom_bytes);
        if self.tightly || !each_fits || layout.peak_bytes <= self.goal.budget_bytes {
            return layout;
        }
        // Programs that share several arenas may each be small enough, but not all together.
        let layout = Layout::new(schedule.clone(), 0, work);
        self.allowance.spend(layout.work);
        layout
    }
}
