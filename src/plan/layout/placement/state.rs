//! Partly placed intervals: what is known of those that remain, kept up to date as choices are made and undone.

use super::sections::{Sections, Span};
use super::{Interval, clear_of_cut};

/// Not placed.
const NOWHERE: u64 = u64::MAX;

/// What can change and be restored.
#[derive(Clone, Copy)]
enum Slot {
    Offset,
    Touch,
    Least,
    Floor,
    Witness,
}

/// What can be decided at a section.
#[derive(Clone, Copy)]
pub(super) enum Choice {
    /// Place this interval at the lowest offset that is left to it.
    Place(u32),
    /// What comes next in this section does so from this offset on.
    Raise(usize, u64),
}

/// Intervals of which some are placed, each on the bottom of the space or on others.
pub(super) struct State {
    pub(super) sections: Sections,
    /// Bytes of each interval.
    pub(super) sizes: Vec<u64>,
    /// Intervals that share a time with each interval.
    neighbors: Vec<Vec<u32>>,
    /// Intervals that begin in each section.
    joining: Vec<Vec<u32>>,
    /// Size of the space.
    pub(super) capacity: u64,
    /// It is cut every so many bytes: no interval lies across a cut.
    chunk_bytes: u64,
    // Per interval:
    /// Where it lies, if it is placed.
    pub(super) offsets: Vec<u64>,
    /// Top of what is placed below, or the next cut where there is too little space before that.
    touch: Vec<u64>,
    /// Least offset: `touch`, or more by a choice to leave a gap.
    least: Vec<u64>,
    // Per section:
    /// Least offset of what is not placed.
    pub(super) floors: Vec<u64>,
    /// An interval that has this least offset.
    pub(super) witness: Vec<u32>,
    /// Bytes of what is not placed.
    pub(super) left_bytes: Vec<u64>,
    /// Number of intervals that are not placed.
    pub(super) left: Vec<u32>,
    /// Number of what is not placed and crosses into the next section.
    pub(super) bridges: Vec<u32>,
    /// Former values, in the order of changes.
    trail: Vec<(Slot, u32, u64)>,
    /// Sections whose floor has to be found again.
    dirty: Vec<u32>,
    is_dirty: Vec<bool>,
    /// Steps of work done.
    pub(super) work: u64,
}

impl State {
    /// Nothing is placed yet. `None` if the intervals cross more than `most_crossings` sections in total.
    pub(super) fn new(intervals: &[Interval], chunk_bytes: u64, most_crossings: usize) -> Option<Self> {
        let sections = Sections::of(intervals, most_crossings)?;
        let sizes: Vec<_> = intervals.iter().map(|interval| interval.size_bytes).collect();
        let mut neighbors = vec![Vec::new(); intervals.len()];
        let mut joining = vec![Vec::new(); sections.members.len()];
        for (i, span) in sections.spans.iter().enumerate() {
            joining[span.start].push(i as u32);
        }
        for (section, members) in sections.members.iter().enumerate() {
            for &i in &joining[section] {
                for &j in members {
                    // Two that join together meet twice in these loops, others once.
                    if j < i || sections.spans[j as usize].start < section {
                        neighbors[i as usize].push(j);
                        neighbors[j as usize].push(i);
                    }
                }
            }
        }
        let mut bridges = vec![0; sections.members.len()];
        for &Span { start, end } in &sections.spans {
            bridges[start..end - 1].iter_mut().for_each(|bridge| *bridge += 1);
        }
        let bytes = |members: &Vec<u32>| members.iter().map(|&i| sizes[i as usize]).sum();
        let (n, count) = (intervals.len(), sections.members.len());
        Some(State {
            neighbors,
            joining,
            capacity: 0,
            chunk_bytes,
            offsets: vec![NOWHERE; n],
            touch: vec![0; n],
            least: vec![0; n],
            floors: vec![0; count],
            witness: sections.members.iter().map(|members| members[0]).collect(),
            left_bytes: sections.members.iter().map(bytes).collect(),
            left: sections.members.iter().map(|members| members.len() as u32).collect(),
            bridges,
            trail: Vec::new(),
            dirty: Vec::new(),
            is_dirty: vec![false; count],
            work: 0,
            sections,
            sizes,
        })
    }

