//! Chooses what a step does to stay within the budget: how many micro-batches, in which form backward finds forward's
//! values, what moves to the host tier, and what runs again. Of all that fits, the plan that takes least time.
//!
//! Two plans are made first, whatever the budget: the one that needs least memory and the one that takes least time. Between
//! them the budget is looked up by bisection: a plan is searched for half-way, and counts only if it is no slower than the
//! one below and no faster than the one above. The plans half-way do not depend on the budget, so of two budgets the larger
//! one never gets the slower plan, however well each search went.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::candidates::{Candidates, Wanted};
use super::fit::Fit;
use super::infeasible::infeasible;
use super::{Planned, Request, Source, check, reasons};
use crate::error::PlanError;

/// Budgets are looked up until the plans below and above differ by less than this share in bytes or in time.
const CLOSE_BYTES: u64 = 400;
const CLOSE_NS: u64 = 1000;
/// Halvings at most, on small graphs and on larger ones.
const HALVINGS: [usize; 3] = [16, 10, 10];
/// Halvings in which all numbers of micro-batches and all forms are looked at; later only those near the plans below and
/// above.
const WIDE: usize = 2;
/// A halving is worth as much work as the first ones where the plan below is slower than the one above by this share of it.
const STEEP: u64 = 4;
/// How near.
const NEAR: usize = 1;

/// Work of the parts of a search, in units of about a nanosecond: the plans with the smallest budgets; the quickest plan at such
/// a budget; and halvings, the wide ones and the others.
const LEAST_WORK: u64 = 600_000_000;
const QUICKEST_WORK: u64 = 400_000_000;
const WIDE_WORK: u64 = 900_000_000;
const NARROW_WORK: u64 = 400_000_000;

/// Plans a step under a budget.
///
/// Without [`Request::micro_batches`], the planner chooses their number. It looks for the plan that takes least time by
/// the cost model; micro-batches, recompute and offload all cost some. There is a plan for every budget from
/// [`Plan::minimum_budget_bytes`](super::Plan::minimum_budget_bytes) on, and with more memory it never takes longer.
///
/// # Errors
/// [`PlanError::Infeasible`] where no plan stays within the budget, with the smallest budget that works;
/// [`PlanError::Request`] where the request makes no sense; and where a graph cannot be built or a tensor is larger
/// than the device can bind.
pub fn plan(source: &dyn Source, request: &Request) -> Result<Planned, PlanError> {
    Search::new(source, request)?.plan(request.budget_bytes)
}

/// The plans of one request at any budget.
pub(super) struct Search<'a> {
    candidates: Candidates<'a>,
    /// Peak and time with the whole batch at once and no budget.
    unconstrained: (u64, u64),
    /// With the smallest budget.
    least: Rc<Fit>,
    /// As quick as possible.
    fastest: Rc<Fit>,
    /// With the smallest budget that needs no host tier, where that frees no memory.
    without_host: Option<Rc<Fit>>,
    /// The plan at that budget.
    turn: Option<Rung>,
    /// The plan at the smallest budget, below the next larger budget that was looked up.
    lowest: Option<(u64, Rc<Fit>)>,
    /// What was found after so many halvings from a budget on, with offload or without.
    found: BTreeMap<(usize, u64, bool), Option<Rc<Fit>>>,
}

/// The plan from a budget on.
#[derive(Clone, Debug)]
struct Rung {
    budget_bytes: u64,
    fit: Rc<Fit>,
}

