//! What no schedule can avoid.
//!
//! One moment bounds what is spent after it ([`Moment`]). Moments with windows that follow each other add up, because
//! each counts only what runs again within its window; the best choice of windows is a longest path.

use super::cut::Moment;
use super::problem::Problem;
use super::seeds;
use super::sequence::Simulator;

/// Moments between which windows are looked at.
const WINDOWS: usize = 14;
/// Moments that are looked at alone, at most.
const MOMENTS: usize = 400;

/// A lower bound on the cost of any schedule that keeps the order of first runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LowerBound {
    /// Beyond running everything once; infinite where no schedule keeps the budget.
    pub(crate) extra_cost: f64,
    /// Cost that one more byte saves at the tightest moment.
    pub(crate) price: f64,
    /// The tightest moments alone, tightest first.
    pub(crate) moments: Vec<usize>,
    /// Work that it took, in units of about a nanosecond.
    pub(crate) work: u64,
}

impl LowerBound {
    /// That of a budget which the plain sequence keeps.
    pub(super) const NONE: LowerBound = LowerBound { extra_cost: 0.0, price: 0.0, moments: Vec::new(), work: 0 };
}

/// The lower bound for a budget. `memory` is what the plain sequence needs at each operation; `work` limits the flows
/// that are solved, in operations.
pub(crate) fn lower_bound(problem: &Problem, memory: &[u64], budget_bytes: u64, work: usize) -> LowerBound {
    let before = problem.work();
    let over: Vec<usize> = (0..problem.len()).filter(|&stage| memory[stage] > budget_bytes).collect();
    let looks = (work / problem.len().max(1)).clamp(1, MOMENTS);
    let step = over.len().div_ceil(looks).max(1);
    let mut singles: Vec<(f64, f64, usize)> = Vec::new();
    // Evenly spread, and where the plain sequence needs most.
    let tightest = over.iter().copied().max_by_key(|&stage| memory[stage]);
    let spread = over.iter().copied().step_by(step).chain(tightest);
    for stage in spread {
        let (cost, price) = Moment::new(problem, stage, problem.len()).bound(budget_bytes);
        singles.push((cost, price, stage));
    }
    singles.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.2.cmp(&b.2)));
    singles.dedup_by_key(|single| single.2);
    let Some(&(cost, price, _)) = singles.first() else {
        return LowerBound::NONE;
    };
    let moments: Vec<usize> = singles.iter().map(|&(.., stage)| stage).collect();
    // What is resident is moved once for all windows, so their costs do not add up where there is any.
    let extra_cost = if cost.is_finite() && looks >= WINDOWS * WINDOWS && problem.residents().is_empty() {
        windows(problem, &moments, &over, budget_bytes).max(cost)
    } else {
        cost
    };
    LowerBound { extra_cost, price, moments, work: problem.work() - before }
}

/// The lower bound for a problem with resident memory, where `budget_bytes` includes that memory.
pub(crate) fn certificate(problem: &Problem, budget_bytes: u64, work: usize) -> LowerBound {
    let mut simulator = Simulator::new(problem);
    let base = seeds::plain(problem);
    simulator.run(&base, budget_bytes);
    let resident: u64 = problem.residents().iter().map(|memory| memory.bytes).sum();
    let memory: Vec<u64> = simulator.at_stages(&base).into_iter().map(|bytes| bytes + resident).collect();
    lower_bound(problem, &memory, budget_bytes, work)
}

/// The most that windows one after the other bound.
fn windows(problem: &Problem, moments: &[usize], over: &[usize], budget_bytes: u64) -> f64 {
    let mut ends: Vec<usize> = moments.iter().copied().take(WINDOWS / 2).collect();
    let step = over.len().div_ceil(WINDOWS - ends.len()).max(1);
    ends.extend(over.iter().copied().skip(step / 2).step_by(step));
    ends.sort_unstable();
    ends.dedup();
    ends.push(problem.len());
    // The bound of everything from each moment on.
    let mut from = vec![0.0f64; ends.len()];
    for i in (0..ends.len() - 1).rev() {
        for j in i + 1..ends.len() {
            let (cost, _) = Moment::new(problem, ends[i], ends[j]).bound(budget_bytes);
            from[i] = from[i].max(cost + from[j]);
        }
    }
    from.into_iter().fold(0.0, f64::max)
}
