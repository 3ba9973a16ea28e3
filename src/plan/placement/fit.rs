//! Branch and bound for offsets in a space of given size.
//!
//! Any packing can be pushed down until each interval lies on the bottom or on another interval. So intervals are
//! placed from the bottom up, each on top of what is placed below it, and the choice at a node is which interval comes
//! next in one section of time: one that can lie at the section's floor, or none, which leaves a gap there.
//!
//! - A section whose floor and remaining intervals exceed the space ends a branch.
//! - Once nothing that remains crosses some time, what lies before it and after it are searched one after the other,
//!   and neither is searched again for another solution when the other has none.
//! - Parts that were found to have no solution are remembered.
//! - A few bad choices near the root can cost any amount of time, while other orders of the choices have a solution
//!   within a few hundred nodes. So each order gets few nodes, and is followed by another.
//!
//! Ideas: M. Moffitt, MiniMalloc (ASPLOS 2023), for the canonical solutions, sections, their floors and decomposition;
//! Gomes et al., Boosting combinatorial search through randomization (AAAI 1998), for the restarts.

use super::Interval;
use super::sections::Sections;

/// Parts without a solution that are remembered; a power of two.
const REMEMBERED: usize = 1 << 16;
/// Not placed.
const NOWHERE: u64 = u64::MAX;

/// What came of a search.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// One offset per interval.
    Fits(Vec<u64>),
    /// There is no solution.
    Never,
    /// The limit of work was reached.
    GaveUp,
}

/// The section at which to branch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Branching {
    /// One with the fewest choices, wherever it is safe to branch.
    Fewest,
    /// One with the lowest floor.
    Lowest,
}

/// What can change and be restored.
#[derive(Clone, Copy)]
enum Slot {
    Offset,
    Touch,
    Least,
    Floor,
    Witness,
}

#[derive(Clone, Copy)]
enum Choice {
    /// Place this interval at the lowest offset that is left to it.
    Place(u32),
    /// What comes next in this section does so from this offset on.
    Raise(usize, u64),
}

/// A part of the time, of which nothing that remains reaches out, and the rest of the list of parts to do.
#[derive(Clone, Copy)]
struct Part {
    sections: (usize, usize),
    /// The node whose choice left this part, so the one to go back to if it has no solution.
    parent: Option<usize>,
    next: Option<usize>,
}

struct Node {
    part: Part,
    /// Identifies the part and the state it is in.
    key: u64,
    /// Choices left, the next one last.
    choices: Vec<Choice>,
    /// Lengths of the trail and of the list of parts when the node was made.
    trail: usize,
    parts: usize,
}

/// Searches for offsets of a set of intervals.
pub(super) struct Fitter {
    sections: Sections,
    sizes: Vec<u64>,
    durations: Vec<u64>,
    /// Intervals that share a time with each interval.
    neighbors: Vec<Vec<u32>>,
    /// Intervals that begin in each section.
    joining: Vec<Vec<u32>>,
    capacity: u64,
    branching: Branching,
    /// The intervals' places in the order in which they are tried.
    ranks: Vec<u32>,
    // Per interval:
    offsets: Vec<u64>,
    /// Top of what is placed below.
    touch: Vec<u64>,
    /// Least offset: `touch`, or more by a choice to leave a gap.
    least: Vec<u64>,
    // Per section:
    /// Least offset of what is not placed.
    floors: Vec<u64>,
    /// An interval that has this least offset.
    witness: Vec<u32>,
    /// Bytes and number of what is not placed.
    left_bytes: Vec<u64>,
    left: Vec<u32>,
    /// Number of what is not placed and crosses into the next section.
    bridges: Vec<u32>,
    /// The nearest section before and after with a lower floor, exclusive and inclusive.
    basin: Vec<(usize, usize)>,
    /// Former values, in the order of changes.
    trail: Vec<(Slot, u32, u64)>,
    /// Sections whose floor has to be found again.
    dirty: Vec<u32>,
    is_dirty: Vec<bool>,
    /// Keys of parts that have no solution in this capacity, each at the place that its low bits give.
    failed: Vec<u64>,
    work: u64,
}

