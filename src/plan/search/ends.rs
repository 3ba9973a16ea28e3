//! The ends of all that is possible: the layout that needs least memory and the one that takes least time, whatever the
//! budget.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::Allowance;
use super::fit::{packed, plain};
use super::smallest::{PeakLimits, smallest, squeezed};
use crate::error::PlanError;
use crate::plan::candidate::{Candidate, Candidates, Form, Key, Size, microbatch};
use crate::plan::layout::Layout;
use crate::plan::layout::placement::MOST_WORK;
use crate::plan::schedule::Schedule;

/// Work on the layouts with the smallest budgets, in units of about a nanosecond.
const LEAST_WORK: u64 = 600_000_000;
/// Numbers of micro-batches that are looked at for the smallest budget.
const LEAST_COUNTS: usize = 4;
/// What is worth it to pack the layout with the smallest budget more tightly.
const PACK_WORK: u64 = MOST_WORK / 2;

/// The layouts between which those for all budgets are.
#[derive(Clone, Debug)]
pub(crate) struct Ends<'a> {
    /// With the smallest budget.
    pub(crate) least: Rc<Layout<'a>>,
    /// As quick as possible.
    pub(crate) fastest: Rc<Layout<'a>>,
    /// With the smallest budget that needs no host tier; only where the device has no memory of its own.
    pub(crate) without_host: Option<Rc<Layout<'a>>>,
}

/// What a step takes with the whole batch at once and no budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unconstrained {
    pub(crate) peak_bytes: u64,
    pub(crate) step_ns: u64,
}

impl<'a> Ends<'a> {
    /// Both ends, and what a step takes without any constraint.
    pub(crate) fn find(candidates: &mut Candidates<'a>) -> Result<(Self, Unconstrained), PlanError> {
        let Some(fastest) = unlimited(candidates)?.map(Rc::new) else { return Err(candidates.refusal()) };
        let unconstrained = unconstrained(candidates, &fastest)?;
        let mut ends = least(candidates, &fastest)?;
        if fastest.peak_bytes < ends.least.peak_bytes {
            ends.least = fastest;
        }
        for other in ends.without_host.iter().chain([&ends.least]) {
            if other.step_ns < ends.fastest.step_ns {
                ends.fastest = other.clone();
            }
        }
        Ok((ends, unconstrained))
    }
}

/// The fastest layout without a budget, nothing recomputed or moved: mostly that with the fewest micro-batches that are possible,
/// but kernels may take large batches more slowly than small ones. With large programs only the fewest are looked at.
fn unlimited<'a>(candidates: &mut Candidates<'a>) -> Result<Option<Layout<'a>>, PlanError> {
    let mut fastest: Option<Rc<Candidate<'_>>> = None;
    for count in candidates.counts.clone() {
        for form in candidates.forms(candidates.request.levers.fusion) {
            let Some(candidate) = candidates.get(Key { count, form })? else { continue };
            if fastest.as_ref().is_none_or(|fastest| candidate.plain_ns() < fastest.plain_ns()) {
                fastest = Some(candidate);
            }
        }
        if fastest.is_some() && candidates.size == Size::Large {
            break;
        }
    }
    Ok(fastest.map(|candidate| plain(&candidate, 0)))
}

/// What the fastest layout takes with nothing recomputed or moved and the fewest micro-batches, even where the device could
/// not bind such large tensors; what `fastest` takes where no kernel could count them.
fn unconstrained(candidates: &Candidates<'_>, fastest: &Layout<'_>) -> Result<Unconstrained, PlanError> {
    let taken = |layout: &Layout<'_>| Unconstrained { peak_bytes: layout.peak_bytes, step_ns: layout.step_ns };
    let fewest = candidates.counts[0];
    if fastest.candidate().micro_batches.len() == fewest {
        return Ok(taken(fastest));
    }
    let mut request = candidates.request.clone();
    request.limits.max_binding_bytes = u64::MAX;
    request.limits.max_buffer_bytes = u64::MAX;
    let mut least: Option<Unconstrained> = None;
    for form in candidates.forms(request.levers.fusion) {
        let micro_batches = microbatch::split(request.batch, fewest);
        let candidate = match Candidate::new(candidates.source, &request, micro_batches, form) {
            Err(PlanError::Graph(_)) => continue,
            candidate => Rc::new(candidate?),
        };
        let found = taken(&Layout::new(Schedule::plain(&candidate).into(), 0, MOST_WORK));
        if least.is_none_or(|least| found.step_ns < least.step_ns) {
            least = Some(found);
        }
    }
    Ok(least.unwrap_or_else(|| taken(fastest)))
}

/// The layout with the lower peak so far.
type Lowest<'a> = Option<Rc<Layout<'a>>>;

