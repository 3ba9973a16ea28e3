//! The gradient of the weights where a group has few channels in the output: columns of a tile would be mostly empty, so lanes
//! are pixels, of which each keeps sums of its own until the end.
#![allow(clippy::needless_range_loop)]

use std::ops::Range;

use super::band::even;
use super::direct::aligned;
use super::grad_weight::{GradWeight, Pixels, Plan, add_parts};
use super::plan::{LINE, Unit};
use crate::native::{Block, Cores, Kernel, Level, Simd};

/// Most taps whose sums are made at once.
const TAPS: usize = 9;

/// The sums of some channels of the input over a part of the images.
struct Task<'a> {
    part: usize,
    group: usize,
    channels: Range<usize>,
    /// A row for each channel of the output, a column for each channel of the input and tap.
    sums: Block<'a>,
}

/// Elements of the scratch of a thread.
pub(super) fn scratch(plan: &Plan, grad: &super::gather::Gather, unit: Unit, taps: usize) -> usize {
    lengths(plan, grad, unit, taps).iter().sum::<usize>() + LINE
}

/// Elements of the padded input, with room for a vector behind it, and of the lanes of all sums.
fn lengths(plan: &Plan, gather: &super::gather::Gather, unit: Unit, taps: usize) -> [usize; 2] {
    let lanes = gather.results * plan.channels * taps * unit.lanes;
    [plan.source_len(gather) + unit.lanes, lanes].map(|len| len.next_multiple_of(LINE))
}

/// As [`GradWeight::run`].
pub(super) fn run(
    grad: &GradWeight<'_>,
    cores: &Cores,
    plan: &Plan,
    scratch_of_all: &mut [f32],
    sums: &mut [f32],
    output: &mut [f32],
) {
    let (gather, level) = (grad.gather, cores.level());
    let taps = gather.parts()[0].kernel.len();
    let (unit, terms) = (Unit::of(level), gather.sources * taps);
    let rows = plan.parts * gather.groups * gather.results;
    let count = gather.sources.div_ceil(plan.channels);
    let parts = Block::new(&mut sums[..rows * terms], rows, terms, terms).grid(gather.results, plan.channels * taps);
    let task = |(i, sums)| {
        let (place, first) = (i / count, i % count * plan.channels);
        let channels = first..gather.sources.min(first + plan.channels);
        Task { part: place / gather.groups, group: place % gather.groups, channels, sums }
    };
    let mut tasks: Vec<_> = parts.into_iter().enumerate().map(task).collect();
    let job = Job { grad, plan, level, unit, taps, blocks: plan.blocks(gather) };
    let len = scratch(plan, gather, unit, taps);
    let mut own: Vec<_> = scratch_of_all.chunks_exact_mut(len).take(cores.threads()).collect();
    cores.each_with(&mut tasks, &mut own, |scratch, task| job.task(scratch, task));
    let sums = &mut sums[..plan.parts * output.len()];
    add_parts(cores, sums, output.len());
    output.copy_from_slice(&sums[..output.len()]);
}

struct Job<'a> {
    grad: &'a GradWeight<'a>,
    plan: &'a Plan,
    level: Level,
    unit: Unit,
    taps: usize,
    blocks: Vec<Pixels>,
}