impl Fitter {
    /// `None` if the intervals cross more than `most_crossings` sections.
    pub(super) fn new(intervals: &[Interval], most_crossings: usize) -> Option<Self> {
        let sections = Sections::of(intervals, most_crossings)?;
        let sizes: Vec<_> = intervals.iter().map(|interval| interval.size_bytes).collect();
        let mut neighbors = vec![Vec::new(); intervals.len()];
        let mut joining = vec![Vec::new(); sections.members.len()];
        for (i, span) in sections.spans.iter().enumerate() {
            joining[span.0].push(i as u32);
        }
        for (section, members) in sections.members.iter().enumerate() {
            for &i in &joining[section] {
                for &j in members {
                    // Two that join together meet twice in these loops, others once.
                    if j < i || sections.spans[j as usize].0 < section {
                        neighbors[i as usize].push(j);
                        neighbors[j as usize].push(i);
                    }
                }
            }
        }
        let mut bridges = vec![0; sections.members.len()];
        for &(start, end) in &sections.spans {
            bridges[start..end - 1].iter_mut().for_each(|bridge| *bridge += 1);
        }
        let bytes = |members: &Vec<u32>| members.iter().map(|&i| sizes[i as usize]).sum();
        let (n, count) = (intervals.len(), sections.members.len());
        Some(Fitter {
            durations: intervals.iter().map(|interval| (interval.end - interval.start) as u64).collect(),
            neighbors,
            joining,
            capacity: 0,
            branching: Branching::Fewest,
            ranks: vec![0; n],
            offsets: vec![NOWHERE; n],
            touch: vec![0; n],
            least: vec![0; n],
            floors: vec![0; count],
            witness: sections.members.iter().map(|members| members[0]).collect(),
            left_bytes: sections.members.iter().map(bytes).collect(),
            left: sections.members.iter().map(|members| members.len() as u32).collect(),
            bridges,
            basin: vec![(0, 0); count],
            trail: Vec::new(),
            dirty: Vec::new(),
            is_dirty: vec![false; count],
            failed: vec![0; REMEMBERED],
            work: 0,
            sections,
            sizes,
        })
    }

    /// Most bytes needed at one time.
    pub(super) fn floor_bytes(&self) -> u64 {
        self.left_bytes.iter().copied().max().unwrap_or(0)
    }

    /// Searches for offsets in `capacity` bytes with at most `share` of the steps in `work`, from which it takes those
    /// that it used.
    pub(super) fn fit(&mut self, capacity: u64, share: u64, work: &mut u64) -> Outcome {
        if capacity < self.floor_bytes() {
            return Outcome::Never;
        }
        if capacity != self.capacity {
            self.failed.fill(0);
            self.capacity = capacity;
        }
        self.work = 0;
        let mut outcome = Outcome::GaveUp;
        for round in 0.. {
            self.rank(round);
            // Twice as many nodes as intervals are placed; more after a while, so that the search ends in the end.
            let nodes = (2 * self.sizes.len() as u64 + 32) << (round / 32).min(32);
            outcome = self.search(nodes, share);
            if outcome == Outcome::GaveUp && self.work < share {
                self.undo(0);
                continue;
            }
            break;
        }
        self.undo(0);
        *work = work.saturating_sub(self.work);
        outcome
    }

    /// Sets the order in which intervals are tried: between those of longest duration and of largest size first.
    fn rank(&mut self, round: u64) {
        self.branching = if round.is_multiple_of(2) { Branching::Fewest } else { Branching::Lowest };
        let mut state = round;
        let mut random = |below: u64| {
            state = scramble(state);
            (state >> 32) * below >> 32
        };
        // The first rounds are those two orders, then come mixtures of them with some noise.
        let by_duration = if round < 4 { 64 * (1 - round / 2) } else { random(65) };
        let noise = if round < 4 { 1 } else { 28 << 16 };
        let scores: Vec<_> = (0..self.sizes.len())
            .map(|i| {
                let score = by_duration * log2(self.durations[i]) + (64 - by_duration) * log2(self.sizes[i]);
                (std::cmp::Reverse(score + random(noise)), i)
            })
            .collect();
        let mut order: Vec<_> = (0..scores.len()).collect();
        order.sort_unstable_by_key(|&i| scores[i]);
        for (rank, i) in order.into_iter().enumerate() {
            self.ranks[i] = rank as u32;
        }
    }

