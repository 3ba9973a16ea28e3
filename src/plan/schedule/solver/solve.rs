//! From a problem and a budget to a sequence: seeds, then local search until the work is done or the bound is near.

use super::bound::{LowerBound, lower_bound};
use super::chain::Chain;
use super::problem::Problem;
use super::search::{Annealer, Penalty};
use super::seeds;
use super::sequence::{Entry, Simulator};

/// How hard to look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Effort {
    /// Units of work of the local search: about a nanosecond each.
    pub(crate) search_work: u64,
    /// Units of work of the bound: operations in flows.
    pub(crate) bound_work: usize,
    /// The search ends where the cost is this close to the bound, as a share.
    pub(crate) good_enough: f64,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { search_work: 400_000_000, bound_work: 60_000, good_enough: 0.0005 }
    }
}

impl Effort {
    /// Runs of the local search that are worth their work, for sequences of this length.
    fn starts(self, length: u64, most: u64) -> u64 {
        (self.search_work / (LEAST_WORK * length.max(1))).min(most)
    }
}

/// What was found for a budget.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    /// The cheapest sequence within the budget, if any was found.
    pub(crate) entries: Option<Vec<Entry>>,
    /// Its cost.
    pub(crate) cost: u64,
    /// Its peak; without one, the lowest that was seen.
    pub(crate) peak_bytes: u64,
    /// What no schedule can avoid.
    pub(crate) bound: LowerBound,
    /// Sequences that were looked at.
    pub(crate) evaluations: u64,
}

/// Runs of the local search from different seeds, before the last from the best.
const STARTS: u64 = 8;
/// Searches for a lower peak, one from what the other found.
const TRIES: u64 = 16;
/// Units of work for each entry of a sequence below which a run of the local search finds nothing: to take account of the
/// sequence takes some already.
const LEAST_WORK: u64 = 8_000;
/// Work on sequences to start from that is done in any case, where there are so many.
const LEAST_SEEDS_WORK: u64 = 10_000_000;
/// How often values are recomputed earlier than they are used, where it is hard to find what fits.
const EARLY: f64 = 0.08;

/// A sequence within the budget at little cost.
#[cfg(test)]
pub(crate) fn solve(problem: &Problem, budget_bytes: u64, effort: Effort) -> Solution {
    solve_from(problem, budget_bytes, effort, Known::default())
}

/// What is known about a problem under a budget before it is solved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known<'s> {
    /// More sequences to start from: none that keep the budget cost less than what is found.
    pub(crate) sequences: Vec<&'s [Entry]>,
    /// The lower bound, made with the work that the effort allows for it.
    pub(crate) bound: Option<LowerBound>,
}

/// A sequence within the budget at little cost, with what is known to start from.
pub(crate) fn solve_from(problem: &Problem, budget_bytes: u64, effort: Effort, known: Known<'_>) -> Solution {
    let mut simulator = Simulator::new(problem);
    let base = seeds::plain(problem);
    let plain = simulator.run(&base, budget_bytes);
    let memory = simulator.at_stages(&base);
    let mut solution = Solution {
        entries: None,
        cost: plain.cost,
        peak_bytes: plain.peak_bytes,
        bound: LowerBound::NONE,
        evaluations: 1,
    };
    if plain.peak_bytes <= budget_bytes {
        solution.entries = Some(base);
        return solution;
    }
    solution.bound = match known.bound {
        // It is charged all the same: what a search may do does not depend on who made its bound.
        Some(bound) => {
            problem.spend(bound.work);
            bound
        }
        None => lower_bound(problem, &memory, budget_bytes, effort.bound_work),
    };
    // Inputs alone may be too much.
    if solution.bound.extra_cost.is_infinite() || problem.len() == 0 {
        return solution;
    }
    let price = solution.bound.price.max(plain.cost as f64 / plain.peak_bytes.max(1) as f64 * 1e-3);
    let mut pool =
        Pool { simulator, budget_bytes, price, seeds: Vec::new(), evaluations: 1, least_peak: plain.peak_bytes };
    let peak = (0..problem.len()).max_by_key(|&stage| (memory[stage], usize::MAX - stage)).unwrap_or(0);
    // Sequences to start from may take as much work as the search from them.
    let most_work = problem.work() + effort.search_work.max(LEAST_SEEDS_WORK);
    for &stage in solution.bound.moments.iter().take(2).chain([&peak, &problem.boundary()]) {
        seeds::of_moment(problem, &base, stage, budget_bytes, most_work).into_iter().for_each(|seed| pool.add(&seed));
    }
    let chain = Chain::new(problem, problem.boundary());
    let fitting = chain.cheapest(&base, |entries| pool.peak(entries) <= budget_bytes);
    fitting.into_iter().for_each(|seed| pool.add(&seed));
    if problem.values().iter().any(|value| value.transfer.is_some()) {
        pool.add(&seeds::fetched(problem, &base));
    }
    known.sequences.into_iter().for_each(|entries| pool.add(entries));
    pool.add(&base);
    search(problem, pool, effort, solution)
}

