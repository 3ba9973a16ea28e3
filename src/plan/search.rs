//! Chooses what a step does to stay within the budget: how many micro-batches, in which form backward finds forward's
//! values, what moves to the host tier, and what runs again. Of all that fits, the plan that takes least time.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::build::Draft;
use super::fit::{self, Fit};
use super::infeasible::infeasible;
use super::{Bound, Form, Pass, Plan, Planned, Request, Source, Stash, check, microbatch, reasons};
use crate::error::PlanError;

/// Numbers of micro-batches that are looked at for the smallest budget.
const LEAST_COUNTS: usize = 4;

/// Plans a step under a budget.
///
/// Without [`Request::micro_batches`], the planner chooses their number. It looks for the plan that takes least time by
/// the cost model; micro-batches, recompute and offload all cost some.
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
    let whole_graph = source.graph(Pass::Only, batch, batch, Stash::Full)?;
    let mixing = microbatch::mixes_samples(&whole_graph).map(|node| {
        let node = whole_graph.node(node);
        let mixing = format!("layer `{}` ({}) mixes the samples of a batch", node.name, node.op.name());
        (mixing, node.op.split_advice())
    });
    let counts = match (request.micro_batches, &mixing) {
        (Some(count), Some((mixing, advice))) if count > 1 => {
            let advice = advice.map_or_else(String::new, |advice| format!(", or {advice}"));
            return Err(PlanError::Request(format!(
                "{mixing}, so splitting the batch would change the result: use 1 micro-batch{advice}"
            )));
        }
        (Some(count), _) => vec![count],
        (None, Some(_)) => vec![1],
        (None, None) => {
            let all = microbatch::distinct_counts(batch);
            microbatch::spread(all.len()).into_iter().map(|position| all[position]).collect()
        }
    };
    let mut search = Search { source, request, counts, drafts: BTreeMap::new(), refused: None };
    let (unconstrained_peak_bytes, unconstrained_step_ns) = search.unconstrained()?;
    let least = search.least()?;
    let chosen = match search.cheapest()? {
        Some(fit) => Some(fit),
        // The search of the least peak may find a way where the other did not.
        None => least.as_ref().filter(|least| search.is_within(&least.plan().peak_bytes)).cloned(),
    };
    let Some(least) = least else {
        return Err(search.refused.unwrap_or_else(|| PlanError::Request("there is nothing to plan".into())));
    };
    let Some(chosen) = chosen else {
        return Err(infeasible(request, &least, mixing.as_ref()));
    };
    let minimum_budget_bytes = least.plan().peak_bytes.min(chosen.plan().peak_bytes);
    let bound = search.bound(&chosen)?;
    let mut planned = chosen.built.planned;
    planned.plan.budget_bytes = request.budget_bytes;
    planned.plan.unconstrained_peak_bytes = unconstrained_peak_bytes;
    planned.plan.unconstrained_step_ns = unconstrained_step_ns;
    planned.plan.minimum_budget_bytes = minimum_budget_bytes;
    planned.plan.bound = bound;
    let programs = planned.plan.programs.iter().zip(&planned.graphs).enumerate();
    let reasons = programs.flat_map(|(i, (program, graph))| reasons::of_program(i, program, graph, &request.costs));
    planned.plan.reasons = reasons.collect();
    check::check(&planned.plan, &planned.graphs)?;
    Ok(planned)
}

struct Search<'a> {
    source: &'a dyn Source,
    request: &'a Request,
    /// Numbers of micro-batches to choose from, fewest first.
    counts: Vec<usize>,
    /// Programs made so far.
    drafts: BTreeMap<(usize, Form), Rc<Draft>>,
    /// Why a number of micro-batches is not possible at all.
    refused: Option<PlanError>,
}

/// How slow a plan that was found with little work may be, beside the quickest, to be worth more.
fn worth_searching(quickest_ns: u64) -> u64 {
    quickest_ns.saturating_add(quickest_ns / 10)
}

impl Fit {
    fn plan(&self) -> &Plan {
        &self.built.planned.plan
    }
}