    /// What to give to `undo` to come back to this state.
    pub(super) fn mark(&self) -> usize {
        self.trail.len()
    }

    /// Whether an interval could be placed right at this floor of a section that it crosses.
    pub(super) fn can_lie(&self, i: u32, floor: u64) -> bool {
        self.reaches(i, floor) && self.touch[i as usize] == floor
    }

    /// Whether an interval remains whose least offset is this floor, be it that nothing is right below it.
    pub(super) fn reaches(&self, i: u32, floor: u64) -> bool {
        self.offsets[i as usize] == NOWHERE && self.least[i as usize] == floor
    }

    /// Identifies what remains in these sections and all that matters about what is placed. Never 0.
    pub(super) fn key(&mut self, sections: Span) -> u64 {
        let mut key = 0u64;
        for section in sections.start..sections.end {
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

    /// Bytes of a section that may stay unused.
    pub(super) fn slack(&self, section: usize) -> u64 {
        self.capacity - self.floors[section] - self.left_bytes[section]
    }

    /// The least offset of what comes next in a section if that does not lie at its floor, or any possible offset that
    /// is no more than `enough`; `None` if it has to lie there.
    pub(super) fn raised(&mut self, section: usize, enough: u64) -> Option<u64> {
        let members = &self.sections.members[section];
        let floor = self.floors[section];
        let mut work = members.len();
        let higher = |&i: &u32| self.offsets[i as usize] == NOWHERE && self.least[i as usize] > floor;
        let mut raised = members.iter().filter(|i| higher(i)).map(|&i| self.least[i as usize]).min();
        for &i in members.iter().filter(|&&i| self.reaches(i, floor)) {
            if raised.is_some_and(|raised| raised <= enough) {
                break;
            }
            // It could lie at the floor, so something that is elsewhere in time must come below it.
            let neighbors = &self.neighbors[i as usize];
            work += neighbors.len();
            for &j in neighbors {
                let Span { start, end } = self.sections.spans[j as usize];
                if self.offsets[j as usize] == NOWHERE && (section < start || end <= section) {
                    let top = self.least[j as usize] + self.sizes[j as usize];
                    raised = Some(raised.map_or(top, |raised| raised.min(top)));
                }
            }
        }
        self.work += work as u64;
        raised
    }

    /// False if what remains cannot fit.
    pub(super) fn apply(&mut self, choice: Choice) -> bool {
        match choice {
            Choice::Place(i) => self.place(i as usize),
            Choice::Raise(section, offset) => {
                for at in 0..self.sections.members[section].len() {
                    let i = self.sections.members[section][at] as usize;
                    if self.offsets[i] == NOWHERE && self.least[i] < offset {
                        self.set(Slot::Least, i, clear_of_cut(self.chunk_bytes, offset, self.sizes[i]));
                        self.unsettle(i);
                    }
                }
                self.settle()
            }
        }
    }

    fn place(&mut self, i: usize) -> bool {
        let top = self.least[i] + self.sizes[i];
        self.set(Slot::Offset, i, self.least[i]);
        let Span { start, end } = self.sections.spans[i];
        for section in start..end {
            self.left[section] -= 1;
            self.left_bytes[section] -= self.sizes[i];
            self.bridges[section] -= u32::from(section + 1 < end);
        }
        self.unsettle(i);
        self.work += self.neighbors[i].len() as u64;
        for at in 0..self.neighbors[i].len() {
            let j = self.neighbors[i][at] as usize;
            if self.offsets[j] != NOWHERE {
                continue;
            }
            if self.touch[j] < top {
                self.set(Slot::Touch, j, clear_of_cut(self.chunk_bytes, top, self.sizes[j]));
            }
            if self.least[j] < self.touch[j] {
                self.set(Slot::Least, j, self.touch[j]);
                self.unsettle(j);
            }
        }
        self.settle()
    }

    /// Marks the sections whose floors depended on this interval.
    fn unsettle(&mut self, i: usize) {
        let Span { start, end } = self.sections.spans[i];
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

    pub(super) fn undo(&mut self, length: usize) {
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
                    let Span { start, end } = self.sections.spans[index];
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

/// SplitMix64.
pub(super) fn scramble(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
