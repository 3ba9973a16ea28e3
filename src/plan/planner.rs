//! Leads from a request to a plan: candidates, the ends of what is possible, the layout for the budget, and its commands.

use std::ops::RangeInclusive;
use std::rc::Rc;

use super::candidate::Candidates;
use super::infeasible::infeasible;
use super::layout::Layout;
use super::schedule::step_bound;
use super::search::{Ends, Frontier, Unconstrained};
use super::{Bound, Levers, Planned, Request, Source, check, emit, reasons};
use crate::error::PlanError;

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
    let planned = Planner::new(source, request)?.plan(request.budget_bytes);
    if request.levers.half_activations.is_none() {
        return planned;
    }
    // What rounds must be worth it.
    let exact = Request { levers: Levers { half_activations: None, ..request.levers }, ..request.clone() };
    match (Planner::new(source, &exact)?.plan(request.budget_bytes), planned) {
        (Ok(exact), Ok(planned)) if planned.plan.predicted_step_ns < exact.plan.predicted_step_ns => {
            let needs_none = exact.plan.predicted_step_ns <= exact.plan.unconstrained_step_ns;
            Ok(if needs_none { exact } else { planned })
        }
        (Ok(exact), _) => Ok(exact),
        (Err(_), planned) => planned,
    }
}

/// The plans of one request at any budget.
pub(super) struct Planner<'a> {
    candidates: Candidates<'a>,
    frontier: Frontier<'a>,
    unconstrained: Unconstrained,
}

impl<'a> Planner<'a> {
    pub(super) fn new(source: &'a dyn Source, request: &'a Request) -> Result<Self, PlanError> {
        let mut candidates = Candidates::new(source, request)?;
        let (ends, unconstrained) = Ends::find(&mut candidates)?;
        Ok(Planner { candidates, frontier: Frontier::new(ends), unconstrained })
    }

    /// From the smallest budget that works to the peak of the fastest plan.
    pub(super) fn budgets(&self) -> RangeInclusive<u64> {
        self.frontier.least().peak_bytes..=self.frontier.fastest().peak_bytes
    }

    /// The plan for a budget.
    pub(super) fn plan(&mut self, budget_bytes: Option<u64>) -> Result<Planned, PlanError> {
        let layout = self.layout(budget_bytes)?;
        let mut planned = emit::plan(&layout);
        let (plan, costs) = (&mut planned.plan, &self.candidates.request.costs);
        plan.budget_bytes = budget_bytes;
        plan.unconstrained_peak_bytes = self.unconstrained.peak_bytes;
        plan.unconstrained_step_ns = self.unconstrained.step_ns;
        plan.minimum_budget_bytes = self.frontier.least().peak_bytes;
        plan.bound = budget_bytes.map(|budget_bytes| {
            let bound = step_bound(layout.candidate(), &layout.schedule.offload, budget_bytes);
            // Where that is more than the plan takes, by rounding, the plan is its own bound.
            Bound { step_ns: bound.step_ns.min(layout.step_ns as f64), ..bound }
        });
        let programs = plan.programs.iter().zip(&planned.graphs).enumerate();
        plan.reasons = programs
            .flat_map(|(number, (program, graph))| reasons::of_program(number, program, graph, costs))
            .collect();
        check::check(&planned.plan, &planned.graphs)?;
        Ok(planned)
    }

    /// The layout for a budget.
    fn layout(&mut self, budget_bytes: Option<u64>) -> Result<Rc<Layout<'a>>, PlanError> {
        let (least_bytes, most_bytes) = self.budgets().into_inner();
        match budget_bytes {
            Some(budget_bytes) if budget_bytes < least_bytes => {
                let mixing = self.candidates.mixing.as_ref();
                Err(infeasible(self.candidates.request, budget_bytes, self.frontier.least(), mixing))
            }
            Some(budget_bytes) if budget_bytes < most_bytes => self.frontier.within(&mut self.candidates, budget_bytes),
            _ => Ok(self.frontier.fastest().clone()),
        }
    }
}
