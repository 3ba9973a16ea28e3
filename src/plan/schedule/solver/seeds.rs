//! Sequences to start from.

use super::cut::{Fate, Moment};
use super::problem::Problem;
use super::sequence::Entry;

/// What an operation takes where a sequence is made that makes values again, in units of work.
const LAZY_WORK: u64 = 60;

/// Every operation once; values of the host tier come before their first use.
pub(crate) fn plain(problem: &Problem) -> Vec<Entry> {
    let mut entries: Vec<Entry> = (0..problem.len()).map(Entry::first).collect();
    for (v, value) in problem.values().iter().enumerate() {
        if value.transfer.is_some_and(|transfer| transfer.hosted)
            && value.producer.is_none()
            && let Some(&reader) = problem.readers(v).first()
        {
            entries.push(Entry::fetch(reader as usize, v, None));
        }
    }
    entries.sort_unstable();
    entries
}

/// Every value that can move comes back from the host for each of its uses: nothing is in memory but what runs.
pub(crate) fn fetched(problem: &Problem, base: &[Entry]) -> Vec<Entry> {
    let mut entries = base.to_vec();
    for (v, value) in problem.values().iter().enumerate().filter(|(_, value)| value.transfer.is_some()) {
        let made = |reader: usize| value.producer.is_none_or(|producer| (producer as usize) < reader);
        let readers = problem.readers(v).iter().map(|&reader| reader as usize).filter(|&reader| made(reader));
        entries.extend(readers.map(|reader| Entry::fetch(reader, v, value.producer)));
    }
    entries.sort_unstable();
    entries.dedup();
    entries
}

/// Values with these fates after `stage`: what is gone is recomputed or fetched where it is needed, with all that this
/// takes, and then kept for as many stages as `reuse` says. None where the sequence grows out of hand: a chain that is
/// run from its start for each of its steps is as long as the square of it.
pub(crate) fn lazy(
    problem: &Problem,
    base: &[Entry],
    stage: usize,
    fates: &[Fate],
    reuse: usize,
) -> Option<Vec<Entry>> {
    let most = most_entries(base);
    problem.spend(LAZY_WORK * base.len() as u64);
    let mut entries = base.to_vec();
    // The last stage at which a value was made or used again; a stage later than all while it was not.
    let mut again = vec![usize::MAX; problem.values().len()];
    let mut stack = Vec::new();
    for later in stage + 1..problem.len() {
        if later + 1 == problem.len() {
            stack.extend((0..problem.values().len()).filter(|&v| problem.values()[v].to_end));
        }
        stack.extend(problem.inputs(later).iter().map(|&input| input as usize));
        if entries.len() > most {
            return None;
        }
        while let Some(v) = stack.pop() {
            if again[v] != usize::MAX && later - again[v] <= reuse {
                again[v] = later;
                continue;
            }
            let value = &problem.values()[v];
            match fates[v] {
                Fate::Free | Fate::Kept => {}
                Fate::Offloaded => {
                    entries.push(Entry::fetch(later, v, value.producer));
                    again[v] = later;
                }
                Fate::Recomputed => {
                    let Some(producer) = value.producer.map(|producer| producer as usize) else { continue };
                    if problem.is_repeatable(producer, later) {
                        entries.push(Entry::run(later, producer));
                        problem.outputs(producer).iter().for_each(|&output| again[output as usize] = later);
                        stack.extend(problem.inputs(producer).iter().map(|&input| input as usize));
                    }
                }
            }
        }
    }
    entries.sort_unstable();
    entries.dedup();
    Some(entries)
}

/// Entries of a sequence that is worth looking at: small problems may run in circles, large ones must not.
pub(super) fn most_entries(base: &[Entry]) -> usize {
    (base.len() * 12).max(60_000)
}

/// Sequences from the cuts at a moment, for prices around the one that fits memory to the budget: those closest to it first,
/// until so much work is done on the problem.
pub(crate) fn of_moment(
    problem: &Problem,
    base: &[Entry],
    stage: usize,
    budget_bytes: u64,
    most_work: u64,
) -> Vec<Vec<Entry>> {
    let mut moment = Moment::new(problem, stage, problem.len());
    let (_, price) = moment.bound(budget_bytes);
    let mut seeds = Vec::new();
    let mut known: Vec<Vec<Fate>> = Vec::new();
    for factor in [1.05, 1.7, 4.0, 1.0, 1.3, 2.5, 32.0, 0.7, 8.0, 1024.0] {
        if problem.work() >= most_work {
            break;
        }
        let price = price * factor;
        if !price.is_finite() {
            continue;
        }
        moment.least_cost(price);
        let fates = moment.fates(price);
        if known.contains(&fates) {
            continue;
        }
        for reuse in [usize::MAX, 8, 2] {
            seeds.extend(lazy(problem, base, stage, &fates, reuse));
        }
        known.push(fates);
    }
    seeds
}

/// The fates where nothing stays that can be recomputed.
pub(crate) fn nothing_kept(problem: &Problem, stage: usize) -> Vec<Fate> {
    let fate = |producer: Option<u32>| {
        let again = producer.is_some_and(|producer| problem.is_repeatable(producer as usize, stage + 1));
        if again { Fate::Recomputed } else { Fate::Kept }
    };
    problem.values().iter().map(|value| fate(value.producer)).collect()
}
