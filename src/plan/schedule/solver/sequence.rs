//! A schedule as a sequence of entries, and exactly what it takes.

use super::problem::Problem;

/// What happens next: an operation runs, or a value comes back from the host tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Event {
    /// An operation runs, for the first time or again.
    Run(usize),
    /// A value comes back from the host tier.
    Fetch(usize),
}

const VALUE_BITS: u32 = 22;
const KEY_BITS: u32 = 21;

/// An event with its stage: the operation whose first run it precedes, or is.
///
/// Entries are ordered. Within a stage, events stand in the order of the operations that make their values, so that
/// what is run again finds its inputs; the stage's own operation is last. No event is twice in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Entry(u64);

impl Entry {
    /// The first run of an operation.
    pub(crate) fn first(operation: usize) -> Entry {
        Entry::run(operation, operation)
    }

    /// A run of `operation` in `stage`.
    pub(crate) fn run(stage: usize, operation: usize) -> Entry {
        Entry((stage as u64) << (KEY_BITS + VALUE_BITS) | (operation as u64 + 1) << VALUE_BITS)
    }

    /// A fetch in `stage` of a value that `producer` makes, if any does.
    pub(crate) fn fetch(stage: usize, value: usize, producer: Option<u32>) -> Entry {
        let key = producer.map_or(0, |producer| u64::from(producer) + 1);
        Entry((stage as u64) << (KEY_BITS + VALUE_BITS) | key << VALUE_BITS | (value as u64 + 1))
    }

    pub(crate) fn stage(self) -> usize {
        (self.0 >> (KEY_BITS + VALUE_BITS)) as usize
    }

    pub(crate) fn event(self) -> Event {
        match self.0 & ((1 << VALUE_BITS) - 1) {
            0 => Event::Run(((self.0 >> VALUE_BITS) & ((1 << KEY_BITS) - 1)) as usize - 1),
            value => Event::Fetch(value as usize - 1),
        }
    }

    /// Whether it is the first run of its stage's operation.
    pub(crate) fn is_first(self) -> bool {
        self.event() == Event::Run(self.stage())
    }
}

/// What a sequence comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Of all events, and of the copies to the host tier that they need.
    pub(crate) cost: u64,
    /// Most bytes in memory at once.
    pub(crate) peak_bytes: u64,
    /// Bytes beyond the budget, summed over events.
    pub(crate) excess_bytes: u64,
}

/// What an entry takes in a run of the simulator, in units of work.
const ENTRY_WORK: u64 = 14;

/// Memory of an entry that nothing needs.
pub(super) const SKIPPED: u64 = u64::MAX;

/// Runs sequences through an account of memory.
///
/// A value that an event makes lives to its last use before the next event that makes it. Sequences are read from the
/// end, so that a value's last use is the first one seen. Runs and fetches that nothing needs do not count.
#[derive(Debug)]
pub(crate) struct Simulator<'a> {
    problem: &'a Problem,
    /// Whether what comes later in the sequence needs the value as it is here.
    live: Vec<bool>,
    /// Versions of values that are fetched.
    fetched: Vec<(u32, u32)>,
    /// Whether the next event that makes the value is a fetch.
    by_fetch: Vec<bool>,
    /// Bytes in memory at each entry of the last sequence; [`SKIPPED`] where nothing needs it.
    pub(crate) memory: Vec<u64>,
    /// Bytes at the start: inputs are uploaded together.
    upload_bytes: u64,
    to_end: Vec<u32>,
    return_cost: u64,
}

impl<'a> Simulator<'a> {
    /// For sequences of this problem.
    pub(crate) fn new(problem: &'a Problem) -> Self {
        let values = problem.values();
        Simulator {
            live: vec![false; values.len()],
            fetched: Vec::new(),
            by_fetch: vec![false; values.len()],
            memory: Vec::new(),
            upload_bytes: problem.upload_bytes(),
            to_end: (0..values.len()).filter(|&v| values[v].to_end).map(|v| v as u32).collect(),
            return_cost: problem.return_cost(),
            problem,
        }
    }

