//! Local search over sequences, with the exact simulator.

use super::problem::Problem;
use super::sequence::{Entry, Event, Outcome, SKIPPED, Simulator};

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

/// A sequence under change.
pub(crate) struct Annealer<'a> {
    problem: &'a Problem,
    pub(crate) simulator: Simulator<'a>,
    budget_bytes: u64,
    pub(crate) entries: Vec<Entry>,
    pub(crate) outcome: Outcome,
    numbers: Numbers,
    /// Memory at each entry as of the last accepted sequence.
    memory: Vec<u64>,
    inserted: Vec<Entry>,
    removed: Vec<Entry>,
    pub(crate) best: Option<(u64, Vec<Entry>)>,
    pub(crate) evaluations: u64,
}

impl<'a> Annealer<'a> {
    pub(crate) fn new(problem: &'a Problem, budget_bytes: u64, entries: Vec<Entry>, seed: u64) -> Self {
        let mut simulator = Simulator::new(problem);
        let outcome = simulator.run(&entries, budget_bytes);
        let memory = simulator.memory.clone();
        let mut annealer = Annealer {
            problem,
            simulator,
            budget_bytes,
            entries,
            outcome,
            numbers: Numbers::new(seed),
            memory,
            inserted: Vec::new(),
            removed: Vec::new(),
            best: None,
            evaluations: 1,
        };
        annealer.note();
        annealer
    }

    fn note(&mut self) {
        let fits = self.outcome.peak_bytes <= self.budget_bytes;
        if fits && self.best.as_ref().is_none_or(|(cost, _)| self.outcome.cost < *cost) {
            self.best = Some((self.outcome.cost, self.simulator.needed(&self.entries)));
        }
    }

    fn insert(&mut self, entry: Entry) -> bool {
        match self.entries.binary_search(&entry) {
            Ok(_) => false,
            Err(position) => {
                self.entries.insert(position, entry);
                self.inserted.push(entry);
                true
            }
        }
    }

    fn remove(&mut self, entry: Entry) -> bool {
        match self.entries.binary_search(&entry) {
            Ok(position) => {
                self.entries.remove(position);
                self.removed.push(entry);
                true
            }
            Err(_) => false,
        }
    }

    fn undo(&mut self) {
        for entry in self.inserted.drain(..) {
            let position = self.entries.binary_search(&entry).expect("bug: it was inserted");
            self.entries.remove(position);
        }
        for entry in self.removed.drain(..) {
            let position = self.entries.binary_search(&entry).expect_err("bug: it was removed");
            self.entries.insert(position, entry);
        }
    }

    /// Makes a value again in `stage`, and what that needs where having kept it would be too much.
    fn make_again(&mut self, value: usize, stage: usize, depth: usize) {
        let described = self.problem.values()[value];
        let Some(producer) = described.producer else { return };
        if !self.problem.is_repeatable(producer as usize, stage) {
            return;
        }
        if !self.insert(Entry::run(stage, producer as usize)) || depth == 0 {
            return;
        }
        for i in 0..self.problem.inputs(producer as usize).len() {
            let input = self.problem.inputs(producer as usize)[i] as usize;
            let bytes = self.problem.values()[input].bytes;
            // Is it there anyway? Look back for its last use and how full memory was since.
            let here = self.entries.partition_point(|&entry| entry < Entry::run(stage, producer as usize));
            let mut fullest = 0;
            let mut far = false;
            for (k, &entry) in self.entries[..here].iter().enumerate().rev() {
                let uses = match entry.event() {
                    Event::Run(operation) => {
                        self.problem.inputs(operation).contains(&(input as u32))
                            || self.problem.outputs(operation).contains(&(input as u32))
                    }
                    Event::Fetch(fetched) => fetched == input,
                };
                if uses {
                    break;
                }
                if let Some(&memory) = self.memory.get(k)
                    && memory != SKIPPED
                {
                    fullest = fullest.max(memory);
                }
                far = true;
            }
            let too_full = far && fullest + bytes > self.budget_bytes;
            if too_full == (self.numbers.unit() < 0.85) && far {
                self.make_again(input, stage, depth - 1);
            }
        }
    }

