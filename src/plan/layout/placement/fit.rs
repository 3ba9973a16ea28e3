//! Branch and bound for offsets in a space of given size.
//!
//! Any packing can be pushed down until each interval lies on the bottom, on another interval, or at a cut below which there is
//! too little space for it. So intervals are
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
use super::sections::Span;
use super::state::{Choice, State, scramble};

/// Parts without a solution that are remembered; a power of two.
const REMEMBERED: usize = 1 << 16;

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

/// A part of the time, of which nothing that remains reaches out, and the rest of the list of parts to do.
#[derive(Clone, Copy)]
struct Part {
    sections: Span,
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
    /// The state and the length of the list of parts when the node was made.
    mark: usize,
    parts: usize,
}

/// Searches for offsets of a set of intervals.
pub(super) struct Fitter {
    state: State,
    durations: Vec<u64>,
    branching: Branching,
    /// The intervals' places in the order in which they are tried.
    ranks: Vec<u32>,
    /// The sections around each one whose floors are no lower than its own.
    basins: Vec<Span>,
    /// Keys of parts that have no solution in this capacity, each at the place that its low bits give.
    failed: Vec<u64>,
}

impl Fitter {
    /// `None` if the intervals cross more than `most_crossings` sections in total.
    pub(super) fn new(intervals: &[Interval], chunk_bytes: u64, most_crossings: usize) -> Option<Self> {
        let state = State::new(intervals, chunk_bytes, most_crossings)?;
        Some(Fitter {
            durations: intervals.iter().map(|interval| (interval.end - interval.start) as u64).collect(),
            branching: Branching::Fewest,
            ranks: vec![0; intervals.len()],
            basins: vec![Span::default(); state.floors.len()],
            failed: vec![0; REMEMBERED],
            state,
        })
    }

    /// Most bytes needed at one time.
    pub(super) fn floor_bytes(&self) -> u64 {
        self.state.left_bytes.iter().copied().max().unwrap_or(0)
    }

    /// Searches for offsets in `capacity` bytes with at most `share` of the steps in `work`, from which it takes those
    /// that it used.
    pub(super) fn fit(&mut self, capacity: u64, share: u64, work: &mut u64) -> Outcome {
        if capacity < self.floor_bytes() {
            return Outcome::Never;
        }
        if capacity != self.state.capacity {
            self.failed.fill(0);
            self.state.capacity = capacity;
        }
        self.state.work = 0;
        let mut outcome = Outcome::GaveUp;
        for round in 0.. {
            self.rank(round);
            // Twice as many nodes as intervals are placed; more after a while, so that the search ends in the end.
            let nodes = (2 * self.state.sizes.len() as u64 + 32) << (round / 32).min(32);
            outcome = self.search(nodes, share);
            if outcome == Outcome::GaveUp && self.state.work < share {
                self.state.undo(0);
                continue;
            }
            break;
        }
        self.state.undo(0);
        *work = work.saturating_sub(self.state.work);
        outcome
    }