fn search(problem: &Problem, mut pool: Pool<'_>, effort: Effort, mut solution: Solution) -> Solution {
    let budget_bytes = pool.budget_bytes;
    pool.seeds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let lower = problem.plain_cost() as f64 + solution.bound.extra_cost;
    let enough = |cost: u64| cost as f64 <= lower * (1.0 + effort.good_enough);
    let length = pool.seeds.first().map_or(1, |(_, entries)| entries.len() as u64);
    let starts = effort.starts(length, STARTS);
    let work = effort.search_work / (starts + 2);
    let mut price = pool.price;
    let mean = problem.plain_cost() as f64 / problem.len().max(1) as f64;
    let mut best: Option<(u64, Vec<Entry>)> = None;
    let note = |found: Option<(u64, Vec<Entry>)>, best: &mut Option<(u64, Vec<Entry>)>| {
        if let Some((cost, entries)) = found
            && best.as_ref().is_none_or(|(least, _)| cost < *least)
        {
            *best = Some((cost, entries));
        }
    };
    for (_, seed) in &pool.seeds {
        let outcome = pool.simulator.run(seed, budget_bytes);
        if outcome.peak_bytes <= budget_bytes {
            note(Some((outcome.cost, seed.clone())), &mut best);
        }
    }
    // One more from the best; none where there is too little work for one.
    let runs = if starts > 0 { starts + 1 } else { 0 };
    for start in 0..runs {
        if best.as_ref().is_some_and(|&(cost, _)| enough(cost)) {
            break;
        }
        let seed = match &best {
            Some((_, entries)) if start == starts || start == 1 => entries.clone(),
            _ => pool.seeds[(start as usize / 2).min(pool.seeds.len() - 1)].1.clone(),
        };
        let last = start == starts;
        let mut annealer = Annealer::new(problem, budget_bytes, &seed, start + 1);
        annealer.early = if start > 0 && best.is_none() { EARLY } else { 0.0 };
        let (hot, share) = if last { (mean / 20.0, 2) } else { (mean * 0.3, 1) };
        // Where nothing was found yet, many moments may be too full.
        let sum = if best.is_none() { 0.2 * price } else { 0.0 };
        annealer.anneal(work * share, hot, mean / 400.0, Penalty { peak: 2.0 * price, sum });
        pool.evaluations += annealer.evaluations;
        pool.least_peak = pool.least_peak.min(annealer.tracker().peak_bytes());
        note(annealer.best, &mut best);
        if best.is_none() {
            // The bound's price was too low to come within the budget.
            price *= 4.0;
        }
    }
    solution.evaluations = pool.evaluations;
    solution.peak_bytes = pool.least_peak;
    if let Some((cost, entries)) = best {
        let outcome = pool.simulator.run(&entries, budget_bytes);
        solution.cost = cost;
        solution.peak_bytes = outcome.peak_bytes;
        solution.entries = Some(entries);
    }
    solution
}

