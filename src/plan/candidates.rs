//! What a step may look like: numbers of micro-batches and forms of what backward reads, each fitted to a budget.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::rc::Rc;

use super::allowance::Allowance;
use super::build::Draft;
use super::fit::{self, Fit};
use super::lifetime::FEWER_SAMPLES;
use super::microbatch::{self, Mixing};
use super::placement::MOST_WORK;
use super::{Bound, Form, Plan, Planned, Request, SavedActivations, Source};
use crate::error::{GraphError, PlanError};

/// Numbers of micro-batches that are looked at for the smallest budget.
const LEAST_COUNTS: usize = 4;

/// The share of what is left for quick looks that one candidate takes at most.
const OWN_SHARE: u64 = 3;
/// Candidates that are looked at where programs are large, besides those near: to make them takes long.
const LARGE_CANDIDATES: usize = 4;
/// What a node takes to build the graph of a program and to order it, in units of work.
const DRAFT_WORK: u64 = 2_500;
/// What is worth it to pack a plan that is chosen more tightly, and the plan with the smallest budget.
const PACK_WORK: u64 = MOST_WORK / 8;
const LEAST_PACK_WORK: u64 = MOST_WORK / 2;

/// What helps where one sample is too large.
const SMALLER: &str = "smaller layers or samples";

/// The candidates of a request: its budget does not matter here.
pub(super) struct Candidates<'a> {
    source: &'a dyn Source,
    pub(super) request: &'a Request,
    pub(super) mixing: Option<Mixing>,
    /// Numbers of micro-batches to choose from, fewest first.
    counts: Vec<usize>,
    /// Programs made so far; `None` where there are none.
    drafts: BTreeMap<(usize, Form), Option<Rc<Draft>>>,
    /// How long searches take, from 0 to 2: the most of all programs made so far.
    pub(super) size: usize,
    /// Why a number of micro-batches is not possible at all: the largest such number.
    refused: Option<(usize, PlanError)>,
}

/// A search for the plan that takes least time.
pub(super) struct Wanted<'a> {
    pub(super) budget_bytes: u64,
    /// Whether values may move to the host tier.
    pub(super) offload: bool,
    /// Nothing that takes longer is of use, and nothing quicker than the first is needed.
    pub(super) step_ns: (u64, u64),
    /// Positions in the numbers of micro-batches.
    pub(super) positions: RangeInclusive<usize>,
    /// Only these; all where there are none.
    pub(super) forms: Vec<Form>,
    /// Plans for budgets near this one, to start from.
    pub(super) near: &'a [&'a Fit],
    /// Work that may be done.
    pub(super) work: u64,
}

/// The plans that need least memory.
pub(super) struct Least {
    pub(super) fit: Fit,
    /// With nothing in the host tier; only where the device has no memory of its own.
    pub(super) without_host: Option<Fit>,
}

/// The best plan of each form so far.
type Best = BTreeMap<Form, (Fit, Rc<Draft>)>;

fn least_ns(best: &Best) -> u64 {
    best.values().map(|(fit, _)| fit.step_ns()).min().unwrap_or(u64::MAX)
}

/// How slow a plan that was found with little work may be, beside the quickest, to be worth more.
fn worth_searching(quickest_ns: u64) -> u64 {
    quickest_ns.saturating_add(quickest_ns / 10)
}

impl Fit {
    pub(super) fn plan(&self) -> &Plan {
        &self.built.plan
    }

    pub(super) fn peak_bytes(&self) -> u64 {
        self.plan().peak_bytes
    }

    pub(super) fn step_ns(&self) -> u64 {
        self.plan().predicted_step_ns
    }

    pub(super) fn form(&self) -> Form {
        Form { saved: self.plan().saved, fused: self.plan().fused }
    }
}

/// The plan with the lower peak.
fn lower(a: Option<Fit>, b: Fit) -> Fit {
    match a {
        Some(a) if a.peak_bytes() <= b.peak_bytes() => a,
        _ => b,
    }
}

