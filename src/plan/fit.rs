//! Fits the programs of a step to a budget: what moves to the host tier, what runs again, and what that cannot cost less
//! than.

use std::collections::{BTreeMap, BTreeSet};

use super::allowance::Allowance;
use super::build::{Built, Choice, Draft, Part};
use super::placement::MOST_WORK;
use super::recompute::{Scheduling, hostable};
use super::schedule::{Effort, Entry, Lasting, LowerBound, certificate, least_peak, low_peak, solve_from};
use super::{Bound, Levers, Request};
use crate::error::PlanError;
use crate::graph::Role;

/// Work of the local search on one program, in units of [`Effort::search_work`].
const SEARCH_WORK: u64 = 400_000_000;
/// A quick look is this much cheaper, and what follows it.
const QUICK: u64 = 12;
const THOROUGH: u64 = 3;
/// Packing is this much cheaper where memory is to be packed tightly.
const TIGHTLY: u64 = 2;
/// The share of what may still be done that one search takes at most: of quick looks there are many.
const QUICK_SHARE: u64 = 8;
const THOROUGH_SHARE: u64 = 2;
/// What a node of a program takes to build the problem of its schedule and the plan, in units of work.
const NODE_WORK: u64 = 1_500;
/// Times that a plan with little memory is searched for one with less.
const SQUEEZES: usize = 6;
/// The least by which a peak can be lower.
const UNIT_BYTES: u64 = 256;
/// Work that is worth it to see whether there is a plan at all.
const POSSIBLE_WORK: u64 = 200_000_000;
/// Times that a schedule is made for less memory because blocks did not pack as tightly as their sum.
const PACKING_TRIES: usize = 6;

/// Nodes from which a graph is large, or of middling size: fewer ways are tried.
const LARGE: usize = 600;
const MIDDLING: usize = 150;

/// By what share of its memory one large program must be smaller than another to count as smaller.
const LARGE_SHARE: u64 = 256;

/// A plan with what was chosen for it.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    pub(super) built: Built,
    pub(super) choice: Choice,
    /// The sequence of each part, from which a search can start; none where nothing runs again or moves.
    entries: Vec<Vec<Entry>>,
}

impl Fit {
    /// Whether every node runs once and everything stays on the device.
    pub(super) fn is_plain(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether its sequences are possible for these programs with these values in the host tier.
    fn is_of(&self, draft: &Draft, (hosted, moves): (&BTreeSet<String>, bool)) -> bool {
        let plan = &self.built.plan;
        let same_programs = plan.micro_batches == draft.micro_batches
            && (plan.saved, plan.fused) == (draft.form.saved, draft.form.fused);
        same_programs && !self.is_plain() && self.choice.moves == moves && self.choice.hosted == *hosted
    }
}

/// Every node once, everything on the device. A budget is enough where there is one.
pub(super) fn plain(draft: &Draft, request: &Request, budget_bytes: u64) -> Result<Fit, PlanError> {
    let choice = draft.plain();
    let headroom_bytes = Draft::headroom_bytes(budget_bytes, draft.fixed_bytes(request, &choice.hosted, false)?);
    let built = draft.build(request, &choice, headroom_bytes.unwrap_or(0), MOST_WORK)?;
    Ok(Fit { built, choice, entries: Vec::new() })
}

/// Whether there are so many nodes that fewer ways are tried.
fn is_large(draft: &Draft) -> bool {
    size(draft) > 1
}

/// 0 for small graphs, 1 for those of middling size, 2 for large ones.
pub(super) fn size(draft: &Draft) -> usize {
    match draft.parts.iter().map(|part| part.order.len()).max() {
        Some(nodes) if nodes > LARGE => 2,
        Some(nodes) if nodes > MIDDLING => 1,
        _ => 0,
    }
}

fn effort(operations: usize, cheaper: u64, allowance: &Allowance) -> Effort {
    let squared = (operations * operations) as u64;
    let share = if cheaper == QUICK { QUICK_SHARE } else { THOROUGH_SHARE };
    let search_work = ((squared * 20_000).min(SEARCH_WORK) / cheaper).min(allowance.left() / share);
    Effort { search_work, bound_work: bound_work(operations, cheaper), good_enough: 0.001 }
}

fn bound_work(operations: usize, cheaper: u64) -> usize {
    if cheaper == QUICK { 4 * operations.max(500) } else { 60_000.max(12 * operations) }
}

/// How hard to look for a plan.
#[derive(Clone, Copy, Debug)]
struct Look<'a> {
    /// By how much the search is cheaper than the longest.
    cheaper: u64,
    /// What it may do at most.
    allowance: &'a Allowance,
    /// No plan that takes longer is of use.
    most_ns: u64,
    /// Whether memory below the budget is worth the work of packing it.
    tightly: bool,
}

