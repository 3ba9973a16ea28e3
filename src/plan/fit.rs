//! Fits the programs of a step to a budget: what moves to the host tier, what runs again, and what that cannot cost less
//! than.

use std::collections::{BTreeMap, BTreeSet};

use super::build::{Built, Choice, Draft, Part};
use super::recompute::{Scheduling, hostable};
use super::schedule::{Effort, Lasting, LowerBound, certificate, least_peak, solve};
use super::{Bound, Levers, Request};
use crate::error::PlanError;
use crate::graph::Role;

/// Work of the local search on one program, in units of [`Effort::search_work`].
const SEARCH_WORK: u64 = 400_000_000;
/// A quick look is this much cheaper.
const QUICK: u64 = 12;
/// Times that a schedule is made for less memory because blocks did not pack as tightly as their sum.
const PACKING_TRIES: usize = 6;

/// Nodes from which a graph is large: fewer ways are tried.
const LARGE: usize = 600;

/// A plan with what was chosen for it.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    pub(super) built: Built,
    pub(super) choice: Choice,
}

/// Whether there are so many nodes that fewer ways are tried.
fn is_large(draft: &Draft) -> bool {
    draft.parts.iter().any(|part| part.order.len() > LARGE)
}

fn effort(operations: usize, quick: bool) -> Effort {
    let squared = (operations * operations) as u64;
    let search_work = (squared * 20_000).min(SEARCH_WORK) / if quick { QUICK } else { 1 };
    let bound_work = if quick { 4 * operations.max(500) } else { 60_000.max(12 * operations) };
    Effort { search_work, bound_work, good_enough: 0.001 }
}

/// Schedules all programs for a budget with these values in the host tier, and builds the plan.
fn schedule(
    draft: &Draft,
    request: &Request,
    budget_bytes: u64,
    (hosted, moves): (&BTreeSet<String>, bool),
    quick: bool,
) -> Result<Option<Fit>, PlanError> {
    let fixed_bytes = draft.fixed_bytes(request, hosted, moves)?;
    let Some(room_bytes) = Draft::room_bytes(budget_bytes, fixed_bytes) else { return Ok(None) };
    let levers = Levers { offload: moves, ..request.levers };
    let problems: Vec<_> = draft
        .parts
        .iter()
        .map(|part| Scheduling::of(part, &part.storage.hosting(&part.graph, hosted), &request.costs, levers))
        .collect();
    let mut choice = Choice { hosted: hosted.clone(), moves, events: vec![Vec::new(); problems.len()] };
    // Each program's room shrinks by what its blocks do not pack.
    let mut rooms = vec![room_bytes; problems.len()];
    let mut anew = vec![true; problems.len()];
    for _ in 0..PACKING_TRIES {
        for (number, scheduling) in problems.iter().enumerate().filter(|&(number, _)| anew[number]) {
            let solution = solve(&scheduling.problem, rooms[number], effort(scheduling.problem.len(), quick));
            let Some(entries) = solution.entries else { return Ok(None) };
            choice.events[number] = scheduling.events(&entries);
        }
        let built = draft.build(request, &choice)?;
        if built.planned.plan.peak_bytes <= budget_bytes {
            return Ok(Some(Fit { built, choice }));
        }
        for (number, &used_bytes) in built.used_bytes.iter().enumerate() {
            let over_bytes = used_bytes.saturating_sub(room_bytes);
            anew[number] = over_bytes > 0;
            rooms[number] = rooms[number].saturating_sub(over_bytes);
        }
        if !anew.contains(&true) {
            return Ok(None);
        }
    }
    Ok(None)
}

/// Sets of persistent values to keep in the host tier, from none to all that could be.
fn hosted_sets(draft: &Draft) -> Vec<BTreeSet<String>> {
    let hostable = hostable(&draft.parts);
    let of_role = |wanted: Role| hostable.iter().filter(|(.., role)| *role == wanted).count();
    let states = of_role(Role::State);
    let with_accumulators = states + of_role(Role::Accumulator);
    let mut lengths = vec![0, states / 4, states / 2, states * 3 / 4, states, with_accumulators, hostable.len()];
    lengths.dedup();
    lengths.into_iter().map(|length| hostable[..length].iter().map(|(name, ..)| name.clone()).collect()).collect()
}

/// A plan within the budget, found with little work, with or without offload; none where it would take at least `most_ns`.
pub(super) fn quick(
    draft: &Draft,
    request: &Request,
    budget_bytes: u64,
    (most_ns, offload): (u64, bool),
) -> Result<Option<Fit>, PlanError> {
    let mut best: Option<Fit> = None;
    let consider = |fit: Option<Fit>, best: &mut Option<Fit>| {
        let Some(fit) = fit else { return };
        let step_ns = fit.built.planned.plan.predicted_step_ns;
        let least_ns = best.as_ref().map_or(most_ns, |best| best.built.planned.plan.predicted_step_ns);
        if step_ns < least_ns {
            *best = Some(fit);
        }
    };
    let nothing = BTreeSet::new();
    if request.levers.recompute {
        consider(schedule(draft, request, budget_bytes, (&nothing, false), true)?, &mut best);
    }
    if offload {
        let mut worse = 0;
        let sets = hosted_sets(draft);
        let last = sets.len() - 1;
        let looked_at = |&(i, _): &(usize, _)| i == 0 || i == last || !is_large(draft);
        for (_, hosted) in sets.into_iter().enumerate().filter(looked_at) {
            let before = best.as_ref().map(|best| best.built.planned.plan.predicted_step_ns);
            consider(schedule(draft, request, budget_bytes, (&hosted, true), true)?, &mut best);
            // More in the host tier than is good gets worse and worse.
            let after = best.as_ref().map(|best| best.built.planned.plan.predicted_step_ns);
            worse = if after.is_some() && after == before { worse + 1 } else { 0 };
            if worse == 2 {
                break;
            }
        }
    }
    Ok(best)
}