impl<'a> Candidates<'a> {
    pub(super) fn new(source: &'a dyn Source, request: &'a Request) -> Result<Self, PlanError> {
        let batch = request.batch;
        if batch == 0 {
            return Err(PlanError::Request("a batch of 0 samples cannot be trained on: use at least 1".into()));
        }
        if batch > microbatch::MOST_SAMPLES {
            let most = microbatch::MOST_SAMPLES;
            return Err(PlanError::Request(format!("a batch of {batch} samples is too large: use at most {most}")));
        }
        let most = batch.min(microbatch::MOST);
        if let Some(count) = request.micro_batches
            && !(1..=most).contains(&count)
        {
            return Err(PlanError::Request(format!(
                "a batch of {batch} cannot be split into {count} micro-batches: use 1 to {most}"
            )));
        }
        let mixing = microbatch::mixing(source, batch).map_err(|error| match error {
            GraphError::TooLarge { .. } => PlanError::Request(format!("{error}: use {SMALLER}")),
            error => error.into(),
        })?;
        let counts = match (request.micro_batches, &mixing) {
            (Some(count), Some(Mixing { layer, advice })) if count > 1 => {
                let advice = advice.map_or_else(String::new, |advice| format!(", or {advice}"));
                return Err(PlanError::Request(format!(
                    "{layer}, so splitting the batch would change the result: use 1 micro-batch{advice}"
                )));
            }
            (Some(count), _) => vec![count],
            (None, Some(_)) => vec![1],
            (None, None) => {
                let all = microbatch::distinct_counts(batch);
                microbatch::spread(all.len()).into_iter().map(|position| all[position]).collect()
            }
        };
        Ok(Candidates { source, request, mixing, counts, drafts: BTreeMap::new(), size: 0, refused: None })
    }

    /// All positions in the numbers of micro-batches.
    pub(super) fn positions(&self) -> RangeInclusive<usize> {
        0..=self.counts.len() - 1
    }

    /// The position of a plan's number of micro-batches.
    pub(super) fn position(&self, fit: &Fit) -> usize {
        self.counts.partition_point(|&count| count < fit.plan().micro_batches.len())
    }

    /// Why there is no plan at all, with advice that can be followed.
    pub(super) fn refusal(&self) -> PlanError {
        let advice = microbatch::fewer_samples(self.request, self.mixing.as_ref()).unwrap_or(SMALLER);
        // Batch statistics keep a batch together that would fit in parts.
        let other = self.mixing.as_ref().and_then(|mixing| mixing.advice).filter(|_| self.request.batch > 1);
        let advice = other.map_or_else(|| advice.to_owned(), |other| format!("{advice}, or {other}"));
        match self.refused.clone() {
            Some((_, PlanError::Binding { value, size_bytes, limit_bytes, advice: given }))
                if given == FEWER_SAMPLES =>
            {
                PlanError::Binding { value, size_bytes, limit_bytes, advice }
            }
            Some((_, PlanError::Graph(error @ GraphError::TooLarge { .. }))) => {
                PlanError::Request(format!("{error}: use {advice}"))
            }
            Some((_, error)) => error,
            None => PlanError::Request("there is nothing to plan".into()),
        }
    }

    /// The programs for so many micro-batches; none where a tensor would be too large, or a layer cannot take so few
    /// samples.
    fn draft(&mut self, count: usize, form: Form, allowance: &Allowance) -> Result<Option<Rc<Draft>>, PlanError> {
        if let Some(known) = self.drafts.get(&(count, form)) {
            return Ok(known.clone());
        }
        let parts = microbatch::split(self.request.batch, count);
        let draft = match Draft::new(self.source, self.request, &parts, form) {
            Ok(draft) => Some(Rc::new(draft)),
            Err(error @ (PlanError::Binding { .. } | PlanError::Graph(_))) => {
                if self.refused.as_ref().is_none_or(|&(largest, _)| count >= largest) {
                    self.refused = Some((count, error));
                }
                None
            }
            Err(error) => return Err(error),
        };
        allowance.spend(draft.as_ref().map_or(0, |draft| DRAFT_WORK * draft.nodes() as u64));
        self.size = draft.as_ref().map_or(0, |draft| fit::size(draft)).max(self.size);
        self.drafts.insert((count, form), draft.clone());
        Ok(draft)
    }