    fn search(&mut self, nodes: u64, share: u64) -> Outcome {
        let mut nodes_left = nodes;
        let mut stack: Vec<Node> = Vec::new();
        let mut parts: Vec<Part> = Vec::new();
        let mut to_do = self.split((0, self.floors.len()), None, None, &mut parts);
        while let Some(index) = to_do {
            if nodes_left == 0 || self.work > share {
                return Outcome::GaveUp;
            }
            nodes_left -= 1;
            let part = parts[index];
            let key = self.key(part.sections);
            let mut at = part.parent;
            if self.failed[key as usize % REMEMBERED] != key {
                let choices = self.choices(part.sections);
                at = Some(stack.len());
                stack.push(Node { part, key, choices, trail: self.trail.len(), parts: parts.len() });
            }
            to_do = loop {
                // Nothing is left to choose at the root.
                let Some(node) = at else { return Outcome::Never };
                stack.truncate(node + 1);
                let Node { part, key, trail, parts: parts_length, ref mut choices } = stack[node];
                self.undo(trail);
                parts.truncate(parts_length);
                match choices.pop() {
                    Some(choice) => {
                        if self.apply(choice) {
                            break self.split(part.sections, Some(node), part.next, &mut parts);
                        }
                    }
                    None => {
                        self.failed[key as usize % REMEMBERED] = key;
                        at = part.parent;
                    }
                }
            };
        }
        Outcome::Fits(self.offsets.clone())
    }

    /// Puts the parts into which what remains in these sections falls in front of the list of parts to do, and returns
    /// its new first: the shortest, which is the first to fail.
    fn split(
        &mut self,
        (from, to): (usize, usize),
        parent: Option<usize>,
        mut next: Option<usize>,
        parts: &mut Vec<Part>,
    ) -> Option<usize> {
        self.work += (to - from) as u64;
        let mut found: Vec<(usize, usize)> = Vec::new();
        let mut start = from;
        for section in from..to {
            if self.bridges[section] == 0 {
                if self.left[section] > 0 {
                    found.push((start, section + 1));
                }
                start = section + 1;
            }
        }
        found.sort_unstable_by_key(|&(start, end)| std::cmp::Reverse((end - start, start)));
        for sections in found {
            parts.push(Part { sections, parent, next });
            next = Some(parts.len() - 1);
        }
        next
    }

    /// Identifies what remains in these sections and all that matters about what is placed. Never 0.
    fn key(&mut self, (from, to): (usize, usize)) -> u64 {
        let mut key = 0u64;
        for section in from..to {
            self.work += self.joining[section].len() as u64;
            for &i in &self.joining[section] {
                let i = i as usize;
                if self.offsets[i] == NOWHERE {
                    let touches = u64::from(self.touch[i] == self.least[i]);
                    key = key.wrapping_add(scramble(scramble(i as u64) ^ (2 * self.least[i] + touches)));
                }
            }
        }
        key.max(1)
    }

