//! The gradient of the weights: for each tap of each channel of the input and each channel of the output a sum over all pixels.
//!
//! In tiles of products, rows are taps, read in place from a padded copy of the input through a table of pixels, and columns are
//! channels of the output, which are transposed into panels. Pixels come in blocks, whose sums are added up; where channels are too
//! few to keep all threads busy, images are divided into parts, the same for any number of threads, that are added up in order.

use std::ops::Range;

use super::band::even;
use super::direct::aligned;
use super::gather::Gather;
use super::grad_weight_few;
use super::padded::{Copy, Padded};
use super::plan::{LINE, Unit};
use crate::native::{Block, Cores, Level, MAX_ROWS, MAX_VECTORS, Offsets, Operand, Start, Sums, tile, transpose};

/// Pixels of a block, and the longest part of a row.
const PIXELS: usize = 512;
/// Pixels of a block where lanes are pixels.
const FEW_PIXELS: usize = 4096;
/// Elements of the padded input of a block.
const MOST_SOURCE: usize = 40 << 10;
/// Rows of a task: taps of channels of the input, for all of which channels of the output are transposed once.
const ROWS: usize = 288;
/// Tasks that there should be.
const ENOUGH_TASKS: usize = 16;

/// How the sums are divided, whatever vectors and threads there are.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Rows, columns and images of a block.
    rows: usize,
    columns: usize,
    images: usize,
    /// Channels of the input in a task.
    pub(super) channels: usize,
    /// Parts of the images.
    pub(super) parts: usize,
    /// Whether lanes are pixels, not channels of the output.
    is_few: bool,
}

/// Pixels of some images.
#[derive(Clone, Debug)]
pub(super) struct Pixels {
    pub(super) images: Range<usize>,
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
}

impl Plan {
    /// The gather leads from the input to the output.
    pub(super) fn new(gather: &Gather, unit: Unit) -> Self {
        let is_few = gather.results <= unit.lanes;
        let pixels = if is_few { FEW_PIXELS } else { PIXELS };
        let taps = gather.parts()[0].kernel.len();
        let (rows, columns) = (gather.rows.count(), gather.columns.count());
        let columns = columns.div_ceil(columns.div_ceil(pixels));
        let folds = gather.rows.folds.len() * gather.columns.folds.len();
        let line = (folds * (columns + gather.columns.reach)).max(1);
        let channels = gather.sources.div_ceil(gather.sources.div_ceil((ROWS / taps).max(1)));
        let by_source = (MOST_SOURCE / (channels * line)).saturating_sub(gather.rows.reach);
        let most = (pixels / columns).max(1).min(by_source.max(1));
        let rows = rows.div_ceil(rows.div_ceil(most));
        let is_whole = rows == gather.rows.count() && columns == gather.columns.count();
        let by_source = MOST_SOURCE / (channels * line * (rows + gather.rows.reach));
        let images = if is_whole { (pixels / (rows * columns)).min(by_source).clamp(1, gather.samples) } else { 1 };
        let mut plan = Plan { rows, columns, images, channels, parts: 1, is_few };
        let tasks = gather.groups * gather.sources.div_ceil(channels);
        plan.parts = ENOUGH_TASKS.div_ceil(tasks).min(plan.blocks(gather).len());
        plan
    }

    pub(super) fn blocks(&self, gather: &Gather) -> Vec<Pixels> {
        let mut blocks = Vec::new();
        let cut = |at: usize, step: usize, end: usize| at..end.min(at + step);
        for image in (0..gather.samples).step_by(self.images) {
            for row in (0..gather.rows.count()).step_by(self.rows) {
                for column in (0..gather.columns.count()).step_by(self.columns) {
                    blocks.push(Pixels {
                        images: cut(image, self.images, gather.samples),
                        rows: cut(row, self.rows, gather.rows.count()),
                        columns: cut(column, self.columns, gather.columns.count()),
                    });
                }
            }
        }
        blocks
    }

    pub(super) fn padded(&self, gather: &Gather, first: (usize, usize)) -> Padded {
        Padded { first, rows: self.rows + gather.rows.reach, pitch: self.columns + gather.columns.reach }
    }

    pub(super) fn source_len(&self, gather: &Gather) -> usize {
        self.images * self.channels * self.padded(gather, (0, 0)).channel(gather)
    }