fn peak_bytes(lowest: &Lowest<'_>) -> u64 {
    lowest.as_ref().map_or(u64::MAX, |layout| layout.peak_bytes)
}

/// The layouts with the lowest peaks, beside the fastest; that one where nothing is found.
fn least<'a>(candidates: &mut Candidates<'a>, fastest: &Rc<Layout<'a>>) -> Result<Ends<'a>, PlanError> {
    let allowance = Allowance::new(LEAST_WORK);
    let mut ends = Ends { least: fastest.clone(), fastest: fastest.clone(), without_host: None };
    let request = candidates.request;
    let both = request.levers.offload && request.costs.unified_memory;
    let (mut least, mut without_host): (Lowest<'a>, Lowest<'a>) = (None, None);
    let possible = possible(candidates, &allowance)?;
    let Some(last) = possible.len().checked_sub(1) else { return Ok(ends) };
    let counts: BTreeSet<_> = (0..LEAST_COUNTS).map(|i| possible[i * last / (LEAST_COUNTS - 1)]).collect();
    // The most micro-batches first: what they need spares looking closely at what needs more. Of equal ones the fewest count.
    for count in counts.into_iter().rev() {
        if allowance.is_spent() && least.is_some() {
            break;
        }
        let (mut least_here, mut staying_here): (Lowest<'a>, Lowest<'a>) = (None, None);
        for form in candidates.fusions().iter().flat_map(|&fused| candidates.forms(fused)).collect::<Vec<_>>() {
            if allowance.is_spent() && least_here.is_some() {
                break;
            }
            // Fused nodes are few enough only where they are not many apart, which spares making them.
            let apart = Form { fused: false, ..form };
            if form.fused
                && charged(candidates, Key { count, form: apart }, &allowance)?
                    .is_none_or(|apart| apart.size() == Size::Large)
            {
                continue;
            }
            let Some(candidate) = charged(candidates, Key { count, form }, &allowance)? else { continue };
            if form.fused && candidate.size() > Size::Small {
                continue;
            }
            // What needs no host tier counts for itself only where that matters.
            let below = |here: &Lowest<'_>, all: &Lowest<'_>| peak_bytes(here).min(peak_bytes(all).saturating_add(1));
            let moving_bytes = below(&least_here, &least);
            let staying_bytes = if both { below(&staying_here, &without_host) } else { moving_bytes };
            let limits = PeakLimits { moving_bytes, staying_bytes };
            for found in smallest(&candidate, both, limits, &allowance).into_iter().map(Rc::new) {
                if both && !found.schedule.offload.moves && found.peak_bytes < peak_bytes(&staying_here) {
                    staying_here = Some(found.clone());
                }
                if found.peak_bytes < peak_bytes(&least_here) {
                    least_here = Some(found);
                }
            }
        }
        for (here, all) in [(least_here, &mut least), (staying_here, &mut without_host)] {
            if let Some(here) = here.filter(|here| here.peak_bytes <= peak_bytes(all)) {
                *all = Some(here);
            }
        }
        let lowest = least.as_ref().map(|layout| layout.candidate().micro_batches.len());
        candidates.drop_large(|count| Some(count) == lowest || count == possible[0]);
    }
    let squeezing = Allowance::new(LEAST_WORK / 2);
    let squeeze = |layout: Rc<Layout<'a>>| match layout.candidate().size() {
        Size::Large => layout,
        _ => packed(squeezed(layout, &squeezing), PACK_WORK),
    };
    ends.without_host = without_host.map(squeeze);
    let Some(least) = least.map(squeeze) else { return Ok(ends) };
    ends.least = match &ends.without_host {
        Some(staying) if staying.peak_bytes <= least.peak_bytes => staying.clone(),
        _ => least,
    };
    Ok(ends)
}

/// Numbers of micro-batches between the fewest and the most that are possible.
fn possible(candidates: &mut Candidates<'_>, allowance: &Allowance) -> Result<Vec<usize>, PlanError> {
    let form = candidates.forms(false)[0];
    let mut counts = candidates.counts.clone();
    while let Some(&last) = counts.last()
        && charged(candidates, Key { count: last, form }, allowance)?.is_none()
    {
        counts.pop();
    }
    let mut first = 0;
    while first < counts.len() && charged(candidates, Key { count: counts[first], form }, allowance)?.is_none() {
        first += 1;
    }
    Ok(counts.split_off(first))
}

/// A candidate, made at the expense of the allowance if it is not there yet.
fn charged<'a>(
    candidates: &mut Candidates<'a>,
    key: Key,
    allowance: &Allowance,
) -> Result<Option<Rc<Candidate<'a>>>, PlanError> {
    let before = candidates.work();
    let candidate = candidates.get(key)?;
    allowance.spend(candidates.work() - before);
    Ok(candidate)
}