    fn propose(&mut self) {
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
        let position = self.numbers.below(self.entries.len());
        let entry = self.entries[position];
        let Event::Run(operation) = entry.event() else { return };
        let inputs = self.problem.inputs(operation);
        if inputs.is_empty() {
            return;
        }
        let input = inputs[self.numbers.below(inputs.len())] as usize;
        self.make_again(input, entry.stage(), 12);
    }

    /// Frees memory at a moment that is too full: a value that waits there is made again for its next use.
    fn propose_relief(&mut self) {
        let over = self.budget_bytes.max(self.outcome.peak_bytes / 16 * 15).min(self.outcome.peak_bytes);
        let start = self.numbers.below(self.entries.len());
        let full = |&k: &usize| self.memory[k] >= over;
        let Some(at) = (start..self.entries.len()).chain(0..start).find(full) else { return };
        for _ in 0..8 {
            let room = self.entries.len() - at - 1;
            if room == 0 {
                return;
            }
            let use_at = at + 1 + self.numbers.below(room);
            let entry = self.entries[use_at];
            let Event::Run(operation) = entry.event() else { continue };
            let inputs = self.problem.inputs(operation);
            if inputs.is_empty() {
                continue;
            }
            let input = inputs[self.numbers.below(inputs.len())];
            let touched = self.entries[at..use_at].iter().any(|entry| match entry.event() {
                Event::Run(operation) => {
                    self.problem.inputs(operation).contains(&input) || self.problem.outputs(operation).contains(&input)
                }
                Event::Fetch(fetched) => fetched == input as usize,
            });
            if !touched {
                self.make_again(input as usize, entry.stage(), 12);
                return;
            }
        }
    }

    /// Index of an entry that may go, if luck finds one.
    fn pick_extra(&mut self) -> Option<Entry> {
        for _ in 0..16 {
            let entry = self.entries[self.numbers.below(self.entries.len())];
            if !entry.is_first() {
                return Some(entry);
            }
        }
        None
    }

    fn propose_keep(&mut self) {
        if let Some(entry) = self.pick_extra() {
            self.remove(entry);
        }
    }

    fn propose_shift(&mut self) {
        let Some(entry) = self.pick_extra() else { return };
        let Event::Run(operation) = entry.event() else { return };
        let distance = 1 + self.numbers.below(6);
        let stage = if self.numbers.unit() < 0.5 {
            entry.stage() + distance
        } else {
            entry.stage().saturating_sub(distance)
        };
        if stage < self.problem.len() && self.problem.is_repeatable(operation, stage) {
            self.remove(entry);
            self.insert(Entry::run(stage, operation));
        }
    }

    fn energy(&self, outcome: &Outcome, weights: (f64, f64)) -> f64 {
        let over = outcome.peak_bytes.saturating_sub(self.budget_bytes) as f64;
        outcome.cost as f64 + weights.0 * over + weights.1 * outcome.excess_bytes as f64
    }

    /// Anneals from `hot` to `cold` over so many evaluations.
    pub(crate) fn anneal(&mut self, evaluations: u64, hot: f64, cold: f64, weights: (f64, f64)) {
        let mut energy = self.energy(&self.outcome, weights);
        for i in 0..evaluations {
            let temperature = hot * (cold / hot).powf(i as f64 / evaluations as f64);
            self.inserted.clear();
            self.removed.clear();
            self.propose();
            if self.inserted.is_empty() && self.removed.is_empty() {
                continue;
            }
            self.evaluations += 1;
            let outcome = self.simulator.run(&self.entries, self.budget_bytes);
            let proposed = self.energy(&outcome, weights);
            let better = proposed <= energy;
            if better || self.numbers.unit() < ((energy - proposed) / temperature).exp() {
                energy = proposed;
                self.outcome = outcome;
                let skipped = self.simulator.memory.contains(&SKIPPED);
                self.note();
                if skipped {
                    self.entries = self.simulator.needed(&self.entries);
                    self.simulator.memory.retain(|&memory| memory != SKIPPED);
                }
                self.memory.clone_from(&self.simulator.memory);
            } else {
                self.undo();
            }
        }
    }
}