    /// Elements of the scratch of a thread.
    pub(super) fn scratch(&self, gather: &Gather, unit: Unit) -> usize {
        if self.is_few {
            return grad_weight_few::scratch(self, gather, unit, gather.parts()[0].kernel.len());
        }
        let panel = self.images * self.rows * self.columns * unit.lanes * unit.vectors;
        [self.source_len(gather), panel].map(|len| len.next_multiple_of(LINE)).iter().sum::<usize>() + LINE
    }
}

/// The sums and their operands.
pub(super) struct GradWeight<'a> {
    /// From the input to the output.
    pub(super) gather: &'a Gather,
    pub(super) input: &'a [f32],
    pub(super) grad_output: &'a [f32],
}

/// The sums of some channels over a part of the images.
struct Task<'a> {
    part: usize,
    group: usize,
    channels: Range<usize>,
    /// A row for each channel of the input and tap, a column for each channel of the output.
    sums: &'a mut [f32],
}

impl GradWeight<'_> {
    /// Computes the gradient `[groups · results][sources][taps]`, with scratch for each thread, and as many elements as there are
    /// weights for each part.
    pub(super) fn run(&self, cores: &Cores, plan: &Plan, scratch: &mut [f32], sums: &mut [f32], output: &mut [f32]) {
        if plan.is_few {
            return grad_weight_few::run(self, cores, plan, scratch, sums, output);
        }
        let (gather, level) = (self.gather, cores.level());
        let parts = gather.parts();
        let taps = parts[0].kernel.len();
        let terms = gather.sources * taps;
        let group_len = terms * gather.results;
        let mut tasks = Vec::new();
        for (i, sums) in sums.chunks_exact_mut(group_len).take(plan.parts * gather.groups).enumerate() {
            for (c, sums) in sums.chunks_mut(plan.channels * taps * gather.results).enumerate() {
                let first = c * plan.channels;
                let channels = first..gather.sources.min(first + plan.channels);
                tasks.push(Task { part: i / gather.groups, group: i % gather.groups, channels, sums });
            }
        }
        let job = Job::new(self, plan, level, taps);
        let mut own: Vec<_> = scratch.chunks_exact_mut(plan.scratch(gather, job.unit)).take(cores.threads()).collect();
        cores.each_with(&mut tasks, &mut own, |scratch, task| job.task(scratch, task));
        add_parts(cores, &mut sums[..plan.parts * output.len()], output.len());
        let sums = &sums[..output.len()];
        let rows = level.lanes();
        let mut tasks: Vec<_> = output
            .chunks_exact_mut(group_len)
            .enumerate()
            .flat_map(|(group, output)| {
                output.chunks_mut(rows * terms).enumerate().map(move |(i, to)| (group, i * rows, to))
            })
            .collect();
        cores.each(&mut tasks, |_, (group, first, to)| {
            let from = &sums[*group * group_len + *first..];
            transpose(level, terms, to.len() / terms, from, gather.results, to, terms);
        });
    }

    /// Copies channels of a block of the input, with the zeros around it.
    pub(super) fn copy(
        &self,
        level: Level,
        plan: &Plan,
        group: usize,
        channels: &Range<usize>,
        block: &Pixels,
        to: &mut [f32],
    ) {
        let gather = self.gather;
        let padded = plan.padded(gather, (block.rows.start, block.columns.start));
        let (stride, plane) = (plan.channels * padded.channel(gather), gather.source_plane());
        for (i, image) in block.images.clone().enumerate() {
            let first = (image * gather.groups + group) * gather.sources + channels.start;
            let source = &self.input[first * plane..][..channels.len() * plane];
            level.run(Copy { gather, padded, source, to: &mut to[i * stride..(i + 1) * stride] });
        }
    }
}

/// Adds tensors of so many elements to the first.
pub(super) fn add_parts(cores: &Cores, parts: &mut [f32], len: usize) {
    let (first, rest) = parts.split_at_mut(len);
    if rest.is_empty() {
        return;
    }
    let rest = &*rest;
    cores.pieces(first, |start, sums| {
        for part in rest.chunks_exact(len) {
            for (sum, x) in sums.iter_mut().zip(&part[start..]) {
                *sum += x;
            }
        }
    });
}

struct Job<'a> {
    grad: &'a GradWeight<'a>,
    plan: &'a Plan,
    level: Level,
    unit: Unit,
    blocks: Vec<Pixels>,
    /// Where each channel and tap begins in the padded input.
    rows: Vec<u32>,
    /// Where each pixel lies behind it.
    pixels: Vec<u32>,
}

