//! Dynamic programming over what to keep of a chain of segments.

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Make the values at the boundary before a segment, to keep them.
    Advance(usize),
    /// Make what a segment's backward part reads, to keep it.
    Tape(usize),
    /// Run the backward part of a segment.
    Backward(usize),
}

/// What a segment takes: levels of memory, and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// Of the values that cross into it, and of those that its backward part does not read.
    pub(super) boundary: usize,
    pub(super) released: usize,
    /// Of what its backward part reads: made by it and not crossing out of it, and all that does not cross out of it.
    pub(super) saved: usize,
    pub(super) taped: usize,
    /// Of running it to the next boundary, and of making what its backward part reads.
    pub(super) cost: u64,
    pub(super) saved_cost: u64,
}

/// Work of filling the tables of a chain of segments that are alike.
const TABLE_WORK: usize = 128_000_000;

/// Levels that such tables may have: a long chain has many, but its costs hardly fall beyond some.
pub(super) fn table_levels(segments: usize, saves: bool) -> usize {
    // There are twice as many choices then, and tables for two kinds of ranges.
    let work = if saves { TABLE_WORK / 4 } else { TABLE_WORK };
    (work / (segments * segments).max(1)).max(24)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Impossible,
    /// One segment: make what it reads, and run it backward.
    Single,
    /// Keep the boundary so many segments on.
    Split(u32),
    /// Keep what the backward part of the segment so many on reads.
    Tape(u32),
}

const NEVER: u64 = u64::MAX / 4;

/// Least costs: of the backward parts of segments `i..j` with so many levels of memory.
pub(super) struct Tables {
    segments: Vec<Taken>,
    /// Whether all segments but the last are alike, so that only their number matters, and whether the last is too.
    alike: bool,
    last_alike: bool,
    levels: usize,
    costs: Vec<u64>,
    choices: Vec<Choice>,
}

impl Tables {
    /// Fills the tables for up to `most` levels.
    pub(super) fn new(segments: Vec<Taken>, alike: bool, most: usize) -> Tables {
        let count = segments.len();
        let needed: usize = segments.iter().map(|taken| taken.boundary + taken.saved).sum();
        let levels = needed.min(most);
        let size = if alike { 2 * (count + 1) } else { (count + 1) * (count + 1) } * (levels + 1);
        let mut run_cost = vec![0; count + 1];
        for (k, taken) in segments.iter().enumerate() {
            run_cost[k + 1] = run_cost[k] + taken.cost;
        }
        let (costs, choices) = (vec![NEVER; size], vec![Choice::Impossible; size]);
        let last_alike = alike && segments[count - 1] == segments[0];
        let mut tables = Tables { segments, alike, last_alike, levels, costs, choices };
        for length in 1..=count {
            // Where segments are alike: those up to the last, and as many before it.
            let last = count - length;
            let first = if last_alike {
                last
            } else if alike {
                last.saturating_sub(1)
            } else {
                0
            };
            for i in first..=last {
                for m in 0..=levels {
                    let best = tables.best(&run_cost, i, i + length, m);
                    let at = tables.index(i, i + length, m);
                    (tables.costs[at], tables.choices[at]) = best;
                }
            }
        }
        tables
    }

    /// Choices that were looked at to fill the tables.
    pub(super) fn work(&self) -> u64 {
        let count = self.segments.len() as u64;
        let pairs = if self.alike { count * count } else { count * count * count / 6 };
        pairs * self.levels as u64
    }

    pub(super) fn levels(&self) -> usize {
        self.levels
    }

    fn best(&self, run_cost: &[u64], i: usize, j: usize, m: usize) -> (u64, Choice) {
        let mut best = (NEVER, Choice::Impossible);
        if j == i + 1 {
            return if self.segments[i].saved <= m { (self.segments[i].saved_cost, Choice::Single) } else { best };
        }
        for s in i..j - 1 {
            if self.segments[s].saved > 0
                && let Some(rest) = self.rest_after_tape(i, s, j, m)
            {
                let before = if s > i { self.cost(i, s, m) } else { 0 };
                let cost = run_cost[s + 1] - run_cost[i] + self.cost(s + 1, j, rest) + before;
                if cost < best.0 {
                    best = (cost, Choice::Tape((s - i) as u32));
                }
            }
        }
        for s in i + 1..j {
            if let Some(rest) = self.rest_after_split(s, j, m) {
                let cost = run_cost[s] - run_cost[i] + self.cost(s, j, rest) + self.cost(i, s, m);
                if cost < best.0 {
                    best = (cost, Choice::Split((s - i) as u32));
                }
            }
        }
        best
    }

    /// Levels that a boundary takes. Nothing runs on from the last one: it is what is worked on, which is not counted.
    fn kept(&self, s: usize, j: usize) -> usize {
        if s + 1 < j { self.segments[s].boundary } else { 0 }
    }

    fn rest_after_split(&self, s: usize, j: usize, m: usize) -> Option<usize> {
        m.checked_sub(self.kept(s, j))
    }

    fn rest_after_tape(&self, i: usize, s: usize, j: usize, m: usize) -> Option<usize> {
        let taken = self.segments[s];
        // What it starts from is not needed any more where no segment is left before.
        let (freed, kept) = if s == i { (taken.released, taken.saved) } else { (0, taken.taped) };
        (m + freed).checked_sub(kept + self.kept(s + 1, j)).map(|rest| rest.min(self.levels))
    }

    fn index(&self, i: usize, j: usize, m: usize) -> usize {
        let count = self.segments.len();
        let row = match self.alike {
            true => 2 * (j - i) + usize::from(j == count && !self.last_alike),
            false => i * (count + 1) + j,
        };
        row * (self.levels + 1) + m
    }

    fn cost(&self, i: usize, j: usize, m: usize) -> u64 {
        self.costs[self.index(i, j, m)]
    }

    /// What to do with so many levels of memory; none where they do not suffice.
    pub(super) fn steps(&self, level: usize) -> Option<Vec<Step>> {
        let level = level.min(self.levels);
        let count = self.segments.len();
        if self.cost(0, count, level) >= NEVER {
            return None;
        }
        enum Task {
            Range(usize, usize, usize),
            Done(Step),
        }
        let mut steps = Vec::new();
        let mut tasks = vec![Task::Range(0, count, level)];
        while let Some(task) = tasks.pop() {
            let (i, j, m) = match task {
                Task::Done(step) => {
                    steps.push(step);
                    continue;
                }
                Task::Range(i, j, m) => (i, j, m),
            };
            match self.choices[self.index(i, j, m)] {
                Choice::Impossible => return None,
                Choice::Single => steps.push(Step::Backward(i)),
                Choice::Split(distance) => {
                    let s = i + distance as usize;
                    steps.push(Step::Advance(s));
                    tasks.push(Task::Range(i, s, m));
                    tasks.push(Task::Range(s, j, self.rest_after_split(s, j, m)?));
                }
                Choice::Tape(distance) => {
                    let s = i + distance as usize;
                    steps.extend([Step::Tape(s), Step::Advance(s + 1)]);
                    if s > i {
                        tasks.push(Task::Range(i, s, m));
                    }
                    tasks.push(Task::Done(Step::Backward(s)));
                    tasks.push(Task::Range(s + 1, j, self.rest_after_tape(i, s, j, m)?));
                }
            }
        }
        Some(steps)
    }
}
