//! Packing by placing one interval after another where it fits, in several orders.

use super::{Interval, Packing, clear_of_cut};

/// Steps that the search for a better order may take.
const IMPROVE_WORK: u64 = 4_000_000;
/// Orders that the search for a better one may try.
const IMPROVE_ROUNDS: usize = 400;
/// Placed intervals per run of the list of those placed: few enough to insert quickly, enough to skip many at once.
const RUN_LENGTH: usize = 128;

/// Which gap an interval goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// The lowest that is large enough.
    First,
    /// The smallest that is large enough.
    Best,
}

type Key = [i128; 3];

/// Greedy orders: by size, area, duration and start.
pub(super) const ORDERS: [fn(&Interval) -> Key; 4] = [
    |i| [-size(i), -duration(i), i.start as i128],
    |i| [-size(i) * duration(i), -size(i), i.start as i128],
    |i| [-duration(i), -size(i), i.start as i128],
    |i| [i.start as i128, -size(i), -duration(i)],
];

fn size(interval: &Interval) -> i128 {
    i128::from(interval.size_bytes)
}

fn duration(interval: &Interval) -> i128 {
    (interval.end - interval.start) as i128
}

/// An interval that has its place.
#[derive(Clone, Copy)]
struct Placed {
    offset: u64,
    top: u64,
    start: usize,
    end: usize,
}

impl Placed {
    /// Where many lie at one offset, one after the other in time, neighbors in this order are needed at about the same time.
    fn key(&self) -> (u64, usize) {
        (self.offset, self.start)
    }
}

/// Neighbors in the order of offsets, and the times outside which none of them is needed.
struct Run {
    placed: Vec<Placed>,
    start: usize,
    end: usize,
}

impl Run {
    fn new(placed: Vec<Placed>) -> Self {
        let start = placed.iter().map(|other| other.start).min().unwrap_or(usize::MAX);
        let end = placed.iter().map(|other| other.end).max().unwrap_or(0);
        Run { placed, start, end }
    }
}

/// Packs intervals into a space that is cut every `chunk_bytes`.
pub(super) struct Packer<'a> {
    intervals: &'a [Interval],
    chunk_bytes: u64,
    /// All that is placed, by offset. A list for each interval of those that share a time with it would be of quadratic
    /// size, as most values of a training step are needed around its middle.
    runs: Vec<Run>,
    /// Steps taken so far.
    pub(super) work: u64,
}

impl<'a> Packer<'a> {
    /// Nothing is placed yet.
    pub(super) fn new(intervals: &'a [Interval], chunk_bytes: u64) -> Self {
        Packer { intervals, chunk_bytes, runs: Vec::new(), work: 0 }
    }

    /// The best of all orders, improved by search where it takes more than `target_bytes`. No further order is tried after so many
    /// steps of work.
    pub(super) fn pack(&mut self, target_bytes: u64, work: u64) -> Packing {
        let mut best: Option<(Packing, Vec<usize>)> = None;
        for key in ORDERS {
            let mut order: Vec<_> = (0..self.intervals.len()).collect();
            order.sort_by_cached_key(|&i| (key(&self.intervals[i]), i));
            for fit in [Fit::First, Fit::Best] {
                if best.as_ref().is_some_and(|(kept, _)| kept.total_bytes() <= target_bytes) || self.work > work {
                    break;
                }
                let packing = self.greedy(&order, fit);
                if best.as_ref().is_none_or(|(kept, _)| packing.total_bytes() < kept.total_bytes()) {
                    best = Some((packing, order.clone()));
                }
            }
        }
        let (packing, order) = best.expect("bug: no packing was tried");
        self.improve(packing, order, target_bytes)
    }

    /// Places the intervals one after another in this order.
    fn greedy(&mut self, order: &[usize], fit: Fit) -> Packing {
        self.runs.clear();
        let mut offsets = vec![0; self.intervals.len()];
        let mut chunks: Vec<u64> = Vec::new();
        for &i in order {
            let interval = self.intervals[i];
            let offset = self.gap(interval, fit);
            offsets[i] = offset;
            self.insert(Placed { offset, top: offset + interval.size_bytes, start: interval.start, end: interval.end });
            let chunk = (offset / self.chunk_bytes) as usize;
            if chunks.len() <= chunk {
                chunks.resize(chunk + 1, 0);
            }
            chunks[chunk] = chunks[chunk].max(offset % self.chunk_bytes + interval.size_bytes);
        }
        Packing { offsets, chunks, chunk_bytes: self.chunk_bytes, work: 0 }
    }

