//! Local search over sequences, with the exact simulator.

use super::problem::Problem;
use super::sequence::{Entry, Event};
use super::tracker::Tracker;

/// Numbers that look random and are the same every time (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Numbers(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A sequence that changes by luck, less and less for the worse.
#[derive(Debug)]
pub(crate) struct Annealer<'a> {
    problem: &'a Problem,
    tracker: Tracker<'a>,
    budget_bytes: u64,
    numbers: Numbers,
    /// Large values that are needed at the end: none of the sequence's entries asks for them.
    ends: Vec<usize>,
    /// How often values are recomputed earlier than they are used.
    pub(crate) early: f64,
    /// The cheapest sequence within the budget so far.
    pub(crate) best: Option<(u64, Vec<Entry>)>,
    pub(crate) evaluations: u64,
}

/// Evaluations between adjustments of the penalty, by how much it changes, and its limits.
const ADJUSTMENT: u64 = 32;
/// What a proposal takes besides the changes that it makes, in units of work; each entry is another, for the peak.
const PROPOSAL_WORK: u64 = 250;
const GROWTH: f64 = 1.1;
const LEAST_FACTOR: f64 = 0.02;
const MOST_FACTOR: f64 = 64.0;

/// What a byte beyond the budget costs at first, at the peak and summed over entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Penalty {
    pub(crate) peak: f64,
    pub(crate) sum: f64,
}

impl<'a> Annealer<'a> {
    pub(crate) fn new(problem: &'a Problem, budget_bytes: u64, entries: &[Entry], seed: u64) -> Self {
        let tracker = Tracker::new(problem, entries);
        let is_end = |v: &usize| {
            let value = &problem.values()[*v];
            let again = |producer: u32| problem.is_repeatable(producer as usize, problem.len() - 1);
            value.to_end && value.bytes > budget_bytes / 256 && value.producer.is_some_and(again)
        };
        let mut annealer = Annealer {
            problem,
            tracker,
            budget_bytes,
            numbers: Numbers::new(seed),
            ends: (0..problem.values().len()).filter(is_end).collect(),
            early: 0.0,
            best: None,
            evaluations: 1,
        };
        annealer.note();
        annealer
    }

