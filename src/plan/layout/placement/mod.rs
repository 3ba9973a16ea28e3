//! Offsets for blocks of memory, so that blocks needed at the same time do not overlap and the space is small.
//!
//! Greedy orders come first, for they are quick and often leave nothing to gain. What they leave is searched for: a
//! branch and bound asks for ever smaller spaces. All limits are counts of work, so the same blocks always get the same
//! offsets.

mod fit;
mod greedy;
mod sections;
mod state;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use fit::{Fitter, Outcome};
use greedy::Packer;

/// Steps of work, about a nanosecond each, that the branch and bound may take per interval and in total. Where nothing
/// is gained all of them are taken, so few intervals are not worth many.
const FIT_WORK_EACH: u64 = 1_000_000;
/// Steps that are worth it where the smallest space is wanted, for the greedy orders and for the branch and bound.
pub(crate) const MOST_WORK: u64 = 200_000_000;
/// Intervals, summed over the sections that they cross, up to which the branch and bound is of use: one descent of it
/// takes this many steps times the number of intervals at worst.
const FIT_CROSSINGS: usize = 100_000;

/// Memory that is needed in `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    /// First time.
    pub(crate) start: usize,
    /// First time at which it is no longer needed, after `start`.
    pub(crate) end: usize,
    /// Bytes, a multiple of the alignment.
    pub(crate) size_bytes: u64,
}

/// Where each interval lies in a space that is cut every `chunk_bytes`; no interval lies across a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    /// One offset per interval.
    pub(crate) offsets: Vec<u64>,
    /// Bytes used of each chunk.
    pub(crate) chunks: Vec<u64>,
    /// Where the space is cut.
    pub(crate) chunk_bytes: u64,
    /// Steps of work that this took.
    pub(crate) work: u64,
}

impl Packing {
    fn new(intervals: &[Interval], offsets: Vec<u64>, chunk_bytes: u64) -> Packing {
        let mut chunks = vec![0; height(intervals, &offsets).div_ceil(chunk_bytes) as usize];
        for (interval, offset) in intervals.iter().zip(&offsets) {
            let used_bytes = &mut chunks[(offset / chunk_bytes) as usize];
            *used_bytes = (offset % chunk_bytes + interval.size_bytes).max(*used_bytes);
        }
        Packing { offsets, chunks, chunk_bytes, work: 0 }
    }

    /// Bytes of all chunks.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.chunks.iter().sum()
    }
}

/// The intervals of one program.
#[derive(Clone, Debug)]
pub(crate) struct ProgramBlocks {
    pub(crate) intervals: Vec<Interval>,
    /// A space that is small enough, not below the most that is needed at one time.
    pub(crate) enough_bytes: u64,
}

/// Packs the intervals of several programs. They use the same chunks, one after the other, so where one chunk is enough, no program has to take less than
/// another needs.
///
/// Where one chunk is not enough, chunks that hold so many of the largest interval and nothing more often waste less: sizes
/// within a model are mostly fractions of one another.
///
/// For each of them, the greedy orders and the branch and bound may take about so many steps of `work`.
pub(crate) fn pack_programs(programs: &[ProgramBlocks], chunk_bytes: u64, work: u64) -> Vec<Packing> {
    let peak_bytes = programs.iter().map(|program| program.enough_bytes).max().unwrap_or(0);
    let pack_into = |chunk_bytes: u64| -> Vec<Packing> {
        let enough_bytes = if peak_bytes <= chunk_bytes { peak_bytes } else { 0 };
        let packings = programs
            .iter()
            .map(|program| pack(&program.intervals, chunk_bytes, enough_bytes.max(program.enough_bytes), work));
        packings.collect()
    };
    let largest = programs.iter().flat_map(|program| &program.intervals).map(|interval| interval.size_bytes).max();
    let whole = largest.map_or(chunk_bytes, |largest| chunk_bytes / largest * largest);
    if peak_bytes <= chunk_bytes || whole == chunk_bytes {
        return pack_into(chunk_bytes);
    }
    let total = |packings: &[Packing]| largest_chunks(packings).iter().sum::<u64>();
    let of_largest = pack_into(whole);
    if total(&of_largest) <= peak_bytes {
        return of_largest;
    }
    let others = pack_into(chunk_bytes);
    if total(&others) < total(&of_largest) { others } else { of_largest }
}

/// Bytes of the chunks that are large enough for all of these.
pub(crate) fn largest_chunks(packings: &[Packing]) -> Vec<u64> {
    let mut chunks: Vec<u64> = Vec::new();
    for packing in packings {
        chunks.resize(chunks.len().max(packing.chunks.len()), 0);
        for (chunk, &used_bytes) in chunks.iter_mut().zip(&packing.chunks) {
            *chunk = used_bytes.max(*chunk);
        }
    }
    chunks
}

/// Packs intervals into a space of at most `target_bytes` or, where none is found, into the smallest that is. The
/// target is a budget, or the most bytes needed at one time where the smallest space is wanted. Each interval fits a
/// chunk.
pub(crate) fn pack(intervals: &[Interval], chunk_bytes: u64, target_bytes: u64, work: u64) -> Packing {
    let fit_work = (FIT_WORK_EACH * intervals.len() as u64).min(work);
    pack_with(intervals, chunk_bytes, target_bytes, PackWork { orders: work, fit: fit_work })
}

/// Steps of work that packing may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackWork {
    /// For the greedy orders.
    pub(crate) orders: u64,
    /// For the branch and bound.
    pub(crate) fit: u64,
}