    /// The programs that a plan is made of.
    fn draft_of(&mut self, fit: &Fit) -> Result<Rc<Draft>, PlanError> {
        let draft = self.draft(fit.plan().micro_batches.len(), fit.form(), &Allowance::new(0))?;
        Ok(draft.expect("bug: a plan without programs"))
    }

    /// A plan with its graphs.
    pub(super) fn planned(&mut self, fit: &Fit) -> Result<Planned, PlanError> {
        Ok(self.draft_of(fit)?.planned(fit.plan().clone()))
    }

    /// The forms of graphs to choose from, with elementwise nodes joined or apart.
    fn forms(&self, fused: bool) -> Vec<Form> {
        let all_saved = if self.request.levers.compression {
            &[SavedActivations::Full, SavedActivations::Compressed][..]
        } else {
            &[SavedActivations::Full]
        };
        all_saved.iter().map(|&saved| Form { saved, fused }).collect()
    }

    /// Whether to join nodes. Joined nodes take less time, but all that they read is in memory at once: where memory is so
    /// short that values come and go, they may be better apart.
    fn joinings(&self) -> &'static [bool] {
        if self.request.levers.fusion { &[true, false] } else { &[false] }
    }

    /// The fastest plan without a budget, nothing run again or moved: mostly that with the fewest micro-batches that are possible,
    /// but kernels may take large batches more slowly than small ones. With large programs only the fewest are looked at.
    pub(super) fn unlimited(&mut self) -> Result<Option<Fit>, PlanError> {
        let mut fastest: Option<Rc<Draft>> = None;
        for position in self.positions() {
            for form in self.forms(self.request.levers.fusion) {
                let Some(draft) = self.draft(self.counts[position], form, &Allowance::new(0))? else { continue };
                let step_ns = |draft: &Draft| draft.plain_ns(self.request);
                if fastest.as_ref().is_none_or(|fastest| step_ns(&draft) < step_ns(fastest)) {
                    fastest = Some(draft);
                }
            }
            if fastest.is_some() && self.size > 1 {
                break;
            }
        }
        fastest.map(|draft| fit::plain(&draft, self.request, 0)).transpose()
    }

    /// Peak and time of the fastest plan with nothing run again or moved and the fewest micro-batches, even where the
    /// device could not bind such large tensors; those of `unlimited` where no kernel could count them.
    pub(super) fn unconstrained(&mut self, unlimited: &Fit) -> Result<(u64, u64), PlanError> {
        let mut fastest = (unlimited.peak_bytes(), unlimited.step_ns());
        if unlimited.plan().micro_batches.len() == self.counts[0] {
            return Ok(fastest);
        }
        let mut request = self.request.clone();
        request.limits.max_binding_bytes = u64::MAX;
        request.limits.max_buffer_bytes = u64::MAX;
        let parts = microbatch::split(request.batch, self.counts[0]);
        let mut found = false;
        for form in self.forms(request.levers.fusion) {
            let draft = match Draft::new(self.source, &request, &parts, form) {
                Err(PlanError::Graph(_)) => continue,
                draft => draft?,
            };
            let plan = draft.build(&request, &draft.plain(), 0, MOST_WORK)?.plan;
            if !found || plan.predicted_step_ns < fastest.1 {
                fastest = (plan.peak_bytes, plan.predicted_step_ns);
            }
            found = true;
        }
        Ok(fastest)
    }

    /// The plan within the budget that takes least time.
    pub(super) fn cheapest(&mut self, wanted: &Wanted<'_>) -> Result<Option<Fit>, PlanError> {
        let allowance = Allowance::new(wanted.work);
        // Half of it for quick looks.
        let best = allowance.share(2, |allowance| self.quickest(wanted, allowance))?;
        let &Wanted { budget_bytes, step_ns: (enough_ns, _), near, .. } = wanted;
        let most_ns = worth_searching(least_ns(&best));
        let mut chosen: Option<(Fit, Rc<Draft>)> = None;
        for (mut fit, draft) in best.into_values() {
            let quick_ns = fit.step_ns();
            let is_worth_it = quick_ns < most_ns && quick_ns > enough_ns && !allowance.is_spent();
            if !fit.is_plain() && is_worth_it {
                let known: Vec<&Fit> = near.iter().copied().chain([&fit]).collect();
                if let Some(better) =
                    fit::thorough(&draft, self.request, budget_bytes, &fit.choice, &known, &allowance)?
                    && better.step_ns() < quick_ns
                {
                    fit = better;
                }
            }
            if chosen.as_ref().is_none_or(|(chosen, _)| fit.step_ns() < chosen.step_ns()) {
                chosen = Some((fit, draft));
            }
        }
        // All others only had to be within the budget.
        chosen.map(|(fit, draft)| fit::packed(&draft, self.request, fit, PACK_WORK)).transpose()
    }

    /// The quickest plan of each form that is found with little work: which one is quickest of all may change once each is
    /// searched with more.
    fn quickest(&mut self, wanted: &Wanted<'_>, allowance: &Allowance) -> Result<Best, PlanError> {
        let &Wanted { budget_bytes, offload, step_ns: (enough_ns, limit_ns), near, .. } = wanted;
        let mut best = Best::new();
        for (position, form) in self.in_order(wanted) {
            if allowance.is_spent() {
                break;
            }
            if !form.fused && best.values().any(|(fit, _)| fit.is_plain()) {
                continue;
            }
            let Some(draft) = self.draft(self.counts[position], form, &Allowance::new(0))? else { continue };
            // What costs more with nothing run again or moved does so with it.
            if draft.plain_ns(self.request) >= least_ns(&best).min(limit_ns) {
                continue;
            }
            if draft.plain_least_bytes(self.request)? <= budget_bytes {
                let plain = fit::plain(&draft, self.request, budget_bytes)?;
                if plain.peak_bytes() <= budget_bytes {
                    // What is faster than the plan for more memory is of no use: that one would be slower.
                    if plain.step_ns() >= enough_ns {
                        best.insert(form, (plain, draft));
                    }
                    continue;
                }
            }
            let of_form = best.get(&form).map_or(u64::MAX, |(fit, _)| fit.step_ns());
            let most_ns = of_form.min(worth_searching(least_ns(&best).min(limit_ns)));
            // Something is left for those that follow.
            let quick = |allowance: &Allowance| {
                fit::quick(&draft, self.request, budget_bytes, (most_ns, offload), near, allowance)
            };
            if let Some(fit) = allowance.share(OWN_SHARE, quick)? {
                best.insert(form, (fit, draft));
            }
        }
        Ok(best)
    }

    /// The candidates of a search: first those that plans for near budgets are made of, since whatever is slower need not
    /// be looked at closely, and work may run out; then joined ones before others, and few micro-batches before many.
    fn in_order(&self, wanted: &Wanted<'_>) -> Vec<(usize, Form)> {
        let mut all = Vec::new();
        for &fused in self.joinings() {
            for position in wanted.positions.clone() {
                let forms = self.forms(fused).into_iter();
                let forms = forms.filter(|form| wanted.forms.is_empty() || wanted.forms.contains(form));
                all.extend(forms.map(|form| (position, form)));
            }
        }
        let is_near = |(position, form): (usize, Form)| {
            wanted.near.iter().any(|fit| (self.position(fit), fit.form()) == (position, form))
        };
        if self.size > 1 {
            // Joined ones, at numbers of micro-batches from the fewest to the most: the same for each search.
            let joined = |&(_, form): &(usize, Form)| form.fused == self.request.levers.fusion;
            let step = all.iter().filter(|candidate| joined(candidate)).count().div_ceil(LARGE_CANDIDATES).max(1);
            let others: Vec<_> = all.iter().copied().filter(joined).step_by(step).collect();
            all.retain(|&candidate| is_near(candidate) || others.contains(&candidate));
        }
        all.sort_by_key(|&candidate| !is_near(candidate));
        all
    }

    /// The plans with the lowest peak.
    pub(super) fn least(&mut self, work: u64) -> Result<Option<Least>, PlanError> {
        let allowance = Allowance::new(work);
        let mut least: Option<Fit> = None;
        let mut without_host: Option<Fit> = None;
        let levers = self.request.levers;
        let both = levers.offload && self.request.costs.unified_memory;
        let possible = self.possible(&allowance)?;
        let Some(last) = possible.len().checked_sub(1) else { return Ok(None) };
        let positions: BTreeSet<_> = (0..LEAST_COUNTS).map(|i| possible[i * last / (LEAST_COUNTS - 1)]).collect();
        // The most micro-batches first: what they need spares looking closely at what needs more. Of equal ones the fewest count.
        let peak_bytes = |fit: &Option<Fit>| fit.as_ref().map_or(u64::MAX, Fit::peak_bytes);
        for position in positions.into_iter().rev() {
            if allowance.is_spent() && least.is_some() {
                break;
            }
            let (mut least_here, mut still_here): (Option<Fit>, Option<Fit>) = (None, None);
            for form in self.joinings().iter().flat_map(|&fused| self.forms(fused)).collect::<Vec<_>>() {
                if allowance.is_spent() && least_here.is_some() {
                    break;
                }
                let count = self.counts[position];
                // Joined nodes are few enough only where they are not many apart, which spares making them.
                let apart = Form { fused: false, ..form };
                if form.fused && self.draft(count, apart, &allowance)?.is_none_or(|apart| fit::size(&apart) > 1) {
                    continue;
                }
                let Some(draft) = self.draft(count, form, &allowance)? else { continue };
                if form.fused && fit::size(&draft) > 0 {
                    continue;
                }
                // What needs no host tier counts for itself only where that matters.
                let below = |here, all| peak_bytes(here).min(peak_bytes(all).saturating_add(1));
                let any_bytes = below(&least_here, &least);
                let still_bytes = if both { below(&still_here, &without_host) } else { any_bytes };
                for found in fit::least(&draft, self.request, both, [any_bytes, still_bytes], &allowance)? {
                    if both && !found.choice.moves {
                        still_here = Some(lower(still_here, found.clone()));
                    }
                    least_here = Some(lower(least_here, found));
                }
            }
            for (here, all) in [(least_here, &mut least), (still_here, &mut without_host)] {
                if let Some(here) = here.filter(|here| here.peak_bytes() <= peak_bytes(all)) {
                    *all = Some(here);
                }
            }
            // Large programs are built anew where they are wanted later: few of them are, and together they take much memory.
            let lowest = least.as_ref().map(|fit| fit.plan().micro_batches.len());
            let fewest = self.counts[possible[0]];
            let is_kept = |count: usize| Some(count) == lowest || count == fewest;
            self.drafts
                .retain(|&(count, _), draft| is_kept(count) || draft.as_ref().is_none_or(|draft| fit::size(draft) < 2));
        }
        let squeezing = Allowance::new(work / 2);
        let mut squeezed = |fit: Fit| {
            let draft = self.draft_of(&fit)?;
            if fit::size(&draft) > 1 {
                return Ok(fit);
            }
            let squeezed = fit::squeezed(&draft, self.request, fit, &squeezing)?;
            fit::packed(&draft, self.request, squeezed, LEAST_PACK_WORK)
        };
        let without_host = without_host.map(&mut squeezed).transpose()?;
        let least = least.map(&mut squeezed).transpose()?;
        let Some(mut least) = least else { return Ok(None) };
        if let Some(still) = &without_host
            && still.peak_bytes() <= least.peak_bytes()
        {
            least = still.clone();
        }
        Ok(Some(Least { fit: least, without_host }))
    }

    /// Positions between the fewest and the most micro-batches that are possible.
    fn possible(&mut self, allowance: &Allowance) -> Result<Vec<usize>, PlanError> {
        let form = self.forms(false)[0];
        let mut positions: Vec<_> = self.positions().collect();
        while let Some(&last) = positions.last()
            && self.draft(self.counts[last], form, allowance)?.is_none()
        {
            positions.pop();
        }
        let mut first = 0;
        while first < positions.len() && self.draft(self.counts[positions[first]], form, allowance)?.is_none() {
            first += 1;
        }
        Ok(positions.split_off(first))
    }

    /// What no plan with the same micro-batches and forms can avoid. Where that is more than the plan takes, by rounding, the
    /// plan is its own bound.
    pub(super) fn bound(&mut self, fit: &Fit, budget_bytes: u64) -> Result<Bound, PlanError> {
        let draft = self.draft_of(fit)?;
        let bound = fit::bound(&draft, self.request, budget_bytes, &fit.choice)?;
        Ok(Bound { step_ns: bound.step_ns.min(fit.step_ns() as f64), ..bound })
    }
}