    pub(crate) fn tracker(&self) -> &Tracker<'a> {
        &self.tracker
    }

    fn note(&mut self) {
        let cost = self.tracker.cost();
        if self.best.as_ref().is_none_or(|(best, _)| cost < *best) && self.tracker.peak_bytes() <= self.budget_bytes {
            self.best = Some((cost, self.tracker.entries().to_vec()));
        }
    }

    /// Makes a value again in `stage`, and what that needs where having kept it would be too much.
    fn make_again(&mut self, value: usize, stage: usize) {
        let mut left = 24;
        let mut stack = vec![value];
        while let Some(value) = stack.pop() {
            let described = self.problem.values()[value];
            let again = described.producer.map(|producer| producer as usize);
            let again = again.filter(|&producer| self.problem.is_repeatable(producer, stage));
            if let Some(transfer) = described.transfer {
                let fetch_cost = transfer.prefetch_cost + if transfer.hosted { 0 } else { transfer.offload_cost };
                let cheaper = again.is_none_or(|producer| fetch_cost < self.problem.cost(producer));
                // Mostly what is cheaper; where nothing can be run again, there is no choice.
                if again.is_none() || cheaper == (self.numbers.unit() < 0.8) {
                    let made = described.producer.is_none_or(|producer| (producer as usize) < stage);
                    let entry = Entry::fetch(stage, value, described.producer);
                    if made && self.tracker.insert(entry) && !self.tracker.is_needed(entry) {
                        self.tracker.remove(entry);
                    }
                    continue;
                }
            }
            let Some(producer) = again else { continue };
            let entry = Entry::run(stage, producer);
            if !self.tracker.insert(entry) || left == 0 {
                continue;
            }
            left -= 1;
            if !self.tracker.is_needed(entry) {
                self.tracker.remove(entry);
                return;
            }
            for &input in self.problem.inputs(producer) {
                let input = input as usize;
                let earlier = self.tracker.before(input, entry);
                let from = earlier.map_or(0, |earlier| self.tracker.position(earlier) + 1);
                let here = self.tracker.position(entry);
                let fullest = self.tracker.memory()[from.min(here)..here].iter().max();
                // It is there now; had it to wait, would memory be free?
                let Some(&fullest) = fullest else { continue };
                let waits_too_long = fullest > self.budget_bytes;
                if waits_too_long == (self.numbers.unit() < 0.85) {
                    stack.push(input);
                }
            }
        }
    }

    /// Makes a value again for its use in `stage`: now and then earlier, while what that takes is still there.
    fn make_again_for(&mut self, value: usize, stage: usize) {
        let early = if self.early > 0.0 && self.numbers.unit() < self.early { 1 + self.numbers.below(5) } else { 0 };
        self.make_again(value, stage.saturating_sub(early));
    }

    fn propose(&mut self) {
        if !self.ends.is_empty() && self.numbers.unit() < 0.05 {
            let value = self.ends[self.numbers.below(self.ends.len())];
            return self.make_again(value, self.problem.len() - 1);
        }
        let kind = self.numbers.unit();
        if kind < 0.2 {
            self.propose_drop();
        } else if kind < 0.45 {
            self.propose_relief();
        } else if kind < 0.75 {
            self.propose_keep();
        } else if kind < 0.9 {
            self.propose_shift();
        } else {
            self.propose_keep();
            self.propose_drop();
        }
    }

    fn propose_drop(&mut self) {
        let position = self.numbers.below(self.tracker.entries().len());
        let entry = self.tracker.entries()[position];
        let Event::Run(operation) = entry.event() else { return };
        let inputs = self.problem.inputs(operation);
        if !inputs.is_empty() {
            let input = inputs[self.numbers.below(inputs.len())] as usize;
            self.make_again_for(input, entry.stage());
        }
    }

    /// Frees memory at a moment that is too full: a value that waits there is recomputed for its next use.
    fn propose_relief(&mut self) {
        let memory = self.tracker.memory();
        let start = self.numbers.below(memory.len());
        let full = |&k: &usize| memory[k] > self.budget_bytes;
        let found = (start..memory.len()).chain(0..start).find(full);
        let at = found.unwrap_or_else(|| {
            let most = memory.iter().max().copied().unwrap_or(0);
            memory.iter().position(|&bytes| bytes == most).unwrap_or(0)
        });
        let (moment, following) = (self.tracker.entries()[at], memory.len() - at - 1);
        if following == 0 {
            return;
        }
        for _ in 0..8 {
            let entry = self.tracker.entries()[at + 1 + self.numbers.below(following)];
            let Event::Run(operation) = entry.event() else { continue };
            let inputs = self.problem.inputs(operation);
            if inputs.is_empty() {
                continue;
            }
            let input = inputs[self.numbers.below(inputs.len())] as usize;
            if self.tracker.before(input, entry).is_none_or(|earlier| earlier < moment) {
                self.make_again_for(input, entry.stage());
                return;
            }
        }
    }

    /// An entry that may go, if luck finds one.
    fn pick_extra(&mut self) -> Option<Entry> {
        for _ in 0..16 {
            let entry = self.tracker.entries()[self.numbers.below(self.tracker.entries().len())];
            if !entry.is_first() && self.tracker.is_removable(entry) {
                return Some(entry);
            }
        }
        None
    }

    fn propose_keep(&mut self) {
        if let Some(entry) = self.pick_extra() {
            self.tracker.remove(entry);
        }
    }

    fn propose_shift(&mut self) {
        let Some(entry) = self.pick_extra() else { return };
        let distance = 1 + self.numbers.below(6);
        let later = self.numbers.unit() < 0.5;
        let stage = if later { entry.stage() + distance } else { entry.stage().saturating_sub(distance) };
        let shifted = match entry.event() {
            Event::Run(operation) if self.problem.is_repeatable(operation, stage) => Entry::run(stage, operation),
            Event::Fetch(value) => {
                let producer = self.problem.values()[value].producer;
                if producer.is_some_and(|producer| producer as usize >= stage) {
                    return;
                }
                Entry::fetch(stage, value, producer)
            }
            Event::Run(_) => return,
        };
        if stage >= self.problem.len() {
            return;
        }
        if self.tracker.insert(shifted) && !self.tracker.is_needed(shifted) {
            self.tracker.remove(shifted);
        }
        if self.tracker.entries().binary_search(&entry).is_ok() && self.tracker.is_removable(entry) {
            self.tracker.remove(entry);
        }
    }

    fn energy(&self, penalty: Penalty, factor: f64) -> f64 {
        let over = self.tracker.peak_bytes().saturating_sub(self.budget_bytes);
        let mut energy = self.tracker.cost() as f64;
        if over > 0 {
            let mut excess = penalty.peak * over as f64;
            if penalty.sum > 0.0 {
                excess += penalty.sum * self.tracker.excess_bytes(self.budget_bytes) as f64;
            }
            energy += factor * excess;
        }
        energy
    }

    /// Anneals from `hot` to `cold` with so much work in all. The penalty grows while the sequence is beyond the budget, and
    /// shrinks while it is not.
    pub(crate) fn anneal(&mut self, work: u64, hot: f64, cold: f64, penalty: Penalty) {
        let mut factor: f64 = 1.0;
        let mut energy = self.energy(penalty, factor);
        let (start, mut proposals) = (self.tracker.work(), 0);
        for i in 0.. {
            proposals += PROPOSAL_WORK + self.tracker.entries().len() as u64;
            let spent = self.tracker.work() + proposals;
            if spent >= work {
                break;
            }
            // A penalty that lets the sequence go back and forth across the budget: the best ones are close to it.
            if i % ADJUSTMENT == ADJUSTMENT - 1 {
                let over = self.tracker.peak_bytes() > self.budget_bytes;
                factor = if over { factor * GROWTH } else { factor / GROWTH }.clamp(LEAST_FACTOR, MOST_FACTOR);
                energy = self.energy(penalty, factor);
            }
            let temperature = hot * (cold / hot).powf((spent - start) as f64 / (work - start) as f64);
            self.propose();
            if !self.tracker.has_changed() {
                continue;
            }
            self.evaluations += 1;
            let proposed = self.energy(penalty, factor);
            if proposed <= energy || self.numbers.unit() < ((energy - proposed) / temperature).exp() {
                energy = proposed;
                self.tracker.commit();
                self.note();
            } else {
                self.tracker.undo();
            }
        }
        self.problem.spend(self.tracker.work() + proposals);
    }
}
