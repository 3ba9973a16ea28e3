//! Offsets for blocks of memory, so that blocks needed at the same time do not overlap and the space is small.

use super::lifetime::Block;

/// Steps of work that the search for a better packing may take.
const SEARCH_WORK: usize = 4_000_000;
/// Packings that the search for a better one may try.
const SEARCH_ROUNDS: usize = 400;

/// Memory that is needed in `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    /// First time.
    pub(super) start: usize,
    /// First time at which it is no longer needed.
    pub(super) end: usize,
    /// Bytes, a multiple of the alignment.
    pub(super) size_bytes: u64,
}

impl From<&Block> for Interval {
    fn from(block: &Block) -> Self {
        Interval { start: block.start, end: block.end, size_bytes: block.size_bytes }
    }
}

/// Where each interval lies in a space that is cut every `chunk_bytes`; no interval lies across a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packing {
    /// One offset per interval.
    pub(super) offsets: Vec<u64>,
    /// Bytes used of each chunk.
    pub(super) chunks: Vec<u64>,
}

impl Packing {
    /// Bytes of all chunks.
    pub(super) fn total_bytes(&self) -> u64 {
        self.chunks.iter().sum()
    }
}

/// Which gap a block goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// The lowest that is large enough.
    First,
    /// The smallest that is large enough.
    Best,
}

/// Packs intervals: the best of several greedy orders, improved by search where that is above the most bytes needed at
/// one time, `floor_bytes`, which no packing can beat. Each interval fits a chunk.
pub(super) fn pack(intervals: &[Interval], chunk_bytes: u64, floor_bytes: u64) -> Packing {
    let mut packer = Packer::new(intervals, chunk_bytes);
    let mut best: Option<(Packing, Vec<usize>)> = None;
    for key in ORDERS {
        let mut order: Vec<_> = (0..intervals.len()).collect();
        order.sort_by_key(|&i| (key(&intervals[i]), i));
        for fit in [Fit::First, Fit::Best] {
            let packing = packer.greedy(&order, fit);
            if best.as_ref().is_none_or(|(kept, _)| packing.total_bytes() < kept.total_bytes()) {
                best = Some((packing, order.clone()));
            }
            if best.as_ref().is_some_and(|(kept, _)| kept.total_bytes() <= floor_bytes) {
                break;
            }
        }
    }
    let (packing, order) = best.expect("bug: no packing was tried");
    packer.improve(packing, order, floor_bytes)
}

type Key = [i128; 3];

/// Greedy orders: by size, area, duration and start.
const ORDERS: [fn(&Interval) -> Key; 4] = [
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

struct Packer<'a> {
    intervals: &'a [Interval],
    chunk_bytes: u64,
    /// Intervals that share a time with each interval.
    neighbors: Vec<Vec<u32>>,
    /// Scratch: occupied ranges around the interval being placed.
    occupied: Vec<(u64, u64)>,
}

impl<'a> Packer<'a> {
    fn new(intervals: &'a [Interval], chunk_bytes: u64) -> Self {
        let mut by_start: Vec<_> = (0..intervals.len()).collect();
        by_start.sort_by_key(|&i| (intervals[i].start, i));
        let mut neighbors = vec![Vec::new(); intervals.len()];
        let mut open: Vec<usize> = Vec::new();
        for &i in &by_start {
            open.retain(|&j| intervals[j].end > intervals[i].start);
            for &j in &open {
                neighbors[i].push(j as u32);
                neighbors[j].push(i as u32);
            }
            open.push(i);
        }
        Packer { intervals, chunk_bytes, neighbors, occupied: Vec::new() }
    }

    /// Places the intervals one after another in this order.
    fn greedy(&mut self, order: &[usize], fit: Fit) -> Packing {
        let mut offsets = vec![u64::MAX; self.intervals.len()];
        let mut chunks: Vec<u64> = Vec::new();
        for &i in order {
            let size_bytes = self.intervals[i].size_bytes;
            self.occupied.clear();
            for &j in &self.neighbors[i] {
                let offset = offsets[j as usize];
                if offset != u64::MAX {
                    self.occupied.push((offset, offset + self.intervals[j as usize].size_bytes));
                }
            }
            self.occupied.sort_unstable();
            let offset = self.gap(size_bytes, fit);
            offsets[i] = offset;
            let chunk = (offset / self.chunk_bytes) as usize;
            if chunks.len() <= chunk {
                chunks.resize(chunk + 1, 0);
            }
            chunks[chunk] = chunks[chunk].max(offset % self.chunk_bytes + size_bytes);
        }
        Packing { offsets, chunks }
    }

    fn gap(&self, size_bytes: u64, fit: Fit) -> u64 {
        let mut best: Option<(u64, u64)> = None;
        let mut bottom = 0;
        for &(start, end) in self.occupied.iter().chain([&(u64::MAX, u64::MAX)]) {
            let offset = self.clear_of_cut(bottom, size_bytes);
            if start > bottom && offset + size_bytes <= start {
                let slack = start - bottom;
                if best.is_none_or(|(least, _)| slack < least) {
                    best = Some((slack, offset));
                }
                if fit == Fit::First {
                    break;
                }
            }
            bottom = bottom.max(end);
        }
        best.expect("bug: the space has an end").1
    }

    /// The lowest offset from `bottom` at which an interval does not cross a cut.
    fn clear_of_cut(&self, bottom: u64, size_bytes: u64) -> u64 {
        let left_bytes = self.chunk_bytes - bottom % self.chunk_bytes;
        if size_bytes <= left_bytes { bottom } else { bottom + left_bytes }
    }