    fn insert(&mut self, placed: Placed) {
        let at = self.runs.partition_point(|run| run.placed[0].key() <= placed.key()).saturating_sub(1);
        let Some(run) = self.runs.get_mut(at) else {
            self.runs.push(Run::new(vec![placed]));
            return;
        };
        let within = run.placed.partition_point(|other| other.key() <= placed.key());
        run.placed.insert(within, placed);
        run.start = run.start.min(placed.start);
        run.end = run.end.max(placed.end);
        if run.placed.len() > RUN_LENGTH {
            let upper = Run::new(run.placed.split_off(RUN_LENGTH / 2));
            *run = Run::new(std::mem::take(&mut run.placed));
            self.runs.insert(at + 1, upper);
        }
    }

    fn gap(&mut self, interval: Interval, fit: Fit) -> u64 {
        let size_bytes = interval.size_bytes;
        let mut best: Option<(u64, u64)> = None;
        let mut bottom = 0;
        for run in &self.runs {
            self.work += 1;
            if run.start >= interval.end || run.end <= interval.start {
                continue;
            }
            self.work += run.placed.len() as u64;
            for other in &run.placed {
                if other.start >= interval.end || other.end <= interval.start {
                    continue;
                }
                if other.offset > bottom && other.offset - bottom >= size_bytes {
                    let offset = clear_of_cut(self.chunk_bytes, bottom, size_bytes);
                    let slack = other.offset - bottom;
                    if offset + size_bytes <= other.offset && best.is_none_or(|(least, _)| slack < least) {
                        best = Some((slack, offset));
                        if fit == Fit::First || slack == size_bytes {
                            return offset;
                        }
                    }
                }
                bottom = bottom.max(other.top);
            }
        }
        best.map_or_else(|| clear_of_cut(self.chunk_bytes, bottom, size_bytes), |(_, offset)| offset)
    }

    /// Moves intervals that reach the top of the space forward in the order, as long as that does no harm.
    fn improve(&mut self, packing: Packing, order: Vec<usize>, target_bytes: u64) -> Packing {
        let start_work = self.work;
        let (mut best, mut current, mut current_order) = (packing.clone(), packing, order);
        for round in 0..IMPROVE_ROUNDS as u64 {
            let spent = self.work - start_work;
            // Enough must be left for a round like those so far; the first is expected to take what the orders took.
            let round_work = spent.checked_div(round).unwrap_or(start_work / 8);
            if best.total_bytes() <= target_bytes || spent + round_work > IMPROVE_WORK {
                break;
            }
            let round = round as usize;
            let tops = self.tops(&current);
            let moved = tops[(round / 4) % tops.len()];
            let from = current_order.iter().position(|&i| i == moved).expect("bug: the order lacks an interval");
            let to = [0, from / 2, from * 3 / 4, from.saturating_sub(1)][round % 4];
            let mut order = current_order.clone();
            order.remove(from);
            order.insert(to, moved);
            let fit = if round % 8 < 4 { Fit::First } else { Fit::Best };
            let packing = self.greedy(&order, fit);
            // A little worse is accepted, for a way out of a local optimum.
            if packing.total_bytes() <= best.total_bytes() + best.total_bytes() / 32 {
                (current, current_order) = (packing, order);
            }
            if current.total_bytes() < best.total_bytes() {
                best = current.clone();
            }
        }
        best
    }

    /// Intervals that end where the used part of the last chunk ends.
    fn tops(&self, packing: &Packing) -> Vec<usize> {
        let last = packing.chunks.len() as u64 - 1;
        let top = last * self.chunk_bytes + packing.chunks[last as usize];
        let ends = |&i: &usize| packing.offsets[i] + self.intervals[i].size_bytes == top;
        (0..self.intervals.len()).filter(ends).collect()
    }
}
