use proptest::prelude::*;

use super::fit::{Fitter, Outcome};
use super::greedy::ORDERS;
use super::*;

const ONE_SPACE: u64 = 1 << 40;
/// What each published instance is known to fit.
const CAPACITY: u64 = 1 << 20;

/// With as much work as is worth it.
fn pack(intervals: &[Interval], chunk_bytes: u64, target_bytes: u64) -> Packing {
    super::pack(intervals, chunk_bytes, target_bytes, MOST_WORK)
}

fn interval(start: usize, end: usize, size_bytes: u64) -> Interval {
    Interval { start, end, size_bytes }
}

fn floor(intervals: &[Interval]) -> u64 {
    let live = |time: usize| intervals.iter().filter(move |i| i.start <= time && time < i.end);
    intervals.iter().map(|i| live(i.start).map(|i| i.size_bytes).sum()).max().unwrap_or(0)
}

fn together(a: &Interval, b: &Interval) -> bool {
    a.start < b.end && b.start < a.end
}

fn assert_valid(intervals: &[Interval], packing: &Packing, chunk_bytes: u64) {
    for (i, a) in intervals.iter().enumerate() {
        let a_offset = packing.offsets[i];
        assert_eq!(a_offset / chunk_bytes, (a_offset + a.size_bytes - 1) / chunk_bytes, "{i} crosses a cut");
        let chunk = (a_offset / chunk_bytes) as usize;
        assert!(a_offset % chunk_bytes + a.size_bytes <= packing.chunks[chunk]);
        for (j, b) in intervals.iter().enumerate().skip(i + 1) {
            let b_offset = packing.offsets[j];
            let overlap = a_offset < b_offset + b.size_bytes && b_offset < a_offset + a.size_bytes;
            assert!(!(together(a, b) && overlap), "{i} and {j} overlap");
        }
    }
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
                    .filter(|(j, _)| together(&intervals[*j], &intervals[i]))
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

/// The least height below `best`, else `best`: from the bottom up, each interval lies right on those that came before.
fn optimum(
    intervals: &[Interval],
    chunk_bytes: u64,
    placed: &mut Vec<(usize, u64)>,
    height: u64,
    mut best: u64,
) -> u64 {
    if placed.len() == intervals.len() {
        return height;
    }
    for i in 0..intervals.len() {
        if placed.iter().any(|&(j, _)| j == i) {
            continue;
        }
        let size_bytes = intervals[i].size_bytes;
        let below = placed.iter().filter(|&&(j, _)| together(&intervals[i], &intervals[j]));
        let below = below.map(|&(j, offset)| offset + intervals[j].size_bytes).max().unwrap_or(0);
        let offset = clear_of_cut(chunk_bytes, below, size_bytes);
        let top = offset + size_bytes;
        if top < best && placed.last().is_none_or(|&(_, last)| last <= offset) {
            placed.push((i, offset));
            best = optimum(intervals, chunk_bytes, placed, height.max(top), best);
            placed.pop();
        }
    }
    best
}

fn in_units<const N: usize>(units: [(usize, usize, u64); N]) -> Vec<Interval> {
    units.map(|(start, end, units)| interval(start, end, 256 * units)).to_vec()
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

#[test]
fn a_packing_is_improved_until_it_is_good_enough() {
    let intervals = in_units([(4, 8, 6), (3, 6, 6), (1, 4, 3), (3, 4, 5), (3, 7, 2)]);
    let greedy_bytes = best_greedy(&intervals);
    assert_eq!(greedy_bytes, 17 * 256);
    assert_eq!(pack(&intervals, ONE_SPACE, greedy_bytes).total_bytes(), greedy_bytes);
    assert_eq!(pack(&intervals, ONE_SPACE, greedy_bytes - 1).total_bytes(), 16 * 256);
}

#[test]
fn two_chunks_become_one_where_everything_fits_it() {
    let intervals = in_units([(4, 8, 6), (3, 6, 6), (1, 4, 3), (3, 4, 5), (3, 7, 2)]);
    let chunk_bytes = 16 * 256;
    let packing = pack(&intervals, chunk_bytes, chunk_bytes);
    assert_valid(&intervals, &packing, chunk_bytes);
    assert_eq!(packing.chunks, [chunk_bytes]);
}

/// Halves and quarters of the largest interval leave no space below cuts at its multiples.
#[test]
fn programs_that_need_several_chunks_waste_little() {
    let mut intervals = training_step(60);
    for (i, interval) in intervals.iter_mut().enumerate() {
        interval.size_bytes = 256 * (160 >> (i % 4));
    }
    let (floor_bytes, chunk_bytes) = (floor(&intervals), 256 * 290);
    let blocks =
        |intervals: &[Interval]| ProgramBlocks { intervals: intervals.to_vec(), enough_bytes: floor(intervals) };
    let programs = [blocks(&intervals), blocks(&intervals[..9])];
    let packings = pack_programs(&programs, chunk_bytes, MOST_WORK);
    for (program, packing) in programs.iter().zip(&packings) {
        assert_valid(&program.intervals, packing, packing.chunk_bytes);
    }
    let total = |chunks: &[u64]| chunks.iter().sum::<u64>();
    let at_the_limit = pack(&intervals, chunk_bytes, floor_bytes);
    assert_valid(&intervals, &at_the_limit, chunk_bytes);
    let total_bytes = total(&largest_chunks(&packings));
    println!("{total_bytes} of {floor_bytes}; in the largest chunks {}", at_the_limit.total_bytes());
    assert!(total_bytes <= floor_bytes + floor_bytes / 50, "{total_bytes} of {floor_bytes}");
    assert!(packings.iter().all(|packing| packing.chunk_bytes <= chunk_bytes));
}

/// The intervals need 5 units at most times, yet do not fit 5.
#[test]
fn a_search_without_a_solution_says_so() {
    let units = [(0, 1, 2), (0, 2, 3), (1, 3, 1), (1, 5, 1), (2, 3, 2), (2, 4, 1), (3, 6, 3), (4, 5, 1), (5, 6, 2)];
    let intervals = in_units(units);
    assert_eq!(floor(&intervals), 5 * 256);
    assert_eq!(optimum(&intervals, ONE_SPACE, &mut Vec::new(), 0, u64::MAX), 6 * 256);
    let mut work = 1_000_000;
    let mut fitter = Fitter::new(&intervals, 1 << 60, 100).expect("few sections");
    assert_eq!(fitter.fit(5 * 256, 1_000_000, &mut work), Outcome::Never);
    assert!(matches!(fitter.fit(6 * 256, 1_000_000, &mut work), Outcome::Fits(_)));
    assert_eq!(fitter.fit(5 * 256, 1, &mut work), Outcome::GaveUp);
    assert_eq!(pack(&intervals, ONE_SPACE, 0).total_bytes(), 6 * 256);
    assert!(Fitter::new(&intervals, 1 << 60, 3).is_none());
}

/// Published instances, if they are at hand.
fn published(name: &str) -> Option<Vec<Interval>> {
    let data = std::env::var("TIGHTFIT_DATA").ok()?;
    let path = std::path::Path::new(&data).join(format!("placement/{name}.{CAPACITY}.csv"));
    let mut reader = csv::Reader::from_path(&path).expect("a placement instance");
    let rows = reader.deserialize::<(String, usize, usize, u64)>();
    Some(rows.map(|row| row.map(|(_, start, end, size)| interval(start, end, size)).expect("a row")).collect())
}

#[test]
fn published_instances_are_packed_with_no_byte_to_spare() {
    for name in ["A", "C", "E", "G", "I", "K"] {
        let Some(intervals) = published(name) else {
            println!("skipped: TIGHTFIT_DATA is not set, so there are no instances to pack");
            return;
        };
        let floor_bytes = floor(&intervals);
        let time = std::time::Instant::now();
        let packing = pack(&intervals, ONE_SPACE, floor_bytes);
        let took = time.elapsed();
        assert_valid(&intervals, &packing, ONE_SPACE);
        let greedy_bytes = best_greedy(&intervals);
        println!(
            "{name}: {} intervals, packed into {} bytes in {took:?}, best greedy {greedy_bytes}, lower bound \
             {floor_bytes}, capacity {CAPACITY}",
            intervals.len(),
            packing.total_bytes()
        );
        assert!(packing.total_bytes() <= greedy_bytes, "{name}");
        assert_eq!(packing.total_bytes(), floor_bytes, "{name}");
        // The same with a limit for each buffer, if all fits one.
        let packing = pack(&intervals, CAPACITY, floor_bytes);
        assert_valid(&intervals, &packing, CAPACITY);
        assert_eq!(packing.chunks, [floor_bytes], "{name}");
    }
}

/// A training step: forward values live until their backward ops, gradients for two ops, workspaces for one.
fn training_step(ops: usize) -> Vec<Interval> {
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let last = 2 * ops;
    let mut intervals = Vec::new();
    for op in 0..ops {
        let size_bytes = 256 * (1 + random(64));
        intervals.push(interval(op, last - op, size_bytes));
        intervals.push(interval(last - op - 1, last - op + 1, size_bytes));
        if random(3) == 0 {
            intervals.push(interval(op, op + 1, 256 * (1 + random(100))));
        }
    }
    intervals
}

#[test]
fn long_training_steps_are_packed_within_a_hundredth_of_the_floor() {
    for ops in [100, 800, 8_500] {
        let intervals = training_step(ops);
        let floor_bytes = floor(&intervals);
        let time = std::time::Instant::now();
        let packing = pack(&intervals, ONE_SPACE, floor_bytes);
        println!("{} intervals in {:?}: {} of {floor_bytes}", intervals.len(), time.elapsed(), packing.total_bytes());
        assert!(packing.total_bytes() <= floor_bytes + floor_bytes / 100);
    }
}

fn intervals(most: usize, most_units: u64) -> impl Strategy<Value = Vec<Interval>> {
    let one = (0..20usize, 1..10usize, 1..=most_units);
    prop::collection::vec(one.prop_map(|(start, length, units)| interval(start, start + length, 256 * units)), 1..=most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_intervals_are_packed_without_overlap(
        intervals in intervals(40, 12),
        chunk_units in 12..200u64,
        target_bytes in 0..50_000u64,
    ) {
        let chunk_bytes = 256 * chunk_units;
        let packing = pack(&intervals, chunk_bytes, target_bytes);
        assert_valid(&intervals, &packing, chunk_bytes);
        prop_assert!(packing.total_bytes() >= floor(&intervals));
        prop_assert_eq!(&packing, &pack(&intervals, chunk_bytes, target_bytes));
        let packing = pack(&intervals, ONE_SPACE, 0);
        assert_valid(&intervals, &packing, ONE_SPACE);
        prop_assert!(packing.total_bytes() <= best_greedy(&intervals));
    }

    #[test]
    fn few_intervals_are_packed_as_tightly_as_possible(intervals in intervals(6, 6)) {
        let intervals: Vec<_> =
            intervals.iter().map(|i| interval(i.start / 3, i.end.div_ceil(3), i.size_bytes)).collect();
        let packing = pack(&intervals, ONE_SPACE, floor(&intervals));
        assert_valid(&intervals, &packing, ONE_SPACE);
        prop_assert_eq!(packing.total_bytes(), optimum(&intervals, ONE_SPACE, &mut Vec::new(), 0, u64::MAX));
    }

    #[test]
    fn a_search_in_chunks_finds_the_least_height(intervals in intervals(6, 6), chunk_units in 6..14u64) {
        let intervals: Vec<_> =
            intervals.iter().map(|i| interval(i.start / 3, i.end.div_ceil(3), i.size_bytes)).collect();
        let chunk_bytes = 256 * chunk_units;
        let least_bytes = optimum(&intervals, chunk_bytes, &mut Vec::new(), 0, u64::MAX);
        let mut fitter = Fitter::new(&intervals, chunk_bytes, 1000).expect("few sections");
        let mut fit = |capacity: u64| fitter.fit(capacity, 10_000_000, &mut 10_000_000);
        prop_assert_eq!(fit(least_bytes - 256), Outcome::Never);
        let Outcome::Fits(offsets) = fit(least_bytes) else { panic!("not found: {least_bytes}") };
        assert_valid(&intervals, &Packing::new(&intervals, offsets, chunk_bytes), chunk_bytes);
    }
}
