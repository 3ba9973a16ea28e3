//! A sequence under change: memory and cost follow each change of an entry, without going through the whole sequence.

use super::problem::Problem;
use super::sequence::{Entry, Event};

/// An entry that makes a value or reads it.
#[derive(Clone, Copy, Debug)]
struct Touch {
    entry: Entry,
    makes: bool,
}

/// One change, so that it can be undone.
#[derive(Clone, Copy, Debug)]
enum Change {
    Inserted(Entry),
    Removed(Entry),
}

/// A sequence with its memory and cost.
#[derive(Clone, Debug)]
pub(crate) struct Tracker<'a> {
    problem: &'a Problem,
    entries: Vec<Entry>,
    /// Bytes in memory at each entry.
    memory: Vec<u64>,
    /// Bytes that an entry saves by taking over an input's memory.
    shared: Vec<u64>,
    /// For each value, the entries that make or read it, in order.
    touches: Vec<Vec<Touch>>,
    /// For each version of a value, how often it is fetched.
    fetches: Vec<u32>,
    cost: u64,
    upload_bytes: u64,
    changes: Vec<Change>,
    /// Work done so far, in units.
    work: u64,
}

/// What an entry takes in the first account of a sequence, and what a change takes besides the entries that it moves or whose
/// memory it changes, four to a unit.
const ACCOUNT_WORK: u64 = 120;
const CHANGE_WORK: u64 = 150;
const ENTRIES_PER_UNIT: u64 = 4;

/// Where a touch stands among those of its value.
#[derive(Clone, Copy)]
struct Around {
    earlier: Option<Entry>,
    /// The next touch, if it is of the same instance.
    used_later: bool,
}

impl<'a> Tracker<'a> {
    /// Follows changes from this sequence on.
    pub(crate) fn new(problem: &'a Problem, entries: &[Entry]) -> Self {
        let values = problem.values().len();
        let mut tracker = Tracker {
            problem,
            entries: entries.to_vec(),
            memory: Vec::new(),
            shared: Vec::new(),
            touches: vec![Vec::new(); values],
            fetches: vec![0; problem.version_number(values, 0)],
            cost: problem.return_cost(),
            upload_bytes: problem.upload_bytes(),
            changes: Vec::new(),
            work: ACCOUNT_WORK * entries.len() as u64,
        };
        tracker.account();
        tracker
    }