/// Sequences to start from, with a price on what they are above the budget.
struct Pool<'a> {
    simulator: Simulator<'a>,
    budget_bytes: u64,
    price: f64,
    seeds: Vec<(f64, Vec<Entry>)>,
    evaluations: u64,
    least_peak: u64,
}

impl Pool<'_> {
    fn peak(&mut self, entries: &[Entry]) -> u64 {
        self.evaluations += 1;
        self.simulator.run(entries, self.budget_bytes).peak_bytes
    }

    fn add(&mut self, entries: &[Entry]) {
        self.evaluations += 1;
        let outcome = self.simulator.run(entries, self.budget_bytes);
        let over = outcome.peak_bytes.saturating_sub(self.budget_bytes);
        self.least_peak = self.least_peak.min(outcome.peak_bytes);
        let energy = outcome.cost as f64 + 8.0 * self.price * over as f64;
        let entries = self.simulator.needed(entries);
        self.seeds.push((energy, entries));
    }
}

/// A sequence with a low peak, and the peak. Where values can move to the host, none is lower.
pub(crate) fn least_peak(problem: &Problem, effort: Effort) -> (Vec<Entry>, u64) {
    low_peak(problem, effort, 0)
}

/// As [`least_peak`], but a peak of `enough_bytes` ends the search.
pub(crate) fn low_peak(problem: &Problem, effort: Effort, enough_bytes: u64) -> (Vec<Entry>, u64) {
    let mut simulator = Simulator::new(problem);
    let base = seeds::plain(problem);
    let floor = problem.floor_bytes().max(enough_bytes);
    let mut best = (simulator.run(&base, 0).peak_bytes, base.clone());
    let mut look = |entries: Vec<Entry>, best: &mut (u64, Vec<Entry>)| {
        let peak_bytes = simulator.run(&entries, 0).peak_bytes;
        if peak_bytes < best.0 {
            *best = (peak_bytes, simulator.needed(&entries));
        }
    };
    look(seeds::fetched(problem, &base), &mut best);
    if problem.len() == 0 {
        return (best.1, best.0);
    }
    if best.0 > floor {
        for sequence in Chain::new(problem, problem.boundary()).sequences(&base) {
            look(sequence, &mut best);
        }
        for stage in [problem.boundary(), tightest(&base, &mut Simulator::new(problem))] {
            let nothing_kept = seeds::nothing_kept(problem, stage);
            for reuse in [usize::MAX, 64, 16, 4, 1, 0] {
                if let Some(entries) = seeds::lazy(problem, &base, stage, &nothing_kept, reuse) {
                    look(entries, &mut best);
                }
            }
        }
    }
    // Less and less, in steps that shrink where nothing is found.
    let price = problem.plain_cost() as f64 / best.0.max(1) as f64;
    let length = best.1.len() as u64;
    let tries = effort.starts(length, TRIES);
    let work = effort.search_work / tries.max(1);
    let mean = problem.plain_cost() as f64 / problem.len().max(1) as f64;
    let mut share = 16;
    for seed in 0..tries {
        if best.0 <= floor {
            break;
        }
        let target = (best.0 - ((best.0 - floor) / share).max(1)).max(floor);
        let mut annealer = Annealer::new(problem, target, &best.1, seed + 1);
        annealer.early = if seed % 2 == 1 { EARLY } else { 0.0 };
        let penalty = Penalty { peak: 20.0 * price, sum: 2.0 * price };
        annealer.anneal(work, mean, mean / 100.0, penalty);
        match annealer.best {
            Some((_, entries)) => {
                let peak_bytes = simulator.run(&entries, 0).peak_bytes;
                best = (peak_bytes, entries);
            }
            None => share *= 2,
        }
    }
    (best.1, best.0)
}

/// The stage at which a sequence needs most.
fn tightest(entries: &[Entry], simulator: &mut Simulator<'_>) -> usize {
    let peak_bytes = simulator.run(entries, 0).peak_bytes;
    let at = simulator.memory.iter().position(|&bytes| bytes == peak_bytes);
    at.map_or(0, |at| entries[at].stage())
}