impl Job<'_> {
    fn task(&self, scratch: &mut [f32], task: &mut Task<'_>) {
        let (gather, plan, lanes) = (self.grad.gather, self.plan, self.unit.lanes);
        let [source_len, lanes_len] = lengths(plan, gather, self.unit, self.taps);
        let (source, rest) = aligned(scratch, source_len);
        let sums = &mut rest[..lanes_len];
        sums.fill(0.0);
        let offsets = plan.padded(gather, (0, 0)).offsets(gather, 0, 0, plan.channels);
        let count = self.blocks.len();
        for block in &self.blocks[task.part * count / plan.parts..(task.part + 1) * count / plan.parts] {
            self.grad.copy(self.level, plan, task.group, &task.channels, block, source);
            self.add(task, block, &offsets, source, sums);
        }
        for result in 0..gather.results {
            let own = &sums[result * plan.channels * self.taps * lanes..];
            for (to, lanes) in task.sums.row(result).iter_mut().zip(own.chunks_exact(lanes)) {
                *to = lanes.iter().map(|&x| f64::from(x)).sum::<f64>() as f32;
            }
        }
    }

    /// Adds the products of a block.
    fn add(&self, task: &Task<'_>, block: &Pixels, offsets: &[u32], source: &[f32], sums: &mut [f32]) {
        let (gather, plan, taps) = (self.grad.gather, self.plan, self.taps);
        let (plane, wide) = (gather.result_plane(), gather.columns.count());
        let padded = plan.padded(gather, (0, 0));
        let image_len = plan.channels * padded.channel(gather);
        for (i, image) in block.images.clone().enumerate() {
            for channel in 0..task.channels.len() {
                for results in even(gather.results, 2) {
                    let first = (image * gather.groups + task.group) * gather.results + results.start;
                    for own in even(taps, TAPS) {
                        let at = (results.start * plan.channels + channel) * taps + own.start;
                        self.level.run(Dots {
                            grads: &self.grad.grad_output
                                [first * plane + block.rows.start * wide + block.columns.start..],
                            // From one channel to the next, and from one row to the next.
                            plane,
                            wide,
                            results: results.len(),
                            rows: block.rows.len(),
                            columns: block.columns.len(),
                            source: &source[i * image_len..],
                            pitch: padded.pitch,
                            offsets: &offsets[channel * taps..][own],
                            sums: &mut sums[at * self.unit.lanes..],
                            result: plan.channels * taps,
                        });
                    }
                }
            }
        }
    }
}

/// Adds the products of rows of one or two planes with what some taps read.
struct Dots<'a> {
    grads: &'a [f32],
    plane: usize,
    wide: usize,
    results: usize,
    rows: usize,
    columns: usize,
    source: &'a [f32],
    pitch: usize,
    offsets: &'a [u32],
    sums: &'a mut [f32],
    /// Sums from one plane to the next.
    result: usize,
}

impl Kernel for Dots<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        macro_rules! by_size {
            ($($taps:literal)*) => {
                match (self.results, self.offsets.len()) {
                    $(
                        (1, $taps) => self.add::<S, 1, $taps>(simd),
                        (2, $taps) => self.add::<S, 2, $taps>(simd),
                    )*
                    _ => unreachable!("bug: more taps than are summed at once"),
                }
            };
        }
        by_size!(1 2 3 4 5 6 7 8 9);
    }
}

impl Dots<'_> {
    #[inline(always)]
    fn add<S: Simd, const RESULTS: usize, const TAPS: usize>(self, simd: S) {
        let mut sums = [[simd.splat(0.0); TAPS]; RESULTS];
        for result in 0..RESULTS {
            for tap in 0..TAPS {
                sums[result][tap] = simd.load(&self.sums[(result * self.result + tap) * S::LANES..]);
            }
        }
        for row in 0..self.rows {
            let grads: [&[f32]; RESULTS] = rows(self.grads, row * self.wide, self.plane, self.columns);
            let source = &self.source[row * self.pitch..];
            let mut from = [source; TAPS];
            for tap in 0..TAPS {
                from[tap] = &source[self.offsets[tap] as usize..][..self.columns];
            }
            let whole = self.columns / S::LANES * S::LANES;
            let mut at = 0;
            while at < whole {
                let mut g = [simd.splat(0.0); RESULTS];
                for result in 0..RESULTS {
                    g[result] = simd.load(&grads[result][at..at + S::LANES]);
                }
                for tap in 0..TAPS {
                    let x = simd.load(&from[tap][at..at + S::LANES]);
                    for result in 0..RESULTS {
                        sums[result][tap] = simd.mul_add(x, g[result], sums[result][tap]);
                    }
                }
                at += S::LANES;
            }
            if at < self.columns {
                for tap in 0..TAPS {
                    let x = simd.load_part(&from[tap][at..]);
                    for result in 0..RESULTS {
                        sums[result][tap] = simd.mul_add(x, simd.load_part(&grads[result][at..]), sums[result][tap]);
                    }
                }
            }
        }
        for result in 0..RESULTS {
            for tap in 0..TAPS {
                simd.store(&mut self.sums[(result * self.result + tap) * S::LANES..], sums[result][tap]);
            }
        }
    }
}

/// A row of so many elements of each plane.
#[inline(always)]
fn rows<const PLANES: usize>(grads: &[f32], row: usize, plane: usize, len: usize) -> [&[f32]; PLANES] {
    let mut rows = [grads; PLANES];
    for (i, to) in rows.iter_mut().enumerate() {
        *to = &grads[i * plane + row..][..len];
    }
    rows
}