impl Rung {
    fn of(fit: &Rc<Fit>) -> Rung {
        Rung { budget_bytes: fit.peak_bytes(), fit: fit.clone() }
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(source: &'a dyn Source, request: &'a Request) -> Result<Self, PlanError> {
        let mut candidates = Candidates::new(source, request)?;
        let Some(mut fastest) = candidates.unlimited()? else { return Err(candidates.refusal()) };
        let unconstrained = candidates.unconstrained(&fastest)?;
        let least = candidates.least(LEAST_WORK)?;
        let (mut least, without_host) =
            least.map_or_else(|| (fastest.clone(), None), |found| (found.fit, found.without_host));
        if fastest.peak_bytes() < least.peak_bytes() {
            least = fastest.clone();
        }
        for other in without_host.iter().chain([&least]) {
            if other.step_ns() < fastest.step_ns() {
                fastest = other.clone();
            }
        }
        let [least, fastest] = [least, fastest].map(Rc::new);
        let (without_host, found) = (without_host.map(Rc::new), BTreeMap::new());
        Ok(Search { candidates, unconstrained, least, fastest, without_host, turn: None, lowest: None, found })
    }

    /// The smallest budget that works, and the peak of the fastest plan.
    pub(super) fn range_bytes(&self) -> (u64, u64) {
        (self.least.peak_bytes(), self.fastest.peak_bytes())
    }

    /// The plan for a budget.
    pub(super) fn plan(&mut self, budget_bytes: Option<u64>) -> Result<Planned, PlanError> {
        let chosen = match budget_bytes {
            Some(budget) if budget < self.least.peak_bytes() => {
                let Candidates { request, mixing, .. } = &self.candidates;
                return Err(infeasible(request, budget, &self.least, mixing.as_ref()));
            }
            Some(budget) if budget < self.fastest.peak_bytes() => self.within(budget)?,
            _ => self.fastest.clone(),
        };
        let mut planned = self.candidates.planned(&chosen)?;
        let plan = &mut planned.plan;
        plan.budget_bytes = budget_bytes;
        (plan.unconstrained_peak_bytes, plan.unconstrained_step_ns) = self.unconstrained;
        plan.minimum_budget_bytes = self.least.peak_bytes();
        plan.bound = budget_bytes.map(|budget| self.candidates.bound(&chosen, budget)).transpose()?;
        let programs = plan.programs.iter().zip(&planned.graphs).enumerate();
        let costs = &self.candidates.request.costs;
        plan.reasons =
            programs.flat_map(|(i, (program, graph))| reasons::of_program(i, program, graph, costs)).collect();
        check::check(&planned.plan, &planned.graphs)?;
        Ok(planned)
    }

    /// The plan for a budget between the smallest and the need of the fastest plan.
    fn within(&mut self, budget_bytes: u64) -> Result<Rc<Fit>, PlanError> {
        let (lowest, fastest) = (Rung::of(&self.least), Rung::of(&self.fastest));
        // Where the device has no memory of its own, moving values to the host frees nothing: only for budgets that nothing
        // else keeps, or where such a plan is faster than what is possible without at a little more.
        let Some(turn) = self.turn()? else {
            let offload = self.candidates.request.levers.offload && self.without_host.is_none();
            return self.between(budget_bytes, lowest, fastest, offload);
        };
        if budget_bytes < turn.budget_bytes {
            self.between(budget_bytes, lowest, turn, true)
        } else {
            self.between(budget_bytes, turn, fastest, false)
        }
    }

    /// The same budget with the fastest plan that is found for it, unless it is faster than `least_ns`.
    fn quickest_at(&mut self, rung: Rung, offload: bool, least_ns: u64) -> Result<Rung, PlanError> {
        let step_ns = (least_ns, rung.fit.step_ns());
        let wanted = Wanted {
            budget_bytes: rung.budget_bytes,
            offload,
            step_ns,
            positions: self.candidates.positions(),
            forms: Vec::new(),
            near: &[&*rung.fit, &*self.least],
            work: QUICKEST_WORK,
        };
        let found = self.candidates.cheapest(&wanted)?.filter(|found| is_between(found, step_ns));
        Ok(match found {
            Some(found) => Rung { fit: Rc::new(found), ..rung },
            None => rung,
        })
    }

    /// From which budget on nothing has to move to the host tier; `None` where that is all budgets, or makes no difference.
    fn turn(&mut self) -> Result<Option<Rung>, PlanError> {
        let Some(without_host) = self.without_host.clone() else { return Ok(None) };
        if without_host.peak_bytes() <= self.least.peak_bytes() {
            return Ok(None);
        }
        if self.turn.is_none() {
            let mut rung = Rung::of(&without_host);
            if self.least.step_ns() < rung.fit.step_ns() {
                rung.fit = self.least.clone();
            }
            self.turn = Some(self.quickest_at(rung, true, self.fastest.step_ns())?);
        }
        Ok(self.turn.clone())
    }

    /// The plan at the smallest budget, for what was found to need least memory may take very long; none that is faster than
    /// `above`, the next one that was looked up.
    fn lowest(&mut self, above: &Rung, offload: bool) -> Result<Rc<Fit>, PlanError> {
        if self.lowest.as_ref().is_none_or(|(budget_bytes, _)| *budget_bytes != above.budget_bytes) {
            let lowest = self.quickest_at(Rung::of(&self.least), offload, above.fit.step_ns())?;
            self.lowest = Some((above.budget_bytes, lowest.fit));
        }
        Ok(self.lowest.as_ref().map_or_else(|| self.least.clone(), |(_, fit)| fit.clone()))
    }

    /// The plan for a budget from that of `below` on and below that of `above`.
    fn between(
        &mut self,
        budget_bytes: u64,
        mut below: Rung,
        mut above: Rung,
        offload: bool,
    ) -> Result<Rc<Fit>, PlanError> {
        for halving in 0..HALVINGS[self.candidates.size] {
            let step_ns = (above.fit.step_ns(), below.fit.step_ns());
            let gap_bytes = above.budget_bytes.saturating_sub(below.budget_bytes);
            if step_ns.1.saturating_sub(step_ns.0) <= step_ns.1 / CLOSE_NS
                || gap_bytes <= (below.budget_bytes / CLOSE_BYTES).max(1)
            {
                break;
            }
            // Half-way in proportion, for the time of a step depends on that more than on the difference.
            let half = (below.budget_bytes as f64 * above.budget_bytes as f64).sqrt() as u64;
            let half_bytes = half.clamp(below.budget_bytes + 1, above.budget_bytes - 1);
            let key = (halving, below.budget_bytes, offload);
            let found = match self.found.get(&key) {
                Some(found) => found.clone(),
                None => {
                    let positions = self.positions(&below.fit, &above.fit, halving);
                    let near = [&*below.fit, &*above.fit];
                    let forms = if halving < WIDE { Vec::new() } else { near.map(Fit::form).to_vec() };
                    let work = if halving < WIDE || step_ns.1 - step_ns.0 > step_ns.0 / STEEP {
                        WIDE_WORK
                    } else {
                        NARROW_WORK
                    };
                    let wanted =
                        Wanted { budget_bytes: half_bytes, offload, step_ns, positions, forms, near: &near, work };
                    let found = self.candidates.cheapest(&wanted)?.filter(|found| is_between(found, step_ns));
                    self.found.entry(key).or_insert(found.map(Rc::new)).clone()
                }
            };
            // What was found may need less than it was allowed to.
            let half = match found {
                Some(fit) => Rung { budget_bytes: fit.peak_bytes().clamp(below.budget_bytes, half_bytes), fit },
                None => Rung { budget_bytes: half_bytes, fit: below.fit.clone() },
            };
            if budget_bytes >= half.budget_bytes {
                below = half;
            } else if Rc::ptr_eq(&half.fit, &below.fit) {
                // From here to half-way nothing is faster.
                break;
            } else {
                above = half;
            }
        }
        if Rc::ptr_eq(&below.fit, &self.least) { self.lowest(&above, offload) } else { Ok(below.fit) }
    }

    /// Numbers of micro-batches that may be best between two plans.
    fn positions(&self, below: &Fit, above: &Fit, halving: usize) -> std::ops::RangeInclusive<usize> {
        let all = self.candidates.positions();
        if halving < WIDE {
            return all;
        }
        let [a, b] = [below, above].map(|fit| self.candidates.position(fit));
        a.min(b).saturating_sub(NEAR)..=(a.max(b) + NEAR).min(*all.end())
    }
}

/// Whether a plan is faster than the last, and not faster than the first.
fn is_between(fit: &Fit, (least_ns, most_ns): (u64, u64)) -> bool {
    (least_ns..most_ns).contains(&fit.step_ns())
}
