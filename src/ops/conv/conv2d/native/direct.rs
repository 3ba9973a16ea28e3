//! Convolutions as tiles of products, without a copy of the image for each tap: rows are channels of the result, columns its
//! pixels, terms the taps of all channels.
//!
//! A task copies what its pixels need into scratch that stays in a cache, a block of channels at a time, with zeros around it, and
//! reads each tap from there through a table of offsets. Sums begin with the bias and go on from block to block, so each is
//! added up in the same order however the work is divided.

use std::ops::Range;

use super::band::{Band, Scratch};
use super::gather::{Gather, Part};
use super::plan::{LINE, Plan};
use crate::native::{Block, Cores, Level};

/// What is done to values before they are written: the place of the first in the output, the values, and where they go.
pub(super) type Finish<'a> = Option<&'a (dyn Fn(usize, &mut [f32], &mut [f32]) + Sync)>;

/// A convolution and its operands.
#[derive(Clone, Copy)]
pub(super) struct Direct<'a> {
    pub(super) gather: &'a Gather,
    pub(super) source: &'a [f32],
    /// For each part a row of weights for each channel of the result, `[groups · results][sources][taps]`.
    pub(super) weights: &'a [f32],
    /// What sums start from.
    pub(super) bias: Option<&'a [f32]>,
    pub(super) relu: bool,
    pub(super) finish: Finish<'a>,
}

/// Pixels of some channels of the result.
pub(super) struct Task<'a> {
    pub(super) image: usize,
    /// Channels of the result, of all groups.
    pub(super) channels: Range<usize>,
    /// The first row and column, and how many, counted within a phase.
    pub(super) first: (usize, usize),
    pub(super) extent: (usize, usize),
    /// Place in the plane of the first pixel, and pixels of a row.
    pub(super) place: usize,
    pub(super) wide: usize,
    /// For each image, a row for each channel and a column for each pixel of the band.
    pub(super) outputs: Vec<Block<'a>>,
}

/// The first elements of some scratch that begin with a line of the cache, and the rest.
pub(super) fn aligned(scratch: &mut [f32], len: usize) -> (&mut [f32], &mut [f32]) {
    let skip = scratch.as_ptr().align_offset(LINE * size_of::<f32>()).min(scratch.len() - len);
    scratch[skip..].split_at_mut(len)
}

impl Direct<'_> {
    /// Computes the result with scratch of so many elements for each thread.
    pub(super) fn run(&self, cores: &Cores, plan: &Plan, scratch: &mut [f32], output: &mut [f32]) {
        let len = plan.scratch(self.gather);
        let mut own: Vec<_> = scratch.chunks_exact_mut(len).take(cores.threads()).collect();
        let job = Job::new(self, plan, cores.level());
        let mut tasks = job.tasks(output);
        cores.each_with(&mut tasks, &mut own, |scratch, task| job.task(scratch, task));
    }
}

/// What the tasks of a convolution share.
pub(super) struct Job<'a> {
    pub(super) direct: &'a Direct<'a>,
    pub(super) plan: &'a Plan,
    pub(super) level: Level,
    /// For each part, offsets of the taps of a block, and where its weights begin.
    pub(super) parts: Vec<(Vec<u32>, usize)>,
}

impl<'a> Job<'a> {
    fn new(direct: &'a Direct<'a>, plan: &'a Plan, level: Level) -> Self {
        let gather = direct.gather;
        let padded = plan.padded(gather, (0, 0));
        let mut begin = 0;
        let part = |part: &Part| {
            let offsets = padded.offsets(gather, part.row_phase, part.column_phase, plan.channels);
            let weights = begin;
            begin += gather.groups * gather.results * gather.sources * part.kernel.len();
            (offsets, weights)
        };
        let parts = plan.parts.iter().map(part).collect();
        Job { direct, plan, level, parts }
    }

    fn tasks<'o>(&self, output: &'o mut [f32]) -> Vec<Task<'o>> {
        let (gather, plan) = (self.direct.gather, self.plan);
        let plane = gather.result_plane();
        let channels = gather.groups * gather.results;
        let share = channels.div_ceil(plan.shares);
        let mut tasks = Vec::new();
        for (i, output) in output.chunks_mut(plan.images * channels * plane).enumerate() {
            let images = output.chunks_exact_mut(channels * plane);
            let mut images: Vec<_> =
                images.map(|image| Block::new(image, channels, plane, plane).grid(share, plane).into_iter()).collect();
            for first in (0..channels).step_by(share) {
                let outputs = images.iter_mut().filter_map(Iterator::next).collect();
                self.bands(i * plan.images, first..channels.min(first + share), outputs, &mut tasks);
            }
        }
        tasks
    }

    /// The tasks of some channels of some images.
    fn bands<'o>(&self, image: usize, channels: Range<usize>, outputs: Vec<Block<'o>>, tasks: &mut Vec<Task<'o>>) {
        let (rows, columns) = (&self.direct.gather.rows, &self.direct.gather.columns);
        let mut rest = outputs;
        for row in (0..rows.count()).step_by(self.plan.rows) {
            for column in (0..columns.count()).step_by(self.plan.columns) {
                let extent = (self.plan.rows.min(rows.count() - row), self.plan.columns.min(columns.count() - column));
                // A band is of whole rows, or a part of one.
                let high = (extent.0 * rows.stride).min(rows.result - row * rows.stride);
                let wide = (extent.1 * columns.stride).min(columns.result - column * columns.stride);
                let (outputs, next) = rest.into_iter().map(|block| block.split_columns(high * wide)).unzip();
                rest = next;
                let place = row * rows.stride * columns.result + column * columns.stride;
                let (first, channels) = ((row, column), channels.clone());
                tasks.push(Task { image, channels, first, extent, place, wide, outputs });
            }
        }
    }

    fn task(&self, scratch: &mut [f32], task: &mut Task<'_>) {
        let (gather, plan) = (self.direct.gather, self.plan);
        let [source, panels, sums] = plan.lengths(gather);
        let (source, rest) = aligned(scratch, source);
        let (panels, rest) = rest.split_at_mut(panels);
        let (sums, pixels) = rest.split_at_mut(sums);
        let groups = task.channels.start / gather.results..task.channels.end.div_ceil(gather.results);
        for group in groups {
            let all = group * gather.results..(group + 1) * gather.results;
            let channels = task.channels.start.max(all.start)..task.channels.end.min(all.end);
            let scratch = Scratch { source, panels, sums, pixels };
            Band { job: self, group, channels, task: &mut *task, scratch }.run();
        }
    }
}