    /// Sets the order in which intervals are tried: between those of longest duration and of largest size first.
    fn rank(&mut self, round: u64) {
        self.branching = if round.is_multiple_of(2) { Branching::Fewest } else { Branching::Lowest };
        let mut state = round;
        let mut random = |below: u64| {
            state = scramble(state);
            ((state >> 32) * below) >> 32
        };
        // The first rounds are those two orders, then come mixtures of them with some noise.
        let by_duration = if round < 4 { 64 * (1 - round / 2) } else { random(65) };
        let noise = if round < 4 { 1 } else { 28 << 16 };
        let scores: Vec<_> = (0..self.state.sizes.len())
            .map(|i| {
                let score = by_duration * log2(self.durations[i]) + (64 - by_duration) * log2(self.state.sizes[i]);
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
        let mut to_do = self.split(Span { start: 0, end: self.state.floors.len() }, None, None, &mut parts);
        while let Some(index) = to_do {
            if nodes_left == 0 || self.state.work > share {
                return Outcome::GaveUp;
            }
            nodes_left -= 1;
            let part = parts[index];
            let key = self.state.key(part.sections);
            let mut at = part.parent;
            if self.failed[key as usize % REMEMBERED] != key {
                let choices = self.choices(part.sections);
                at = Some(stack.len());
                stack.push(Node { part, key, choices, mark: self.state.mark(), parts: parts.len() });
            }
            to_do = loop {
                // Nothing is left to choose at the root.
                let Some(node) = at else { return Outcome::Never };
                stack.truncate(node + 1);
                let Node { part, key, mark, parts: parts_length, ref mut choices } = stack[node];
                self.state.undo(mark);
                parts.truncate(parts_length);
                match choices.pop() {
                    Some(choice) => {
                        if self.state.apply(choice) {
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
        Outcome::Fits(self.state.offsets.clone())
    }

    /// Puts the parts into which what remains in these sections falls in front of the list of parts to do, and returns
    /// its new first: the shortest, which is the first to fail.
    fn split(
        &mut self,
        sections: Span,
        parent: Option<usize>,
        mut next: Option<usize>,
        parts: &mut Vec<Part>,
    ) -> Option<usize> {
        self.state.work += (sections.end - sections.start) as u64;
        let mut found: Vec<Span> = Vec::new();
        let mut start = sections.start;
        for section in sections.start..sections.end {
            if self.state.bridges[section] == 0 {
                if self.state.left[section] > 0 {
                    found.push(Span { start, end: section + 1 });
                }
                start = section + 1;
            }
        }
        found.sort_unstable_by_key(|&Span { start, end }| std::cmp::Reverse((end - start, start)));
        for sections in found {
            parts.push(Part { sections, parent, next });
            next = Some(parts.len() - 1);
        }
        next
    }

    /// The choices at the section where to branch, the first one last.
    fn choices(&mut self, sections: Span) -> Vec<Choice> {
        self.find_basins(sections);
        let mut best: Option<([u64; 3], usize)> = None;
        for section in sections.start..sections.end {
            let floor = self.state.floors[section];
            let most = match (best, self.branching) {
                (Some((score, _)), Branching::Lowest) if floor > score[0] => continue,
                (Some((score, _)), Branching::Fewest) => score[0],
                _ => u64::MAX,
            };
            if self.state.left[section] == 0 {
                continue;
            }
            let Some(count) = self.count(section, most) else { continue };
            let slack = self.state.slack(section);
            let score = match self.branching {
                Branching::Fewest => [count, floor, slack],
                Branching::Lowest => [floor, count, slack],
            };
            if best.is_none_or(|(least, _)| score < least) {
                best = Some((score, section));
            }
            // What has to be done sooner or later is best done at once.
            if count <= 1 {
                break;
            }
        }
        let (_, section) = best.expect("bug: it is safe to branch at the lowest floor");
        let floor = self.state.floors[section];
        let most = floor + self.state.slack(section);
        let gap = self.state.raised(section, 0).filter(|&offset| offset <= most);
        let members = self.state.sections.members[section].iter().copied();
        let mut candidates: Vec<_> = members.filter(|&i| self.state.can_lie(i, floor)).collect();
        // Of intervals that are all the same, one is enough. The sort keeps them next to each other.
        let alike = |i: u32| (self.state.sections.spans[i as usize], self.state.sizes[i as usize]);
        candidates.sort_unstable_by_key(|&i| (alike(i), i));
        candidates.dedup_by_key(|&mut i| alike(i));
        candidates.sort_unstable_by_key(|&i| std::cmp::Reverse(self.ranks[i as usize]));
        let gap = gap.map(|offset| Choice::Raise(section, offset));
        gap.into_iter().chain(candidates.into_iter().map(Choice::Place)).collect()
    }

    /// The number of choices at a section; `None` if they are more than `most` or it is not safe to branch there.
    fn count(&mut self, section: usize, most: u64) -> Option<u64> {
        // Where there is free space below an interval, something else may have to be placed before it.
        let basin = self.basins[section];
        let low = |state: &State, i: u32| {
            let span = state.sections.spans[i as usize];
            span.start < basin.start || span.end > basin.end
        };
        if low(&self.state, self.state.witness[section]) {
            return None;
        }
        let floor = self.state.floors[section];
        let mut count = 0;
        for (seen, &i) in self.state.sections.members[section].iter().enumerate() {
            if self.state.reaches(i, floor) {
                count += u64::from(self.state.can_lie(i, floor));
                if count > most || low(&self.state, i) {
                    self.state.work += seen as u64;
                    return None;
                }
            }
        }
        self.state.work += self.state.sections.members[section].len() as u64;
        let most_raised = floor + self.state.slack(section);
        let gap = most_raised > floor && self.state.raised(section, most_raised).is_some_and(|to| to <= most_raised);
        count += u64::from(gap);
        (count <= most).then_some(count)
    }

    /// Finds the sections around each one whose floors are no lower than its own.
    fn find_basins(&mut self, sections: Span) {
        let mut open: Vec<usize> = Vec::new();
        for section in sections.start..sections.end {
            while open.last().is_some_and(|&last| self.state.floors[last] > self.state.floors[section]) {
                open.pop().into_iter().for_each(|last| self.basins[last].end = section);
            }
            // Of equal floors the first one's basin begins where that of all begins.
            self.basins[section].start = match open.last() {
                Some(&last) if self.state.floors[last] == self.state.floors[section] => self.basins[last].start,
                Some(&last) => last + 1,
                None => sections.start,
            };
            open.push(section);
        }
        for last in open {
            self.basins[last].end = sections.end;
        }
        self.state.work += (sections.end - sections.start) as u64;
    }
}

/// The binary logarithm times 2^16, to within a tenth of a bit: integers give the same on every machine.
fn log2(value: u64) -> u64 {
    let whole = u64::from(value.max(1).ilog2());
    let fraction = ((u128::from(value.max(1)) << 16) >> whole) as u64 - (1 << 16);
    (whole << 16) + fraction
}