    /// The choices at the section where to branch, the first one last.
    fn choices(&mut self, (from, to): (usize, usize)) -> Vec<Choice> {
        self.find_basins(from, to);
        let mut best: Option<([u64; 3], usize, Option<u64>)> = None;
        for section in from..to {
            let floor = self.floors[section];
            let dear = best.is_some_and(|(score, ..)| self.branching == Branching::Lowest && floor > score[0]);
            if self.left[section] == 0 || dear {
                continue;
            }
            let basin = self.basin[section];
            // Where there is room below an interval, something else may have to be placed before it.
            let low = |i: u32| {
                let (start, end) = self.sections.spans[i as usize];
                start < basin.0 || end > basin.1
            };
            if low(self.witness[section]) {
                continue;
            }
            let (mut candidates, mut safe) = (0, true);
            self.work += self.sections.members[section].len() as u64;
            for &i in &self.sections.members[section] {
                if self.offsets[i as usize] == NOWHERE && self.least[i as usize] == floor {
                    if low(i) {
                        safe = false;
                        break;
                    }
                    candidates += u64::from(self.touch[i as usize] == floor);
                }
            }
            let dear = best.is_some_and(|(score, ..)| self.branching == Branching::Fewest && candidates > score[0]);
            if !safe || dear {
                continue;
            }
            let slack = self.capacity - floor - self.left_bytes[section];
            let raised = if slack == 0 { NOWHERE } else { self.raised(section) };
            let raised = (raised != NOWHERE && raised - floor <= slack).then_some(raised);
            let count = candidates + u64::from(raised.is_some());
            let score = match self.branching {
                Branching::Fewest => [count, floor, slack],
                Branching::Lowest => [floor, count, slack],
            };
            if best.is_none_or(|(least, ..)| score < least) {
                best = Some((score, section, raised));
            }
            if count == 0 {
                break;
            }
        }
        let (_, section, raised) = best.expect("bug: it is safe to branch at the lowest floor");
        let floor = self.floors[section];
        let can_lie = |&i: &u32| {
            let i = i as usize;
            self.offsets[i] == NOWHERE && self.least[i] == floor && self.touch[i] == floor
        };
        let mut candidates: Vec<_> = self.sections.members[section].iter().copied().filter(can_lie).collect();
        // Of intervals that are all the same, one is enough. The sort keeps them next to each other.
        let alike = |i: u32| (self.sections.spans[i as usize], self.sizes[i as usize]);
        candidates.sort_unstable_by_key(|&i| (alike(i), i));
        candidates.dedup_by_key(|&mut i| alike(i));
        candidates.sort_unstable_by_key(|&i| std::cmp::Reverse(self.ranks[i as usize]));
        let gap = raised.map(|offset| Choice::Raise(section, offset));
        gap.into_iter().chain(candidates.into_iter().map(Choice::Place)).collect()
    }

    /// Finds the sections around each one whose floors are no lower than its own.
    fn find_basins(&mut self, from: usize, to: usize) {
        let mut open: Vec<usize> = Vec::new();
        for section in from..to {
            while open.last().is_some_and(|&last| self.floors[last] > self.floors[section]) {
                open.pop().into_iter().for_each(|last| self.basin[last].1 = section);
            }
            // Of equal floors the first one's basin begins where that of all begins.
            self.basin[section].0 = match open.last() {
                Some(&last) if self.floors[last] == self.floors[section] => self.basin[last].0,
                Some(&last) => last + 1,
                None => from,
            };
            open.push(section);
        }
        for last in open {
            self.basin[last].1 = to;
        }
        self.work += (to - from) as u64;
    }

    /// The least offset of what comes next in a section if that does not lie at its floor.
    fn raised(&mut self, section: usize) -> u64 {
        let floor = self.floors[section];
        let mut raised = NOWHERE;
        self.work += self.sections.members[section].len() as u64;
        for &i in &self.sections.members[section] {
            let i = i as usize;
            if self.offsets[i] != NOWHERE {
                continue;
            }
            if self.least[i] > floor {
                raised = raised.min(self.least[i]);
                continue;
            }
            // It could lie at the floor, so something that is elsewhere in time must come below it.
            self.work += self.neighbors[i].len() as u64;
            for &j in &self.neighbors[i] {
                let (start, end) = self.sections.spans[j as usize];
                if self.offsets[j as usize] == NOWHERE && (section < start || end <= section) {
                    raised = raised.min(self.least[j as usize] + self.sizes[j as usize]);
                }
            }
        }
        raised
    }