    /// Takes account of the sequence as a whole, once.
    fn account(&mut self) {
        let problem = self.problem;
        let entries = self.entries.clone();
        for &entry in &entries {
            self.add_cost(entry);
            match entry.event() {
                Event::Run(operation) => {
                    for &input in problem.inputs(operation) {
                        self.touches[input as usize].push(Touch { entry, makes: false });
                    }
                    for &output in problem.outputs(operation) {
                        self.touches[output as usize].push(Touch { entry, makes: true });
                    }
                }
                Event::Fetch(value) => self.touches[value].push(Touch { entry, makes: true }),
            }
        }
        // Memory as a sum of what begins and ends.
        let mut change = vec![0i64; entries.len() + 1];
        for v in 0..problem.values().len() {
            let bytes = problem.values()[v].bytes as i64;
            // An input that is needed at the end only.
            if self.touches[v].is_empty() && problem.values()[v].to_end {
                change[0] += bytes;
                change[entries.len()] -= bytes;
            }
            let mut from = None;
            for at in 0..self.touches[v].len() {
                let touch = self.touches[v][at];
                let position = self.position(touch.entry);
                let start = if at == 0 && !touch.makes { 0 } else { position };
                if touch.makes || at == 0 {
                    from = Some(start);
                }
                let ends = self.touches[v].get(at + 1).is_none_or(|next| next.makes);
                if let Some(begin) = from.filter(|_| ends) {
                    let last = at + 1 == self.touches[v].len();
                    let end = if last && problem.values()[v].to_end { entries.len() } else { position + 1 };
                    change[begin] += bytes;
                    change[end] -= bytes;
                }
            }
        }
        let mut bytes = 0;
        for (position, &entry) in entries.iter().enumerate() {
            bytes += change[position];
            let workspace_bytes = match entry.event() {
                Event::Run(operation) => problem.workspace_bytes(operation),
                Event::Fetch(_) => 0,
            };
            let shared = self.shared_bytes(entry);
            self.shared.push(shared);
            self.memory.push(bytes as u64 + workspace_bytes - shared);
        }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn memory(&self) -> &[u64] {
        &self.memory
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Most bytes in memory at once.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.memory.iter().fold(self.upload_bytes, |most, &bytes| most.max(bytes))
    }

    /// Bytes beyond the budget, summed over entries.
    pub(crate) fn excess_bytes(&self, budget_bytes: u64) -> u64 {
        let uploaded = std::iter::once(&self.upload_bytes);
        self.memory.iter().chain(uploaded).map(|&bytes| bytes.saturating_sub(budget_bytes)).sum()
    }

    /// Position of an entry of the sequence.
    pub(crate) fn position(&self, entry: Entry) -> usize {
        self.entries.binary_search(&entry).expect("bug: the entry is not there")
    }

    /// The last entry before `entry` that makes or reads the value.
    pub(crate) fn before(&self, value: usize, entry: Entry) -> Option<Entry> {
        let touches = &self.touches[value];
        let at = touches.partition_point(|touch| touch.entry < entry);
        at.checked_sub(1).map(|earlier| touches[earlier].entry)
    }

    /// What `entry` is among the touches of a value that it touches itself.
    fn around(&self, value: usize, entry: Entry) -> Around {
        let touches = &self.touches[value];
        let at = touches.partition_point(|touch| touch.entry < entry);
        let used_later = match touches.get(at + 1) {
            Some(next) => !next.makes,
            None => self.problem.values()[value].to_end,
        };
        Around { earlier: at.checked_sub(1).map(|earlier| touches[earlier].entry), used_later }
    }

    /// Bytes that an entry saves by taking over the memory of an input that ends there.
    fn shared_bytes(&self, entry: Entry) -> u64 {
        let Event::Run(operation) = entry.event() else { return 0 };
        let Some((a, b)) = self.problem.in_place(operation) else { return 0 };
        let ends = |value: u32| {
            if value == u32::MAX || self.problem.values()[value as usize].to_end {
                return false;
            }
            let touches = &self.touches[value as usize];
            let at = touches.partition_point(|touch| touch.entry <= entry);
            // What is fetched next must be copied to the host after this, not overwritten.
            touches.get(at).is_none_or(|next| next.makes && matches!(next.entry.event(), Event::Run(_)))
        };
        if ends(a) || ends(b) { self.problem.values()[self.problem.outputs(operation)[0] as usize].bytes } else { 0 }
    }

    fn share_anew(&mut self, entry: Entry) {
        if let Event::Run(operation) = entry.event()
            && self.problem.in_place(operation).is_some()
        {
            let (position, shared) = (self.position(entry), self.shared_bytes(entry));
            self.memory[position] = self.memory[position] + self.shared[position] - shared;
            self.shared[position] = shared;
        }
    }

    fn add_cost(&mut self, entry: Entry) {
        match entry.event() {
            Event::Run(operation) => self.cost += self.problem.cost(operation),
            Event::Fetch(value) => {
                let (number, prefetch_cost, offload_cost) = self.fetch_costs(value, entry);
                self.cost += prefetch_cost + if self.fetches[number] == 0 { offload_cost } else { 0 };
                self.fetches[number] += 1;
            }
        }
    }

    fn take_cost(&mut self, entry: Entry) {
        match entry.event() {
            Event::Run(operation) => self.cost -= self.problem.cost(operation),
            Event::Fetch(value) => {
                let (number, prefetch_cost, offload_cost) = self.fetch_costs(value, entry);
                self.fetches[number] -= 1;
                self.cost -= prefetch_cost + if self.fetches[number] == 0 { offload_cost } else { 0 };
            }
        }
    }

    /// The number of the version that an entry fetches, and what that costs: always, and for the first of its fetches.
    fn fetch_costs(&self, value: usize, entry: Entry) -> (usize, u64, u64) {
        let transfer = self.problem.values()[value].transfer.expect("bug: the value cannot move");
        let version = self.problem.version(value, entry.stage());
        let number = self.problem.version_number(value, version);
        (number, transfer.prefetch_cost, self.problem.offload_cost(value, version))
    }

    /// Adds an entry; false where it is there already.
    pub(crate) fn insert(&mut self, entry: Entry) -> bool {
        let inserted = self.place(entry);
        if inserted {
            self.changes.push(Change::Inserted(entry));
            self.prune_after(entry);
        }
        inserted
    }

    /// Takes an entry out, and those that nothing needs without it. Not for first runs.
    pub(crate) fn remove(&mut self, entry: Entry) {
        self.displace(entry);
        self.changes.push(Change::Removed(entry));
        if let Event::Run(operation) = entry.event() {
            for i in 0..self.problem.inputs(operation).len() {
                let input = self.problem.inputs(operation)[i] as usize;
                self.prune(input, entry);
            }
        }
    }

    /// Whether a run or a fetch may be taken out.
    pub(crate) fn is_removable(&self, entry: Entry) -> bool {
        match entry.event() {
            Event::Run(_) => !entry.is_first(),
            Event::Fetch(value) => {
                let described = &self.problem.values()[value];
                let hosted = described.transfer.is_some_and(|transfer| transfer.hosted);
                // A hosted value must come at least once.
                !hosted || self.touches[value].first().is_some_and(|first| first.entry < entry)
            }
        }
    }

    /// Takes what was made before an entry out where nothing reads it any more.
    fn prune_after(&mut self, entry: Entry) {
        match entry.event() {
            Event::Run(operation) => {
                for i in 0..self.problem.outputs(operation).len() {
                    let output = self.problem.outputs(operation)[i] as usize;
                    self.prune(output, entry);
                }
            }
            Event::Fetch(value) => self.prune(value, entry),
        }
    }

    /// Takes the run or fetch that made a value last before `entry` out, where nothing reads what it made.
    fn prune(&mut self, value: usize, entry: Entry) {
        let touches = &self.touches[value];
        let at = touches.partition_point(|touch| touch.entry < entry);
        let Some(&Touch { entry: maker, makes: true }) = at.checked_sub(1).map(|earlier| &touches[earlier]) else {
            return;
        };
        if self.is_removable(maker) && !self.is_needed(maker) {
            self.remove(maker);
        }
    }

    /// Whether anything reads what an entry makes.
    pub(crate) fn is_needed(&self, maker: Entry) -> bool {
        match maker.event() {
            Event::Run(operation) => {
                self.problem.outputs(operation).iter().any(|&output| self.around(output as usize, maker).used_later)
            }
            Event::Fetch(value) => self.around(value, maker).used_later,
        }
    }

    /// Work done so far, in units.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    /// Forgets how to undo changes so far.
    pub(crate) fn commit(&mut self) {
        self.changes.clear();
    }

    /// Whether anything changed since the last commit.
    pub(crate) fn has_changed(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Undoes all changes since the last commit.
    pub(crate) fn undo(&mut self) {
        while let Some(change) = self.changes.pop() {
            match change {
                Change::Inserted(entry) => self.displace(entry),
                Change::Removed(entry) => {
                    self.place(entry);
                }
            }
        }
    }

    fn add(&mut self, from: usize, to: usize, bytes: u64) {
        if from < to {
            self.work += (to - from) as u64 / ENTRIES_PER_UNIT;
            self.memory[from..to].iter_mut().for_each(|memory| *memory += bytes);
        }
    }

    fn take(&mut self, from: usize, to: usize, bytes: u64) {
        if from < to {
            self.work += (to - from) as u64 / ENTRIES_PER_UNIT;
            self.memory[from..to].iter_mut().for_each(|memory| *memory -= bytes);
        }
    }

    /// The first position after an entry; the start where there is none.
    fn after(&self, entry: Option<Entry>) -> usize {
        entry.map_or(0, |entry| self.position(entry) + 1)
    }

    /// Takes account of a change at a position: what follows moves in each of the three lists.
    fn spend_change(&mut self, position: usize) {
        self.work += CHANGE_WORK + 3 * (self.entries.len() - position) as u64 / ENTRIES_PER_UNIT;
    }

    fn place(&mut self, entry: Entry) -> bool {
        let problem = self.problem;
        let Err(position) = self.entries.binary_search(&entry) else { return false };
        // What waits in memory between the neighbours.
        let next = self.entries[position];
        let made = match next.event() {
            Event::Run(operation) => {
                let outputs = problem.outputs(operation).iter();
                outputs.map(|&output| problem.values()[output as usize].bytes).sum::<u64>()
                    + problem.workspace_bytes(operation)
            }
            Event::Fetch(value) => problem.values()[value].bytes,
        };
        let waiting = self.memory[position] + self.shared[position] - made;
        self.spend_change(position);
        self.entries.insert(position, entry);
        self.memory.insert(position, waiting);
        self.shared.insert(position, 0);
        self.add_cost(entry);
        match entry.event() {
            Event::Run(operation) => {
                self.memory[position] += problem.workspace_bytes(operation);
                for &input in problem.inputs(operation) {
                    self.insert_touch(input as usize, Touch { entry, makes: false });
                    let around = self.around(input as usize, entry);
                    if !around.used_later {
                        let from = self.after(around.earlier);
                        self.add(from, position + 1, problem.values()[input as usize].bytes);
                        around.earlier.into_iter().for_each(|earlier| self.share_anew(earlier));
                    }
                }
                for &output in problem.outputs(operation) {
                    self.place_made(output as usize, entry, position);
                }
                self.share_anew(entry);
            }
            Event::Fetch(value) => self.place_made(value, entry, position),
        }
        true
    }

    fn place_made(&mut self, value: usize, entry: Entry, position: usize) {
        self.insert_touch(value, Touch { entry, makes: true });
        let around = self.around(value, entry);
        let bytes = self.problem.values()[value].bytes;
        if around.used_later {
            // What was there before ends earlier.
            let from = self.after(around.earlier);
            self.take(from, position, bytes);
        } else {
            self.add(position, position + 1, bytes);
        }
        around.earlier.into_iter().for_each(|earlier| self.share_anew(earlier));
    }

    fn displace(&mut self, entry: Entry) {
        let problem = self.problem;
        let position = self.position(entry);
        self.spend_change(position);
        self.take_cost(entry);
        match entry.event() {
            Event::Run(operation) => {
                for &input in problem.inputs(operation) {
                    let around = self.around(input as usize, entry);
                    self.remove_touch(input as usize, entry);
                    if !around.used_later {
                        let from = self.after(around.earlier);
                        self.take(from, position, problem.values()[input as usize].bytes);
                        around.earlier.into_iter().for_each(|earlier| self.share_anew(earlier));
                    }
                }
                for &output in problem.outputs(operation) {
                    self.displace_made(output as usize, entry, position);
                }
            }
            Event::Fetch(value) => self.displace_made(value, entry, position),
        }
        self.entries.remove(position);
        self.memory.remove(position);
        self.shared.remove(position);
    }

    fn displace_made(&mut self, value: usize, entry: Entry, position: usize) {
        let around = self.around(value, entry);
        self.remove_touch(value, entry);
        if around.used_later {
            let from = self.after(around.earlier);
            self.add(from, position, self.problem.values()[value].bytes);
        }
        around.earlier.into_iter().for_each(|earlier| self.share_anew(earlier));
    }

    fn insert_touch(&mut self, value: usize, touch: Touch) {
        let at = self.touches[value].partition_point(|other| other.entry < touch.entry);
        self.touches[value].insert(at, touch);
    }

    fn remove_touch(&mut self, value: usize, entry: Entry) {
        let at = self.touches[value].partition_point(|other| other.entry < entry);
        self.touches[value].remove(at);
    }
}