    /// Moves intervals that reach the top of the space forward in the order, as long as that does no harm.
    fn improve(&mut self, packing: Packing, order: Vec<usize>, floor_bytes: u64) -> Packing {
        let work = self.intervals.len() + self.neighbors.iter().map(Vec::len).sum::<usize>();
        let rounds = (SEARCH_WORK / work.max(1)).min(SEARCH_ROUNDS);
        let (mut best, mut current, mut current_order) = (packing.clone(), packing, order);
        for round in 0..rounds {
            if best.total_bytes() <= floor_bytes {
                break;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_SPACE: u64 = 1 << 40;

    fn interval(start: usize, end: usize, size_bytes: u64) -> Interval {
        Interval { start, end, size_bytes }
    }

    fn floor(intervals: &[Interval]) -> u64 {
        let live = |time: usize| intervals.iter().filter(move |i| i.start <= time && time < i.end);
        intervals.iter().map(|i| live(i.start).map(|i| i.size_bytes).sum()).max().unwrap_or(0)
    }

    fn assert_valid(intervals: &[Interval], packing: &Packing, chunk_bytes: u64) {
        for (i, a) in intervals.iter().enumerate() {
            let a_offset = packing.offsets[i];
            assert_eq!(a_offset / chunk_bytes, (a_offset + a.size_bytes - 1) / chunk_bytes, "{i} crosses a cut");
            let chunk = (a_offset / chunk_bytes) as usize;
            assert!(a_offset % chunk_bytes + a.size_bytes <= packing.chunks[chunk]);
            for (j, b) in intervals.iter().enumerate().skip(i + 1) {
                let together = a.start < b.end && b.start < a.end;
                let overlap =
                    a_offset < packing.offsets[j] + b.size_bytes && packing.offsets[j] < a_offset + a.size_bytes;
                assert!(!(together && overlap), "{i} and {j} overlap");
            }
        }
    }

    #[test]
    fn nothing_takes_nothing() {
        assert_eq!(pack(&[], ONE_SPACE, 0).total_bytes(), 0);
    }

    #[test]
    fn memory_is_used_again_once_it_is_free() {
        let intervals = [interval(0, 2, 512), interval(1, 3, 256), interval(2, 4, 512)];
        let packing = pack(&intervals, ONE_SPACE, floor(&intervals));
        assert_valid(&intervals, &packing, ONE_SPACE);
        assert_eq!(packing.total_bytes(), 768);
    }

    #[test]
    fn no_interval_crosses_a_cut() {
        let intervals: Vec<_> = (0..10).map(|i| interval(0, 2, 256 * (1 + i % 3))).collect();
        let packing = pack(&intervals, 1024, floor(&intervals));
        assert_valid(&intervals, &packing, 1024);
        assert!(packing.chunks.len() > 1);
    }

    /// The best of all greedy packings, written without the packer: every gap is tried at every bottom.
    fn best_greedy(intervals: &[Interval]) -> u64 {
        let mut best = u64::MAX;
        for key in ORDERS {
            for best_fit in [false, true] {
                let mut order: Vec<_> = (0..intervals.len()).collect();
                order.sort_by_key(|&i| (key(&intervals[i]), i));
                let mut placed: Vec<(usize, u64)> = Vec::new();
                for &i in &order {
                    let mut taken: Vec<_> = placed
                        .iter()
                        .filter(|(j, _)| {
                            intervals[*j].start < intervals[i].end && intervals[i].start < intervals[*j].end
                        })
                        .map(|&(j, offset)| (offset, offset + intervals[j].size_bytes))
                        .collect();
                    taken.sort_unstable();
                    taken.push((u64::MAX, u64::MAX));
                    let (mut bottom, mut gaps) = (0, Vec::new());
                    for (start, end) in taken {
                        if start > bottom && start - bottom >= intervals[i].size_bytes {
                            gaps.push((start - bottom, bottom));
                        }
                        bottom = bottom.max(end);
                    }
                    let gap = if best_fit { gaps.iter().min() } else { gaps.first() };
                    placed.push((i, gap.expect("a gap").1));
                }
                let height = placed.iter().map(|&(i, offset)| offset + intervals[i].size_bytes).max();
                best = best.min(height.unwrap_or(0));
            }
        }
        best
    }

    #[test]
    fn published_instances_are_packed_at_least_as_tightly_as_by_the_best_greedy_order() {
        let Ok(data) = std::env::var("TIGHTFIT_DATA") else {
            println!("skipped: TIGHTFIT_DATA is not set, so there are no instances to pack");
            return;
        };
        for name in ["A", "C", "E", "G", "I", "K"] {
            let path = std::path::Path::new(&data).join(format!("placement/{name}.1048576.csv"));
            let mut reader = csv::Reader::from_path(&path).expect("a placement instance");
            let intervals: Vec<_> = reader
                .deserialize::<(String, usize, usize, u64)>()
                .map(|row| row.map(|(_, start, end, size_bytes)| interval(start, end, size_bytes)).expect("a row"))
                .collect();
            let floor_bytes = floor(&intervals);
            let packing = pack(&intervals, ONE_SPACE, floor_bytes);
            assert_valid(&intervals, &packing, ONE_SPACE);
            let greedy_bytes = best_greedy(&intervals);
            println!(
                "{name}: {} intervals, packed {} bytes, best greedy {greedy_bytes}, lower bound {floor_bytes}, \
                 capacity 1048576",
                intervals.len(),
                packing.total_bytes()
            );
            assert!(packing.total_bytes() <= greedy_bytes, "{name}");
        }
    }
}
