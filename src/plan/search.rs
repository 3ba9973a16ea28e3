//! Chooses the number of micro-batches: the fewest whose plan stays within the budget.

use std::collections::BTreeMap;

use super::build::{Built, Draft};
use super::explain::format_bytes;
use super::{ArenaRole, Pass, Plan, Planned, Request, Source, check, microbatch};
use crate::error::PlanError;

/// Tensors that the message of an impossible budget names.
const NAMED_TENSORS: usize = 6;

/// Plans a step under a budget.
///
/// Without [`Request::micro_batches`], the whole batch runs at once where the budget allows it, else in as few
/// micro-batches as possible: each costs launches and reads the parameters again.
///
/// # Errors
/// [`PlanError::Infeasible`] where no plan stays within the budget, with the smallest budget that works;
/// [`PlanError::Request`] where the request makes no sense; and where a graph cannot be built or a tensor is larger
/// than the device can bind.
pub fn plan(source: &dyn Source, request: &Request) -> Result<Planned, PlanError> {
    let batch = request.batch;
    if batch == 0 {
        return Err(PlanError::Request("a batch of 0 samples cannot be trained on: use at least 1".into()));
    }
    if let Some(count) = request.micro_batches
        && !(1..=batch).contains(&count)
    {
        return Err(PlanError::Request(format!(
            "a batch of {batch} cannot be split into {count} micro-batches: use 1 to {batch}"
        )));
    }
    let whole_graph = source.graph(Pass::Only, batch, batch)?;
    let mixing = microbatch::mixes_samples(&whole_graph).map(|node| {
        let node = whole_graph.node(node);
        format!("layer `{}` ({}) mixes the samples of a batch", node.name, node.op.name())
    });
    let counts = match (request.micro_batches, &mixing) {
        (Some(count), Some(mixing)) if count > 1 => {
            return Err(PlanError::Request(format!(
                "{mixing}, so splitting the batch would change the result: use 1 micro-batch"
            )));
        }
        (Some(count), _) => vec![count],
        (None, Some(_)) => vec![1],
        (None, None) => microbatch::distinct_counts(batch),
    };
    let mut search = Search { source, request, counts, chosen: None, least: None, refused: None };
    search.run()?;
    search.finish(mixing.as_deref())
}

struct Search<'a> {
    source: &'a dyn Source,
    request: &'a Request,
    /// Numbers of micro-batches to choose from, fewest first.
    counts: Vec<usize>,
    chosen: Option<Built>,
    /// The plan with the lowest peak.
    least: Option<Built>,
    /// Why a number of micro-batches is not possible at all.
    refused: Option<PlanError>,
}