/// Schedules all programs for a budget with these values in the host tier, and builds the plan.
fn schedule(
    draft: &Draft,
    request: &Request,
    budget_bytes: u64,
    (hosted, moves): (&BTreeSet<String>, bool),
    Look { cheaper, allowance, most_ns, tightly }: Look<'_>,
    near: &[&Fit],
) -> Result<Option<Fit>, PlanError> {
    let fixed_bytes = draft.fixed_bytes(request, hosted, moves)?;
    let Some(headroom_bytes) = Draft::headroom_bytes(budget_bytes, fixed_bytes) else { return Ok(None) };
    let levers = Levers { offload: moves, ..request.levers };
    let problems: Vec<_> = draft
        .parts
        .iter()
        .map(|part| Scheduling::of(part, &part.storage.hosting(&part.graph, hosted), &request.costs, levers))
        .collect();
    allowance.spend(NODE_WORK * draft.nodes() as u64);
    // What a step takes where the parts of it take this, and the nodes in it: each of them is rounded.
    let runs = draft.schedule.iter();
    let nodes: u64 = runs.clone().map(|&number| problems[number].problem.len() as u64).sum();
    let is_slow = |part_ns: &[f64]| {
        let step_ns: f64 = runs.clone().map(|&number| part_ns[number] + request.costs.run_ns()).sum();
        step_ns > most_ns.saturating_add(nodes) as f64
    };
    if most_ns < u64::MAX && cheaper == QUICK {
        let bounds = problems.iter().map(|Scheduling { problem, .. }| {
            let work = bound_work(problem.len(), cheaper);
            let bound_ns = problem.plain_cost() as f64 + certificate(problem, headroom_bytes, work).extra_cost;
            allowance.spend(problem.work());
            bound_ns
        });
        if is_slow(&bounds.collect::<Vec<_>>()) {
            return Ok(None);
        }
    }
    let mut part_ns = vec![0.0; problems.len()];
    let near: Vec<_> = near.iter().filter(|fit| fit.is_of(draft, (hosted, moves))).collect();
    let mut choice = Choice { hosted: hosted.clone(), moves, events: vec![Vec::new(); problems.len()] };
    let mut sequences = vec![Vec::new(); problems.len()];
    // Each program's room shrinks by what its blocks do not pack.
    let mut rooms = vec![headroom_bytes; problems.len()];
    let mut peaks = rooms.clone();
    let mut anew = vec![true; problems.len()];
    for _ in 0..PACKING_TRIES {
        for (number, scheduling) in problems.iter().enumerate().filter(|&(number, _)| anew[number]) {
            let mut known: Vec<_> = near.iter().map(|fit| fit.entries[number].clone()).collect();
            // What did not pack is a start for less.
            known.extend((!sequences[number].is_empty()).then(|| sequences[number].clone()));
            let Scheduling { problem, .. } = scheduling;
            let (effort, before) = (effort(problem.len(), cheaper, allowance), problem.work());
            let solution = solve_from(problem, rooms[number], effort, &known);
            allowance.spend(problem.work() - before);
            let Some(entries) = solution.entries else { return Ok(None) };
            choice.events[number] = scheduling.events(&entries);
            sequences[number] = entries;
            part_ns[number] = solution.cost as f64;
            peaks[number] = solution.peak_bytes;
        }
        if is_slow(&part_ns) {
            return Ok(None);
        }
        let share = if tightly { TIGHTLY } else { cheaper };
        let pack_work = (MOST_WORK / share).min(allowance.left() / 2);
        let mut built = draft.build(request, &choice, if tightly { 0 } else { headroom_bytes }, pack_work)?;
        allowance.spend(built.work);
        let keeps = built.used_bytes.iter().all(|&used_bytes| used_bytes <= headroom_bytes);
        if !tightly && keeps && built.plan.peak_bytes > budget_bytes {
            // Programs that share several arenas may each be small enough, but not all together.
            built = draft.build(request, &choice, 0, pack_work)?;
            allowance.spend(built.work);
        }
        if built.plan.peak_bytes <= budget_bytes {
            return Ok(Some(Fit { built, choice, entries: sequences }));
        }
        for (number, &used_bytes) in built.used_bytes.iter().enumerate() {
            let over_bytes = used_bytes.saturating_sub(headroom_bytes);
            anew[number] = over_bytes > 0;
            // Below what the sequence needs, so that another one is found.
            rooms[number] = rooms[number].min(peaks[number]).saturating_sub(over_bytes);
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

/// The same plan with its memory packed more tightly where that is found.
pub(super) fn packed(draft: &Draft, request: &Request, fit: Fit, work: u64) -> Result<Fit, PlanError> {
    let built = draft.build(request, &fit.choice, 0, work)?;
    Ok(if built.plan.peak_bytes < fit.built.plan.peak_bytes { Fit { built, ..fit } } else { fit })
}

/// A plan within the budget, found with little work, with or without offload; none where it would take at least `most_ns`.
pub(super) fn quick(
    draft: &Draft,
    request: &Request,
    budget_bytes: u64,
    (most_ns, offload): (u64, bool),
    near: &[&Fit],
    allowance: &Allowance,
) -> Result<Option<Fit>, PlanError> {
    let mut best: Option<Fit> = None;
    let best_ns = |best: &Option<Fit>| best.as_ref().map_or(most_ns, |best| best.built.plan.predicted_step_ns);
    let consider = |fit: Option<Fit>, best: &mut Option<Fit>| {
        let Some(fit) = fit else { return };
        let step_ns = fit.built.plan.predicted_step_ns;
        if step_ns < best_ns(best) {
            *best = Some(fit);
        }
    };
    // Something is left for the ways that follow.
    let schedule = |way: (&BTreeSet<String>, bool), most_ns: u64| {
        allowance.share(if offload { 2 } else { 1 }, |allowance| {
            let look = Look { cheaper: QUICK, allowance, most_ns, tightly: false };
            schedule(draft, request, budget_bytes, way, look, near)
        })
    };
    let nothing = BTreeSet::new();
    if request.levers.recompute {
        consider(schedule((&nothing, false), most_ns)?, &mut best);
    }
    if offload {
        let mut worse = 0;
        let sets = hosted_sets(draft);
        let last = sets.len() - 1;
        let looked_at = |&(i, _): &(usize, _)| i == 0 || i == last || !is_large(draft);
        for (_, hosted) in sets.into_iter().enumerate().filter(looked_at) {
            if allowance.is_spent() {
                break;
            }
            let before = best.as_ref().map(|best| best.built.plan.predicted_step_ns);
            consider(schedule((&hosted, true), best_ns(&best))?, &mut best);
            // More in the host tier than is good gets worse and worse.
            let after = best.as_ref().map(|best| best.built.plan.predicted_step_ns);
            worse = if after.is_some() && after == before { worse + 1 } else { 0 };
            if worse == 2 {
                break;
            }
        }
    }
    Ok(best)
}

/// The same choice of what is in the host tier, scheduled with more work.
pub(super) fn thorough(
    draft: &Draft,
    request: &Request,
    budget_bytes: u64,
    choice: &Choice,
    near: &[&Fit],
    allowance: &Allowance,
) -> Result<Option<Fit>, PlanError> {
    let look = Look { cheaper: THOROUGH, allowance, most_ns: u64::MAX, tightly: false };
    schedule(draft, request, budget_bytes, (&choice.hosted, choice.moves), look, near)
}

/// Plans with low peaks: with nothing moved to the host tier, and with more and more there. On large graphs few are made;
/// with `both`, one with nothing moved in any case. None are made that need at least `most_bytes`: with something moved, and
/// without.
pub(super) fn least(
    draft: &Draft,
    request: &Request,
    both: bool,
    mut most_bytes: [u64; 2],
    allowance: &Allowance,
) -> Result<Vec<Fit>, PlanError> {
    let mut ways = Vec::new();
    // Where everything can move, nothing needs less; on small graphs the staging for that may be more than it saves.
    let large = is_large(draft);
    if !large || both || !request.levers.offload {
        ways.push((BTreeSet::new(), false));
    }
    if request.levers.offload {
        let sets = hosted_sets(draft).into_iter().rev().map(|hosted| (hosted, true));
        ways.extend(sets.take(if large { 1 } else { usize::MAX }));
    }
    let mut found = Vec::new();
    for (hosted, moves) in ways {
        let levers = Levers { offload: moves, ..request.levers };
        let (mut events, mut sequences) = (Vec::new(), Vec::new());
        let most_bytes = &mut most_bytes[usize::from(!moves)];
        // To pack large programs takes too long for a little less.
        let worth_bytes = *most_bytes - if large { *most_bytes / LARGE_SHARE } else { 0 };
        let fixed_bytes = draft.fixed_bytes(request, &hosted, moves)?;
        let mut live_bytes = 0;
        for part in &draft.parts {
            let storage = part.storage.hosting(&part.graph, &hosted);
            let scheduling = Scheduling::of(part, &storage, &request.costs, levers);
            if fixed_bytes + scheduling.problem.floor_bytes().max(live_bytes) >= worth_bytes {
                break;
            }
            let effort = effort(scheduling.problem.len(), QUICK, allowance);
            let (entries, peak_bytes) = least_peak(&scheduling.problem, effort);
            allowance.spend(scheduling.problem.work());
            live_bytes = live_bytes.max(peak_bytes);
            events.push(scheduling.events(&entries));
            sequences.push(entries);
        }
        if sequences.len() < draft.parts.len() || fixed_bytes + live_bytes >= worth_bytes {
            continue;
        }
        let choice = Choice { hosted, moves, events };
        let built = draft.build(request, &choice, 0, (MOST_WORK / 8).min(allowance.left() / 2))?;
        allowance.spend(built.work + NODE_WORK * draft.nodes() as u64);
        *most_bytes = built.plan.peak_bytes.min(*most_bytes);
        found.push(Fit { built, choice, entries: sequences });
    }
    Ok(found)
}

/// The same choice of what is in the host tier with less and less memory, in steps that shrink where nothing is found.
pub(super) fn squeezed(draft: &Draft, request: &Request, fit: Fit, allowance: &Allowance) -> Result<Fit, PlanError> {
    let mut fit = fit;
    let (hosted, moves) = (fit.choice.hosted.clone(), fit.choice.moves);
    let fixed_bytes = draft.fixed_bytes(request, &hosted, moves)?;
    let mut share = 16;
    for _ in 0..SQUEEZES {
        if allowance.is_spent() {
            break;
        }
        let peak_bytes = fit.built.plan.peak_bytes;
        let step_bytes = (peak_bytes.saturating_sub(fixed_bytes) / share).max(UNIT_BYTES);
        let look = Look { cheaper: QUICK, allowance, most_ns: u64::MAX, tightly: true };
        match schedule(draft, request, peak_bytes - step_bytes, (&hosted, moves), look, &[&fit])? {
            Some(lower) => fit = lower,
            None if step_bytes == UNIT_BYTES => break,
            None => share *= 8,
        }
    }
    Ok(fit)
}

/// Whether any plan of these programs keeps the budget: the first that is found, be it slow, is enough.
pub(super) fn is_possible(draft: &Draft, request: &Request, budget_bytes: u64) -> Result<bool, PlanError> {
    let hosted_sets = if request.levers.offload { hosted_sets(draft) } else { Vec::new() };
    // With all in the host tier, nothing needs less, but for the staging for that.
    let fewest = if is_large(draft) { 1 } else { hosted_sets.len() };
    let hosting = hosted_sets.into_iter().rev().take(fewest).map(|hosted| (hosted, true));
    for (hosted, moves) in std::iter::once((BTreeSet::new(), false)).chain(hosting) {
        let fixed_bytes = draft.fixed_bytes(request, &hosted, moves)?;
        let Some(headroom_bytes) = Draft::headroom_bytes(budget_bytes, fixed_bytes) else { continue };
        if keeps(draft, request, (hosted, moves), (headroom_bytes, budget_bytes))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the programs fit a room with these values in the host tier, and are packed within the budget.
fn keeps(
    draft: &Draft,
    request: &Request,
    (hosted, moves): (BTreeSet<String>, bool),
    (headroom_bytes, budget_bytes): (u64, u64),
) -> Result<bool, PlanError> {
    let levers = Levers { offload: moves, ..request.levers };
    let of_part = |part: &Part| {
        let storage = part.storage.hosting(&part.graph, &hosted);
        Scheduling::of(part, &storage, &request.costs, levers)
    };
    let problems: Vec<_> = draft.parts.iter().map(of_part).collect();
    if problems.iter().any(|scheduling| scheduling.problem.floor_bytes() > headroom_bytes) {
        return Ok(false);
    }
    let mut enough_bytes = headroom_bytes;
    let allowance = Allowance::new(POSSIBLE_WORK);
    for _ in 0..PACKING_TRIES {
        let mut events = Vec::new();
        for scheduling in &problems {
            let Scheduling { problem, .. } = scheduling;
            let (effort, before) = (effort(problem.len(), QUICK, &allowance), problem.work());
            let (entries, peak_bytes) = low_peak(problem, effort, enough_bytes);
            allowance.spend(problem.work() - before);
            if peak_bytes > headroom_bytes {
                return Ok(false);
            }
            events.push(scheduling.events(&entries));
        }
        let choice = Choice { hosted: hosted.clone(), moves, events };
        let built = draft.build(request, &choice, headroom_bytes, (MOST_WORK / QUICK).min(allowance.left()))?;
        allowance.spend(built.work);
        let peak_bytes = built.plan.peak_bytes;
        if peak_bytes <= budget_bytes {
            return Ok(true);
        }
        enough_bytes = enough_bytes.saturating_sub(peak_bytes - budget_bytes);
    }
    Ok(false)
}

/// What no plan of these programs in this order can avoid under the budget.
pub(super) fn bound(draft: &Draft, request: &Request, budget_bytes: u64, choice: &Choice) -> Result<Bound, PlanError> {
    // Where offload is a last resort, a plan without it is measured against those without it.
    let offload = request.levers.offload && (choice.moves || !request.costs.unified_memory);
    let request = &Request { levers: Levers { offload, ..request.levers }, ..request.clone() };
    let all: BTreeSet<String> = hostable(&draft.parts).into_iter().map(|(name, ..)| name).collect();
    // What lasts counts with the transient values where it can be moved; else it is taken from the start.
    let headroom_bytes = budget_bytes.saturating_sub(draft.fixed_bytes(request, &all, false)?);
    let mut bound = Bound { step_ns: 0.0, shadow_price_ns_per_byte: 0.0 };
    // Micro-batches share programs.
    let mut of_part: Vec<Option<(f64, f64)>> = vec![None; draft.parts.len()];
    for &number in &draft.schedule {
        let (step_ns, price) = *of_part[number].get_or_insert_with(|| {
            let part = &draft.parts[number];
            let scheduling = Scheduling::of(part, &part.storage, &request.costs, request.levers);
            let problem = scheduling.problem.with_lasting(lasting(draft, part, request));
            let work = bound_work(problem.len(), 1);
            let LowerBound { extra_cost, price, .. } = certificate(&problem, headroom_bytes, work);
            let finite = |x: f64| if x.is_finite() { x } else { 0.0 };
            // Each operation counts in whole nanoseconds here, so up to half of one too many.
            let plain_ns = problem.plain_cost() as f64 - problem.len() as f64 / 2.0;
            (plain_ns + finite(extra_cost), finite(price))
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