impl Search<'_> {
    fn is_within(&self, peak_bytes: &u64) -> bool {
        self.request.budget_bytes.is_none_or(|budget_bytes| *peak_bytes <= budget_bytes)
    }

    /// The programs for so many micro-batches; none where a tensor would be too large for the device, or a layer cannot take
    /// so few samples.
    fn draft(&mut self, count: usize, form: Form) -> Result<Option<Rc<Draft>>, PlanError> {
        if let Some(known) = self.drafts.get(&(count, form)) {
            return Ok(Some(known.clone()));
        }
        let parts = microbatch::split(self.request.batch, count);
        match Draft::new(self.source, self.request, &parts, form) {
            Ok(draft) => {
                let draft = Rc::new(draft);
                self.drafts.insert((count, form), draft.clone());
                Ok(Some(draft))
            }
            Err(refused @ (PlanError::Binding { .. } | PlanError::Graph(_))) => {
                self.refused = Some(refused);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The forms of graphs to choose from, with elementwise nodes joined or apart.
    fn forms(&self, chains: bool) -> Vec<Form> {
        let stashes = if self.request.levers.compact { &[Stash::Full, Stash::Compact][..] } else { &[Stash::Full] };
        stashes.iter().map(|&stash| Form { stash, chains }).collect()
    }

    /// Whether to join nodes. Joined nodes take less time, but all that they read is in memory at once: where memory is so
    /// short that values come and go, they may be better apart.
    fn joinings(&self) -> &'static [bool] {
        if self.request.levers.chains { &[true, false] } else { &[false] }
    }

    /// The plan within the budget that takes least time. Where the device has no memory of its own, moving values to the host
    /// frees nothing: only where nothing else keeps the budget.
    fn cheapest(&mut self) -> Result<Option<Fit>, PlanError> {
        let offload = self.request.levers.offload;
        if offload
            && self.request.costs.unified_memory
            && let Some(fit) = self.cheapest_with(false)?
        {
            return Ok(Some(fit));
        }
        self.cheapest_with(offload)
    }

    fn cheapest_with(&mut self, offload: bool) -> Result<Option<Fit>, PlanError> {
        let counts = self.counts.len();
        // The best of each form: which is quickest may change once each is searched with all the work there is.
        let mut best: BTreeMap<Form, (Fit, Rc<Draft>)> = BTreeMap::new();
        let least_ns = |best: &BTreeMap<Form, (Fit, Rc<Draft>)>| {
            best.values().map(|(fit, _)| fit.plan().predicted_step_ns).min().unwrap_or(u64::MAX)
        };
        for (&chains, position) in self.joinings().iter().flat_map(|chains| (0..counts).map(move |at| (chains, at))) {
            if !chains && best.values().any(|(fit, draft)| fit.choice == draft.plain()) {
                break;
            }
            for form in self.forms(chains) {
                let Some(draft) = self.draft(self.counts[position], form)? else { continue };
                let plain = draft.build(self.request, &draft.plain())?;
                let plain_ns = plain.planned.plan.predicted_step_ns;
                // What costs more with nothing run again or moved does so with it.
                if plain_ns >= least_ns(&best) {
                    continue;
                }
                if self.is_within(&plain.planned.plan.peak_bytes) {
                    let choice = draft.plain();
                    best.insert(form, (Fit { built: plain, choice }, draft));
                    continue;
                }
                let Some(budget_bytes) = self.request.budget_bytes else { continue };
                let of_form = best.get(&form).map_or(u64::MAX, |(fit, _)| fit.plan().predicted_step_ns);
                let most_ns = of_form.min(worth_searching(least_ns(&best)));
                if let Some(fit) = fit::quick(&draft, self.request, budget_bytes, (most_ns, offload))? {
                    best.insert(form, (fit, draft));
                }
            }
            // Without a budget, fewer micro-batches are always better.
            if self.request.budget_bytes.is_none() && !best.is_empty() {
                break;
            }
        }
        let most_ns = worth_searching(least_ns(&best));
        let mut chosen: Option<Fit> = None;
        for (mut fit, draft) in best.into_values() {
            let quick_ns = fit.plan().predicted_step_ns;
            if let Some(budget_bytes) = self.request.budget_bytes
                && fit.choice != draft.plain()
                && quick_ns < most_ns
                && let Some(better) = fit::thorough(&draft, self.request, budget_bytes, &fit.choice)?
                && better.plan().predicted_step_ns < quick_ns
            {
                fit = better;
            }
            if chosen.as_ref().is_none_or(|chosen| fit.plan().predicted_step_ns < chosen.plan().predicted_step_ns) {
                chosen = Some(fit);
            }
        }
        Ok(chosen)
    }

    /// The plan with the lowest peak.
    fn least(&mut self) -> Result<Option<Fit>, PlanError> {
        let mut least: Option<Fit> = None;
        let last = self.counts.len() - 1;
        let positions: BTreeSet<_> = (0..LEAST_COUNTS).map(|i| i * last / (LEAST_COUNTS - 1)).collect();
        for position in positions {
            for form in self.forms(false) {
                let Some(draft) = self.draft(self.counts[position], form)? else { continue };
                for found in fit::least(&draft, self.request)? {
                    if least.as_ref().is_none_or(|least| found.plan().peak_bytes < least.plan().peak_bytes) {
                        least = Some(found);
                    }
                }
            }
        }
        Ok(least)
    }

    /// Peak and time of the fastest plan with nothing run again or moved and the fewest micro-batches, even where the
    /// device could not bind such large tensors.
    fn unconstrained(&mut self) -> Result<(u64, u64), PlanError> {
        let mut request = self.request.clone();
        request.limits.max_binding_bytes = u64::MAX;
        request.limits.max_buffer_bytes = u64::MAX;
        let mut fastest = None;
        for form in self.forms(self.request.levers.chains) {
            let draft = match self.draft(self.counts[0], form)? {
                Some(draft) => draft,
                None => {
                    let parts = microbatch::split(request.batch, self.counts[0]);
                    Rc::new(Draft::new(self.source, &request, &parts, form)?)
                }
            };
            let plan = draft.build(&request, &draft.plain())?.planned.plan;
            if fastest.is_none_or(|(_, step_ns)| plan.predicted_step_ns < step_ns) {
                fastest = Some((plan.peak_bytes, plan.predicted_step_ns));
            }
        }
        Ok(fastest.expect("bug: no form to keep values in"))
    }

    /// What no plan with the chosen micro-batches and forms can avoid.
    fn bound(&mut self, chosen: &Fit) -> Result<Option<Bound>, PlanError> {
        let Some(budget_bytes) = self.request.budget_bytes else { return Ok(None) };
        let plan = chosen.plan();
        let Some(draft) = self.draft(plan.micro_batches.len(), Form { stash: plan.stash, chains: plan.chains })? else {
            return Ok(None);
        };
        fit::bound(&draft, self.request, budget_bytes, &chosen.choice).map(Some)
    }
}