    /// What the sequence comes to under a budget. `self.memory` is then the bytes at each entry.
    pub(crate) fn run(&mut self, entries: &[Entry], budget_bytes: u64) -> Outcome {
        let problem = self.problem;
        problem.spend(ENTRY_WORK * entries.len() as u64);
        let values = problem.values();
        self.live.fill(false);
        self.by_fetch.fill(false);
        self.fetched.clear();
        self.memory.resize(entries.len(), 0);
        let (mut cost, mut peak_bytes, mut excess_bytes, mut bytes) = (self.return_cost, 0, 0, 0);
        for &value in &self.to_end {
            self.live[value as usize] = true;
            bytes += values[value as usize].bytes;
        }
        for (position, &entry) in entries.iter().enumerate().rev() {
            let at_event = match entry.event() {
                Event::Run(operation) => {
                    let outputs = problem.outputs(operation);
                    if operation != entry.stage() && !outputs.iter().any(|&output| self.live[output as usize]) {
                        self.memory[position] = SKIPPED;
                        continue;
                    }
                    cost += problem.cost(operation);
                    let (mut made_live, mut made_dead) = (0, 0);
                    for &output in outputs {
                        let size = values[output as usize].bytes;
                        self.by_fetch[output as usize] = false;
                        if std::mem::replace(&mut self.live[output as usize], false) {
                            made_live += size;
                        } else {
                            made_dead += size;
                        }
                    }
                    let in_place = problem.in_place(operation);
                    let (mut shared, mut ended) = (0, 0);
                    for &input in problem.inputs(operation) {
                        if !std::mem::replace(&mut self.live[input as usize], true) {
                            ended += values[input as usize].bytes;
                            let can = in_place.is_some_and(|(a, b)| a == input || b == input);
                            if can && shared == 0 && !self.by_fetch[input as usize] {
                                shared = values[outputs[0] as usize].bytes;
                            }
                        }
                    }
                    let at_event = bytes + made_dead + ended + problem.workspace_bytes(operation) - shared;
                    bytes = bytes + ended - made_live;
                    at_event
                }
                Event::Fetch(value) => {
                    if !std::mem::replace(&mut self.live[value], false) {
                        self.memory[position] = SKIPPED;
                        continue;
                    }
                    let Some(transfer) = values[value].transfer else { unreachable!("bug: the value cannot move") };
                    cost += transfer.prefetch_cost;
                    let known = std::mem::replace(&mut self.by_fetch[value], true);
                    if !known || !problem.changers(value).is_empty() {
                        self.fetched.push((value as u32, problem.version(value, entry.stage()) as u32));
                    }
                    let at_event = bytes;
                    bytes -= values[value].bytes;
                    at_event
                }
            };
            self.memory[position] = at_event;
            peak_bytes = peak_bytes.max(at_event);
            excess_bytes += at_event.saturating_sub(budget_bytes);
        }
        self.fetched.sort_unstable();
        self.fetched.dedup();
        // The copy to the host is made once.
        for &(value, version) in &self.fetched {
            cost += problem.offload_cost(value as usize, version as usize);
        }
        excess_bytes += self.upload_bytes.saturating_sub(budget_bytes);
        Outcome { cost, peak_bytes: peak_bytes.max(self.upload_bytes), excess_bytes }
    }

    /// Most bytes in memory at each stage of the last sequence, which is this one.
    pub(super) fn at_stages(&self, entries: &[Entry]) -> Vec<u64> {
        let mut most = vec![0; self.problem.len()];
        for (entry, &bytes) in entries.iter().zip(&self.memory) {
            most[entry.stage()] = most[entry.stage()].max(bytes);
        }
        most
    }

    /// The entries of the last sequence that count.
    pub(crate) fn needed(&self, entries: &[Entry]) -> Vec<Entry> {
        let counts = |position: usize| self.memory[position] != SKIPPED;
        (0..entries.len()).filter(|&position| counts(position)).map(|position| entries[position]).collect()
    }
}