/// As [`pack`], with so much work for each of its parts.
pub(crate) fn pack_with(intervals: &[Interval], chunk_bytes: u64, target_bytes: u64, work: PackWork) -> Packing {
    let mut packer = Packer::new(intervals, chunk_bytes);
    let mut packing = packer.pack(target_bytes, work.orders);
    let (most_bytes, mut left) = (packing.total_bytes(), work.fit);
    if most_bytes > target_bytes
        && let Some(offsets) = tighten(intervals, &packing, target_bytes..=most_bytes - 1, &mut left)
    {
        packing = Packing::new(intervals, offsets, chunk_bytes);
    }
    packing.work = packer.work + (work.fit - left);
    packing
}

/// As `pack`, into a space of which bytes count for little: an eighth above what is needed at one time is small enough, and
/// the branch and bound is not tried.
pub(crate) fn pack_loosely(intervals: &[Interval], chunk_bytes: u64) -> Packing {
    let mut changes: Vec<_> =
        intervals.iter().flat_map(|i| [(i.start, i.size_bytes, 0), (i.end, 0, i.size_bytes)]).collect();
    // What ends comes before what begins.
    changes.sort_unstable_by_key(|&(time, grown, _)| (time, grown));
    let mut live_bytes = 0;
    let peaks = changes.into_iter().map(|(_, grown, shrunk)| {
        live_bytes = live_bytes + grown - shrunk;
        live_bytes
    });
    let peak_bytes = peaks.max().unwrap_or(0);
    Packer::new(intervals, chunk_bytes).pack(peak_bytes + peak_bytes / 8, MOST_WORK)
}

/// Offsets in the smallest space found of the bytes that are wanted, from what is small enough to the most that is of use;
/// `None` if that is too small.
fn tighten(intervals: &[Interval], packing: &Packing, wanted: RangeInclusive<u64>, work: &mut u64) -> Option<Vec<u64>> {
    let (target_bytes, most_bytes) = wanted.into_inner();
    let mut offsets = packing.offsets.clone();
    let mut good_enough_bytes = target_bytes.min(most_bytes);
    let mut parts = independent(intervals);
    // The most demanding first: no other part needs to be smaller than what it takes.
    parts.sort_by_key(|part| std::cmp::Reverse(part.iter().map(|&i| top(intervals, &offsets, i)).max()));
    for part in parts {
        let own: Vec<_> = part.iter().map(|&i| intervals[i]).collect();
        let placed: Vec<_> = part.iter().map(|&i| offsets[i]).collect();
        let placed_bytes = height(&own, &placed);
        if placed_bytes <= good_enough_bytes {
            continue;
        }
        let most_bytes_here = most_bytes.min(placed_bytes - 1);
        let found = smallest(&own, packing.chunk_bytes, good_enough_bytes..=most_bytes_here, work);
        if found.is_none() && placed_bytes > most_bytes {
            return None;
        }
        let found = found.unwrap_or(placed);
        good_enough_bytes = good_enough_bytes.max(height(&own, &found));
        for (&i, offset) in part.iter().zip(found) {
            offsets[i] = offset;
        }
    }
    Some(offsets)
}

/// Offsets in the smallest space found of the bytes that are wanted, from what is small enough to the most that is of use.
fn smallest(intervals: &[Interval], chunk_bytes: u64, wanted: RangeInclusive<u64>, work: &mut u64) -> Option<Vec<u64>> {
    let (good_enough_bytes, most_bytes) = wanted.into_inner();
    let mut fitter = Fitter::new(intervals, chunk_bytes, FIT_CROSSINGS)?;
    // Every height is a sum of sizes, above a cut.
    let cut = if most_bytes > chunk_bytes { chunk_bytes } else { 0 };
    let grain = intervals.iter().fold(cut, |grain, interval| gcd(grain, interval.size_bytes));
    let mut least = (good_enough_bytes / grain * grain).max(fitter.floor_bytes());
    let mut most = most_bytes / grain * grain;
    let (mut best, mut capacity) = (None, least);
    // Half of the work for the space that ends the search, then a quarter of what is left for each larger one.
    let mut share = *work / 2;
    while least <= most && *work > 0 {
        match fitter.fit(capacity, share.max(1), work) {
            Outcome::Fits(offsets) => {
                most = height(intervals, &offsets) - grain;
                best = Some(offsets);
            }
            Outcome::Never => least = capacity + grain,
            // A space hardly larger would be as hard.
            Outcome::GaveUp => least = capacity + grain.max((capacity / 256).next_multiple_of(grain)),
        }
        capacity = (least + most) / 2 / grain * grain;
        capacity = capacity.max(least);
        share = *work / 4;
    }
    best
}

/// Groups of intervals, in the order of their times, so that no two groups share a time.
fn independent(intervals: &[Interval]) -> Vec<Vec<usize>> {
    let mut order: Vec<_> = (0..intervals.len()).collect();
    order.sort_by_key(|&i| (intervals[i].start, i));
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut end = 0;
    for i in order {
        match parts.last_mut() {
            Some(part) if intervals[i].start < end => part.push(i),
            _ => parts.push(vec![i]),
        }
        end = end.max(intervals[i].end);
    }
    parts
}

fn top(intervals: &[Interval], offsets: &[u64], i: usize) -> u64 {
    offsets[i] + intervals[i].size_bytes
}

fn height(intervals: &[Interval], offsets: &[u64]) -> u64 {
    (0..intervals.len()).map(|i| top(intervals, offsets, i)).max().unwrap_or(0)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The lowest offset from `bottom` at which an interval does not cross a cut.
fn clear_of_cut(chunk_bytes: u64, bottom: u64, size_bytes: u64) -> u64 {
    let left_bytes = chunk_bytes - bottom % chunk_bytes;
    if size_bytes <= left_bytes { bottom } else { bottom + left_bytes }
}