/// The same choice of what is in the host tier, scheduled with all the work there is.
pub(super) fn thorough(
    draft: &Draft,
    request: &Request,
    budget_bytes: u64,
    choice: &Choice,
) -> Result<Option<Fit>, PlanError> {
    schedule(draft, request, budget_bytes, (&choice.hosted, choice.moves), false)
}

/// Plans with low peaks: with nothing moved to the host tier, and with more and more there.
pub(super) fn least(draft: &Draft, request: &Request) -> Result<Vec<Fit>, PlanError> {
    let mut ways = Vec::new();
    // Where everything can move, nothing needs less; on small graphs the staging for that may be more than it saves.
    let large = is_large(draft);
    if !large || !request.levers.offload {
        ways.push((BTreeSet::new(), false));
    }
    if request.levers.offload {
        let sets = hosted_sets(draft).into_iter().rev().map(|hosted| (hosted, true));
        ways.extend(sets.take(if large { 1 } else { usize::MAX }));
    }
    let mut found = Vec::new();
    for (hosted, moves) in ways {
        let levers = Levers { offload: moves, ..request.levers };
        let mut events = Vec::new();
        for part in &draft.parts {
            let storage = part.storage.hosting(&part.graph, &hosted);
            let scheduling = Scheduling::of(part, &storage, &request.costs, levers);
            let (entries, _) = least_peak(&scheduling.problem, effort(scheduling.problem.len(), true));
            events.push(scheduling.events(&entries));
        }
        let choice = Choice { hosted, moves, events };
        found.push(Fit { built: draft.build(request, &choice)?, choice });
    }
    Ok(found)
}

/// What no plan of these programs in this order can avoid under the budget.
pub(super) fn bound(draft: &Draft, request: &Request, budget_bytes: u64, choice: &Choice) -> Result<Bound, PlanError> {
    // Where offload is a last resort, a plan without it is measured against those without it.
    let offload = request.levers.offload && (choice.moves || !request.costs.unified_memory);
    let request = &Request { levers: Levers { offload, ..request.levers }, ..request.clone() };
    let all: BTreeSet<String> = hostable(&draft.parts).into_iter().map(|(name, ..)| name).collect();
    // What lasts counts with the transient values where it can be moved; else it is taken from the start.
    let room_bytes = budget_bytes.saturating_sub(draft.fixed_bytes(request, &all, false)?);
    let mut bound = Bound { step_ns: 0.0, shadow_price_ns_per_byte: 0.0 };
    // Micro-batches share programs.
    let mut of_part: Vec<Option<(f64, f64)>> = vec![None; draft.parts.len()];
    for &number in &draft.schedule {
        let (step_ns, price) = *of_part[number].get_or_insert_with(|| {
            let part = &draft.parts[number];
            let scheduling = Scheduling::of(part, &part.storage, &request.costs, request.levers);
            let problem = scheduling.problem.with_lasting(lasting(draft, part, request));
            let work = effort(problem.len(), false).bound_work;
            let LowerBound { extra_cost, price, .. } = certificate(&problem, room_bytes, work);
            let finite = |x: f64| if x.is_finite() { x } else { 0.0 };
            (problem.plain_cost() as f64 + finite(extra_cost), finite(price))
        });
        bound.step_ns += step_ns;
        bound.step_ns += request.costs.run_ns();
        bound.shadow_price_ns_per_byte += price;
    }
    Ok(bound)
}

/// Persistent values, with what having them in the host tier costs this program at least.
fn lasting(draft: &Draft, part: &Part, request: &Request) -> Vec<Lasting> {
    let graph = &part.graph;
    let mut here = BTreeMap::new();
    for value in graph.values().iter().filter(|value| value.role.is_persistent()) {
        here.entry(value.name.as_str()).or_insert(value);
    }
    let mut changed = BTreeSet::new();
    for node in graph.nodes() {
        let roots = node.op.mutates().iter().map(|&i| part.storage.root(node.inputs[i]));
        changed.extend(roots.map(|root| graph.value(root).name.as_str()));
    }
    let lasting = hostable(&draft.parts).into_iter().map(|(name, bytes, _)| {
        let cost = match here.get(name.as_str()) {
            None => 0.0,
            Some(value) if value.producer.is_some() => request.costs.offload_ns(bytes),
            Some(_) if changed.contains(name.as_str()) => {
                request.costs.prefetch_ns(bytes) + request.costs.offload_ns(bytes)
            }
            Some(_) => request.costs.prefetch_ns(bytes),
        };
        Lasting { bytes, cost: request.levers.offload.then_some(cost as u64) }
    });
    lasting.collect()
}
