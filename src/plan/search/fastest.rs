//! The layout that takes least time within a budget: each candidate is looked at quickly, and what is promising once more.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use super::Allowance;
use super::fit::{Goal, packed, plain, quick, thorough};
use crate::error::PlanError;
use crate::plan::candidate::{Candidates, Form, Key, Size};
use crate::plan::layout::placement::MOST_WORK;
use crate::plan::layout::{self, Layout};
use crate::plan::schedule::OffloadPolicy;

/// The share of what is left for quick looks that one candidate takes at most.
const OWN_SHARE: u64 = 3;
/// Candidates that are looked at where programs are large, besides those near: to make them takes long.
const LARGE_CANDIDATES: usize = 4;
/// What is worth it to pack the chosen layout more tightly.
const PACK_WORK: u64 = MOST_WORK / 8;

/// What is looked for: the layout that takes least time.
pub(super) struct Query<'s, 'a> {
    pub(super) budget_bytes: u64,
    /// Whether values may move to the host tier.
    pub(super) offload: bool,
    /// Nothing that takes longer is of use, and nothing quicker is needed.
    pub(super) step_ns: Range<u64>,
    /// Positions in the numbers of micro-batches.
    pub(super) positions: RangeInclusive<usize>,
    /// Only these; all where there are none.
    pub(super) forms: Vec<Form>,
    /// Layouts for budgets near this one, to start from.
    pub(super) near: &'s [&'s Layout<'a>],
    /// Work that may be done.
    pub(super) work: u64,
}

/// The best layout of each form so far.
type Best<'a> = BTreeMap<Form, Layout<'a>>;

fn least_ns(best: &Best<'_>) -> u64 {
    best.values().map(|layout| layout.step_ns).min().unwrap_or(u64::MAX)
}

/// How slow a layout that was found with little work may be, beside the quickest, to be worth more.
fn worth_searching(quickest_ns: u64) -> u64 {
    quickest_ns.saturating_add(quickest_ns / 10)
}

/// The fastest layout that is found; none that is out of the wanted range.
pub(super) fn fastest<'a>(
    candidates: &mut Candidates<'a>,
    query: &Query<'_, 'a>,
) -> Result<Option<Rc<Layout<'a>>>, PlanError> {
    let allowance = Allowance::new(query.work);
    // Half of it for quick looks.
    let best = allowance.share(2, |allowance| quickest(candidates, query, allowance))?;
    let most_ns = worth_searching(least_ns(&best));
    let mut chosen: Option<Layout<'a>> = None;
    for mut layout in best.into_values() {
        let quick_ns = layout.step_ns;
        let is_worth_it = quick_ns < most_ns && quick_ns > query.step_ns.start && !allowance.is_spent();
        if !layout.schedule.is_plain() && is_worth_it {
            let near: Vec<_> = query.near.iter().copied().chain([&layout]).collect();
            let goal = Goal { budget_bytes: query.budget_bytes, most_ns: u64::MAX, near: &near };
            if let Some(better) = thorough(&layout, goal, &allowance)
                && better.step_ns < quick_ns
            {
                layout = better;
            }
        }
        if chosen.as_ref().is_none_or(|chosen| layout.step_ns < chosen.step_ns) {
            chosen = Some(layout);
        }
    }
    // All others only had to be within the budget.
    let chosen = chosen.map(|layout| packed(layout.into(), PACK_WORK));
    Ok(chosen.filter(|layout| query.step_ns.contains(&layout.step_ns)))
}

/// The quickest layout of each form that is found with little work: which one is quickest of all may change once each is
/// searched with more.
fn quickest<'a>(
    candidates: &mut Candidates<'a>,
    query: &Query<'_, 'a>,
    allowance: &Allowance,
) -> Result<Best<'a>, PlanError> {
    let &Query { budget_bytes, offload, ref step_ns, near, .. } = query;
    let mut best = Best::new();
    for key in in_order(candidates, query) {
        if allowance.is_spent() {
            break;
        }
        if !key.form.fused && best.values().any(|layout| layout.schedule.is_plain()) {
            continue;
        }
        let Some(candidate) = candidates.get(key)? else { continue };
        // What costs more with nothing recomputed or moved does so with it.
        if candidate.plain_ns() >= least_ns(&best).min(step_ns.end) {
            continue;
        }
        let fixed_bytes = layout::fixed_bytes(&candidate, &OffloadPolicy::default());
        if fixed_bytes + candidate.plain_live_bytes() <= budget_bytes {
            let plain = plain(&candidate, budget_bytes);
            if plain.peak_bytes <= budget_bytes {
                // What is faster than the plan for more memory is of no use: that one would be slower.
                if plain.step_ns >= step_ns.start {
                    best.insert(key.form, plain);
                }
                continue;
            }
        }
        let of_form = best.get(&key.form).map_or(u64::MAX, |layout| layout.step_ns);
        let most_ns = of_form.min(worth_searching(least_ns(&best).min(step_ns.end)));
        // Something is left for those that follow.
        let goal = Goal { budget_bytes, most_ns, near };
        if let Some(layout) = allowance.share(OWN_SHARE, |allowance| quick(&candidate, goal, offload, allowance)) {
            best.insert(key.form, layout);
        }
    }
    Ok(best)
}

/// The candidates of a search: first those that plans for near budgets are made of, since whatever is slower need not
/// be looked at closely, and work may run out; then fused ones before others, and few micro-batches before many.
fn in_order(candidates: &Candidates<'_>, query: &Query<'_, '_>) -> Vec<Key> {
    let mut all = Vec::new();
    for &fused in candidates.fusions() {
        for &count in &candidates.counts[query.positions.clone()] {
            let forms = candidates.forms(fused).into_iter();
            let forms = forms.filter(|form| query.forms.is_empty() || query.forms.contains(form));
            all.extend(forms.map(|form| Key { count, form }));
        }
    }
    let near: Vec<_> = query.near.iter().map(|layout| layout.candidate().key()).collect();
    if candidates.size == Size::Large {
        // Fused ones, at numbers of micro-batches from the fewest to the most: the same for each search.
        let fused = |key: &Key| key.form.fused == candidates.request.levers.fusion;
        let step = all.iter().filter(|key| fused(key)).count().div_ceil(LARGE_CANDIDATES).max(1);
        let others: Vec<_> = all.iter().copied().filter(fused).step_by(step).collect();
        all.retain(|key| near.contains(key) || others.contains(key));
    }
    all.sort_by_key(|key| !near.contains(key));
    all
}