impl Search<'_> {
    /// The plan for `counts[position]`; `None` where a tensor would be too large for the device.
    fn try_position(&mut self, position: usize) -> Result<Option<Built>, PlanError> {
        let parts = microbatch::split(self.request.batch, self.counts[position]);
        match build(self.source, self.request, &parts) {
            Ok(built) => Ok(Some(built)),
            Err(refused @ PlanError::Binding { .. }) => {
                self.refused = Some(refused);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn fits(&self, built: &Built) -> bool {
        self.request.budget_bytes.is_none_or(|budget_bytes| built.planned.plan.peak_bytes <= budget_bytes)
    }

    /// Looks at numbers of micro-batches spread over all there are, then narrows down between the first that fits and
    /// the last that does not.
    fn run(&mut self) -> Result<(), PlanError> {
        let mut too_large = None;
        let mut first_fit = None;
        for position in microbatch::spread(self.counts.len()) {
            let Some(built) = self.try_position(position)? else {
                too_large = Some(position);
                continue;
            };
            let peak_bytes = built.planned.plan.peak_bytes;
            let keep = self.least.as_ref().is_none_or(|least| peak_bytes < least.planned.plan.peak_bytes);
            let copy = || Built { planned: built.planned.clone(), peak_tensors: built.peak_tensors.clone() };
            if self.chosen.is_none() && self.fits(&built) {
                self.chosen = Some(copy());
                first_fit = Some(position);
            } else if self.chosen.is_none() {
                too_large = Some(position);
            }
            if keep {
                self.least = Some(built);
            }
        }
        let (Some(mut low), Some(mut high)) = (too_large, first_fit) else { return Ok(()) };
        while low + 1 < high {
            let middle = low.midpoint(high);
            match self.try_position(middle)? {
                Some(built) if self.fits(&built) => {
                    self.chosen = Some(built);
                    high = middle;
                }
                _ => low = middle,
            }
        }
        Ok(())
    }

    fn finish(mut self, mixing: Option<&str>) -> Result<Planned, PlanError> {
        let Some(least) = self.least.take() else {
            return Err(self.refused.unwrap_or_else(|| PlanError::Request("there is nothing to plan".into())));
        };
        let Some(chosen) = self.chosen.take() else {
            return Err(infeasible(self.request, &least, mixing));
        };
        let mut planned = chosen.planned;
        (planned.plan.unconstrained_peak_bytes, planned.plan.unconstrained_step_ns) =
            self.unconstrained(&planned.plan)?;
        planned.plan.minimum_budget_bytes = least.planned.plan.peak_bytes.min(planned.plan.peak_bytes);
        check::check(&planned.plan, &planned.graphs)?;
        Ok(planned)
    }

    /// Peak and time with the whole batch at once, even where the device could not bind such large tensors.
    fn unconstrained(&self, plan: &Plan) -> Result<(u64, u64), PlanError> {
        if plan.micro_batches.len() == 1 {
            return Ok((plan.peak_bytes, plan.predicted_step_ns));
        }
        let mut request = self.request.clone();
        request.limits.max_binding_bytes = u64::MAX;
        request.limits.max_buffer_bytes = u64::MAX;
        let plan = build(self.source, &request, &[request.batch])?.planned.plan;
        Ok((plan.peak_bytes, plan.predicted_step_ns))
    }
}

/// The plan with nothing moved or run twice.
fn build(source: &dyn Source, request: &Request, micro_batches: &[usize]) -> Result<Built, PlanError> {
    let draft = Draft::new(source, request, micro_batches)?;
    draft.build(request, &draft.plain())
}

fn infeasible(request: &Request, least: &Built, mixing: Option<&str>) -> PlanError {
    let plan = &least.planned.plan;
    let budget_bytes = request.budget_bytes.unwrap_or(u64::MAX);
    let minimum_budget_bytes = plan.peak_bytes;
    let named: Vec<_> = least
        .peak_tensors
        .iter()
        .take(NAMED_TENSORS)
        .map(|(name, bytes, _)| format!("`{name}` {}", format_bytes(*bytes)))
        .collect();
    let mut totals: BTreeMap<ArenaRole, u64> = BTreeMap::new();
    for arena in &plan.arenas {
        *totals.entry(arena.role).or_default() += arena.size_bytes;
    }
    let mut totals: Vec<_> =
        totals.into_iter().map(|(role, bytes)| format!("{role} {}", format_bytes(bytes))).collect();
    totals.push(format!("staging {}", format_bytes(plan.staging.total_bytes())));
    if plan.baseline_bytes > 0 {
        totals.push(format!("device {}", format_bytes(plan.baseline_bytes)));
    }
    let advice = match (mixing, request.micro_batches) {
        (Some(mixing), _) => format!("a smaller batch ({mixing}, so it cannot be split)"),
        (None, Some(count)) if count < request.batch => "more micro-batches".to_owned(),
        _ => "a smaller model, or an optimizer with less state".to_owned(),
    };
    let message = format!(
        "a budget of {} is too small: the smallest that works is {} ({minimum_budget_bytes} bytes, with micro-batches \
         {}); in memory at its peak: {}{}; in total: {}; use a budget of at least {minimum_budget_bytes} bytes, or {advice}",
        format_bytes(budget_bytes),
        format_bytes(minimum_budget_bytes),
        super::explain::format_parts(&plan.micro_batches),
        named.join(", "),
        if least.peak_tensors.len() > NAMED_TENSORS { ", …" } else { "" },
        totals.join(", "),
    );
    let blocking = least.peak_tensors.iter().map(|(name, bytes, _)| (name.clone(), *bytes)).collect();
    PlanError::Infeasible { budget_bytes, minimum_budget_bytes, blocking, message }
}