    /// False if what remains cannot fit.
    fn apply(&mut self, choice: Choice) -> bool {
        match choice {
            Choice::Place(i) => self.place(i as usize),
            Choice::Raise(section, offset) => {
                for at in 0..self.sections.members[section].len() {
                    let i = self.sections.members[section][at] as usize;
                    if self.offsets[i] == NOWHERE && self.least[i] < offset {
                        self.set(Slot::Least, i, offset);
                        self.mark(i);
                    }
                }
                self.settle()
            }
        }
    }

    fn place(&mut self, i: usize) -> bool {
        let top = self.least[i] + self.sizes[i];
        self.set(Slot::Offset, i, self.least[i]);
        let (start, end) = self.sections.spans[i];
        for section in start..end {
            self.left[section] -= 1;
            self.left_bytes[section] -= self.sizes[i];
            self.bridges[section] -= u32::from(section + 1 < end);
        }
        self.mark(i);
        self.work += self.neighbors[i].len() as u64;
        for at in 0..self.neighbors[i].len() {
            let j = self.neighbors[i][at] as usize;
            if self.offsets[j] != NOWHERE {
                continue;
            }
            if self.touch[j] < top {
                self.set(Slot::Touch, j, top);
            }
            if self.least[j] < top {
                self.set(Slot::Least, j, top);
                self.mark(j);
            }
        }
        self.settle()
    }

    /// Marks the sections whose floors depended on this interval.
    fn mark(&mut self, i: usize) {
        let (start, end) = self.sections.spans[i];
        self.work += (end - start) as u64;
        for section in start..end {
            if self.witness[section] == i as u32 && !self.is_dirty[section] {
                self.is_dirty[section] = true;
                self.dirty.push(section as u32);
            }
        }
    }

    /// Finds the floors of marked sections again. False if what remains cannot fit.
    fn settle(&mut self) -> bool {
        let mut fits = true;
        while let Some(section) = self.dirty.pop() {
            let section = section as usize;
            self.is_dirty[section] = false;
            if !fits || self.left[section] == 0 {
                continue;
            }
            let members = &self.sections.members[section];
            self.work += members.len() as u64;
            let remains = members.iter().copied().filter(|&i| self.offsets[i as usize] == NOWHERE);
            let witness = remains.min_by_key(|&i| self.least[i as usize]).expect("bug: the count says one is left");
            let floor = self.least[witness as usize];
            self.set(Slot::Floor, section, floor);
            self.set(Slot::Witness, section, u64::from(witness));
            fits = floor + self.left_bytes[section] <= self.capacity;
        }
        fits
    }

    fn set(&mut self, slot: Slot, index: usize, value: u64) {
        let old = match slot {
            Slot::Offset => std::mem::replace(&mut self.offsets[index], value),
            Slot::Touch => std::mem::replace(&mut self.touch[index], value),
            Slot::Least => std::mem::replace(&mut self.least[index], value),
            Slot::Floor => std::mem::replace(&mut self.floors[index], value),
            Slot::Witness => u64::from(std::mem::replace(&mut self.witness[index], value as u32)),
        };
        self.trail.push((slot, index as u32, old));
    }

    fn undo(&mut self, length: usize) {
        while self.trail.len() > length {
            let Some((slot, index, old)) = self.trail.pop() else { return };
            let index = index as usize;
            match slot {
                Slot::Touch => self.touch[index] = old,
                Slot::Least => self.least[index] = old,
                Slot::Floor => self.floors[index] = old,
                Slot::Witness => self.witness[index] = old as u32,
                Slot::Offset => {
                    self.offsets[index] = old;
                    let (start, end) = self.sections.spans[index];
                    for section in start..end {
                        self.left[section] += 1;
                        self.left_bytes[section] += self.sizes[index];
                        self.bridges[section] += u32::from(section + 1 < end);
                    }
                }
            }
        }
    }
}

/// The binary logarithm times 2^16, to within a tenth of a bit: integers give the same on every machine.
fn log2(value: u64) -> u64 {
    let whole = u64::from(value.max(1).ilog2());
    let fraction = ((u128::from(value.max(1)) << 16) >> whole) as u64 - (1 << 16);
    (whole << 16) + fraction
}

/// SplitMix64.
fn scramble(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