impl<'a> Job<'a> {
    fn new(grad: &'a GradWeight<'a>, plan: &'a Plan, level: Level, taps: usize) -> Self {
        let gather = grad.gather;
        let padded = plan.padded(gather, (0, 0));
        let rows = padded.offsets(gather, 0, 0, plan.channels);
        debug_assert_eq!(rows.len(), plan.channels * taps);
        let pixels = Vec::new();
        let mut job = Job { grad, plan, level, unit: Unit::of(level), blocks: plan.blocks(gather), rows, pixels };
        job.pixels = job.pixels(plan.images, plan.rows, plan.columns);
        job
    }

    fn pixels(&self, images: usize, rows: usize, columns: usize) -> Vec<u32> {
        let padded = self.plan.padded(self.grad.gather, (0, 0));
        let image = self.plan.channels * padded.channel(self.grad.gather);
        let rows = (0..images).flat_map(|i| (0..rows).map(move |row| i * image + row * padded.pitch));
        rows.flat_map(|row| (0..columns).map(move |column| (row + column) as u32)).collect()
    }

    fn task(&self, scratch: &mut [f32], task: &mut Task<'_>) {
        let (gather, plan) = (self.grad.gather, self.plan);
        let (source, panel) = aligned(scratch, plan.source_len(gather).next_multiple_of(LINE));
        let count = self.blocks.len();
        let blocks = &self.blocks[task.part * count / plan.parts..(task.part + 1) * count / plan.parts];
        for (i, block) in blocks.iter().enumerate() {
            self.grad.copy(self.level, plan, task.group, &task.channels, block, source);
            let (high, wide) = (block.rows.len(), block.columns.len());
            let terms = block.images.len() * high * wide;
            let is_usual = high == plan.rows && wide == plan.columns;
            let own = if is_usual { Vec::new() } else { self.pixels(block.images.len(), high, wide) };
            let pixels = if is_usual { &self.pixels[..terms] } else { &own[..] };
            let start = if i == 0 { Start::Zero } else { Start::Block };
            let width = self.unit.lanes * self.unit.vectors;
            for column in (0..gather.results).step_by(width) {
                let columns = column..gather.results.min(column + width);
                self.pack(task, block, &columns, panel);
                self.multiply(task, &columns, pixels, source, panel, start);
            }
        }
    }

    /// Transposes pixels of some channels of the gradient of the output.
    fn pack(&self, task: &Task<'_>, block: &Pixels, columns: &Range<usize>, panel: &mut [f32]) {
        let gather = self.grad.gather;
        let (plane, wide) = (gather.result_plane(), gather.columns.count());
        let width = self.unit.lanes * self.unit.vectors;
        // Whole rows lie one after the other.
        let (lines, len) = if block.columns.len() == wide {
            (block.rows.start..block.rows.start + 1, block.rows.len() * wide)
        } else {
            (block.rows.clone(), block.columns.len())
        };
        let mut panels = panel.chunks_mut(len * width);
        for image in block.images.clone() {
            let first = (image * gather.groups + task.group) * gather.results + columns.start;
            for line in lines.clone() {
                let from = &self.grad.grad_output[first * plane + line * wide + block.columns.start..];
                let to = panels.next().expect("bug: too small a panel");
                transpose(self.level, columns.len(), len, from, plane, to, width);
            }
        }
    }

    fn multiply(
        &self,
        task: &mut Task<'_>,
        columns: &Range<usize>,
        pixels: &[u32],
        source: &[f32],
        panel: &[f32],
        start: Start<'_>,
    ) {
        let (gather, unit) = (self.grad.gather, self.unit);
        let count = task.sums.len() / gather.results;
        let a = Operand { data: source, offsets: Offsets::Table(pixels) };
        let b = Operand { data: panel, offsets: Offsets::Step(unit.lanes * unit.vectors) };
        let vectors: [usize; MAX_VECTORS] = std::array::from_fn(|vector| vector * unit.lanes);
        let vectors = &vectors[..columns.len().div_ceil(unit.lanes)];
        let mut sums = Block::new(task.sums, count, gather.results, gather.results);
        for rows in even(count, unit.rows) {
            let mut starts = [0; MAX_ROWS];
            for (start, row) in starts.iter_mut().zip(&self.rows[rows.clone()]) {
                *start = *row as usize;
            }
            let own = &starts[..rows.len()];
            let sums = sums.part(rows, columns.clone());
            tile(
                self.level,
                &Sums { a, rows: own, b, columns: vectors, terms: pixels.len(), start, relu: false },
                sums,
            );
        }
    }
}
