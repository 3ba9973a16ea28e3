//! What a task of a convolution does for the channels of one group.

use std::ops::Range;

use super::direct::{Job, Task};
use super::gather::Axis;
use super::padded::{Copy, copy};
use super::plan::{Form, Lines};
use crate::native::{Block, Kernel, MAX_ROWS, MAX_VECTORS, Offsets, Operand, Simd, Start, Sums, tile};

/// Scratch of a task.
pub(super) struct Scratch<'a> {
    pub(super) source: &'a mut [f32],
    pub(super) panels: &'a mut [f32],
    pub(super) sums: &'a mut [f32],
    pub(super) pixels: &'a mut [f32],
}

/// The part of a task that lies in one group.
pub(super) struct Band<'a, 't, 's> {
    pub(super) job: &'a Job<'a>,
    pub(super) group: usize,
    /// Channels of the result, counted over all groups.
    pub(super) channels: Range<usize>,
    pub(super) task: &'s mut Task<'t>,
    pub(super) scratch: Scratch<'s>,
}

/// The products of a part, for a block of channels of the source.
struct Products<'a> {
    /// Pixels of an image, in rows and columns, and where they are among the columns.
    extent: (usize, usize),
    lines: Lines,
    vectors: usize,
    /// Offsets of terms, the first weight of the first row, and weights from one row to the next.
    offsets: &'a [u32],
    weights: usize,
    row: usize,
    is_first: bool,
    is_last: bool,
}

impl<'a> Band<'a, '_, '_> {
    pub(super) fn run(mut self) {
        let (plan, direct) = (self.job.plan, self.job.direct);
        let gather = direct.gather;
        for first in (0..gather.sources).step_by(plan.channels) {
            let channels = first..gather.sources.min(first + plan.channels);
            self.copy(&channels);
            for part in 0..plan.parts.len() {
                let products = self.products(part, &channels);
                if products.vectors > 0 {
                    if plan.form == Form::Packed {
                        self.pack(&products);
                    }
                    self.multiply(part, &products);
                }
            }
        }
        if !self.is_written_at_once() {
            self.write();
        }
    }

    /// Whether tiles are parts of the output, with nothing to be done to them.
    fn is_written_at_once(&self) -> bool {
        let (plan, direct) = (self.job.plan, self.job.direct);
        let (extent, lines) = (self.task.extent, self.lines(self.task.extent));
        let is_contiguous = lines.row == extent.1 || extent.0 == 1;
        direct.finish.is_none()
            && plan.parts.len() == 1
            && self.task.outputs.len() == 1
            && plan.channels == direct.gather.sources
            && is_contiguous
    }

    fn lines(&self, extent: (usize, usize)) -> Lines {
        let plan = self.job.plan;
        plan.lines(plan.padded(self.job.direct.gather, (0, 0)).pitch, extent.0, extent.1)
    }

    /// Pixels of a part in the band, in rows and columns.
    fn extent(&self, part: usize) -> (usize, usize) {
        let (part, gather, task) = (&self.job.plan.parts[part], self.job.direct.gather, &self.task);
        let rest = |axis: &Axis, phase: usize, first: usize| axis.phases[phase].count.saturating_sub(first);
        let rows = rest(&gather.rows, part.row_phase, task.first.0).min(task.extent.0);
        let columns = rest(&gather.columns, part.column_phase, task.first.1).min(task.extent.1);
        (rows, columns)
    }

    fn products(&self, part: usize, channels: &Range<usize>) -> Products<'a> {
        let (plan, gather) = (self.job.plan, self.job.direct.gather);
        let (extent, taps) = (self.extent(part), plan.parts[part].kernel.len());
        let lines = self.lines((extent.0.max(1), extent.1.max(1)));
        let vectors = match plan.form {
            _ if extent.0 * extent.1 == 0 => 0,
            Form::Packed => (self.task.outputs.len() * lines.image).div_ceil(plan.unit.lanes),
            Form::Rows | Form::Flat => self.task.outputs.len() * lines.vectors(),
        };
        let (offsets, weights) = &self.job.parts[part];
        let row = gather.sources * taps;
        Products {
            extent,
            lines,
            vectors,
            offsets: &offsets[..channels.len() * taps],
            weights: weights + self.channels.start * row + channels.start * taps,
            row,
            is_first: channels.start == 0,
            is_last: channels.end == gather.sources,
        }
    }

    fn copy(&mut self, channels: &Range<usize>) {
        let (plan, direct) = (self.job.plan, self.job.direct);
        let gather = direct.gather;
        let padded = plan.padded(gather, self.task.first);
        let stride = plan.channels * padded.channel(gather);
        let plane = gather.source_plane();
        for image in 0..self.task.outputs.len() {
            let place = ((self.task.image + image) * gather.groups + self.group) * gather.sources + channels.start;
            let source = &direct.source[place * plane..][..channels.len() * plane];
            let to = &mut self.scratch.source[image * stride..(image + 1) * stride];
            self.job.level.run(Copy { gather, padded, source, to });
        }
    }

    /// Elements of the padded source from one image to the next.
    fn image_stride(&self) -> usize {
        let (plan, gather) = (self.job.plan, self.job.direct.gather);
        plan.channels * plan.padded(gather, (0, 0)).channel(gather)
    }

    /// Packs the sources of all pixels.
    fn pack(&mut self, products: &Products<'_>) {
        let (unit, image) = (self.job.plan.unit, self.image_stride());
        let (rows, columns) = products.extent;
        let (pixels, terms) = (self.task.outputs.len() * rows * columns, products.offsets.len());
        let width = unit.lanes * unit.vectors;
        for (i, chunk) in (0..pixels).step_by(width).enumerate() {
            let panel = &mut self.scratch.panels[i * terms * width..];
            let mut runs = Vec::with_capacity(width);
            let mut at = chunk;
            while at < pixels.min(chunk + width) {
                let (line, column) = (at / columns, at % columns);
                let len = (columns - column).min(chunk + width - at);
                let from = line / rows * image + line % rows * products.lines.pitch() + column;
                runs.push(Run { from, to: at - chunk, len });
                at += len;
            }
            let source = &*self.scratch.source;
            self.job.level.run(Pack { source, offsets: products.offsets, runs: &runs, width, panel });
        }
    }

    /// Adds the products of a block of channels to the sums.
    fn multiply(&mut self, part: usize, products: &Products<'_>) {
        let (plan, direct, level) = (self.job.plan, self.job.direct, self.job.level);
        let (unit, is_packed) = (plan.unit, plan.form == Form::Packed);
        let (images, writes) = (self.image_stride(), self.is_written_at_once());
        let (results, terms) = (self.channels.len(), products.offsets.len());
        let width = unit.lanes * unit.vectors;
        let part_len = plan.sums(direct.gather);
        let sums = &mut self.scratch.sums[part * direct.gather.results * part_len..];
        let mut sums = Block::new(sums, results, part_len, part_len);
        let own = self.channels.start - self.task.channels.start;
        let pixels = products.extent.0 * products.extent.1;
        let mut output = self.task.outputs[0].part(own..own + results, 0..if writes { pixels } else { 0 });
        for rows in even(results, unit.rows) {
            let mut starts = [0; MAX_ROWS];
            for (start, row) in starts.iter_mut().zip(rows.clone()) {
                *start = products.weights + row * products.row;
            }
            let start = match direct.bias {
                _ if !products.is_first => Start::Output,
                Some(bias) => Start::Rows(&bias[self.channels.start + rows.start..][..rows.len()]),
                None => Start::Zero,
            };
            let a = Operand { data: direct.weights, offsets: Offsets::Step(1) };
            for vectors in chunks(products.vectors, unit.vectors, is_packed) {
                let mut columns = [0; MAX_VECTORS];
                for (column, vector) in columns.iter_mut().zip(vectors.clone()) {
                    *column = if is_packed {
                        vector % unit.vectors * unit.lanes
                    } else {
                        let of_image = products.lines.vectors();
                        vector / of_image * images + products.lines.start(vector % of_image)
                    };
                }
                let b = if is_packed {
                    let panel = vectors.start / unit.vectors * terms * width;
                    Operand { data: &self.scratch.panels[panel..], offsets: Offsets::Step(width) }
                } else {
                    Operand { data: self.scratch.source, offsets: Offsets::Table(products.offsets) }
                };
                let part = if writes {
                    let end = (vectors.end * unit.lanes).min(pixels);
                    output.part(rows.clone(), vectors.start * unit.lanes..end)
                } else {
                    sums.part(rows.clone(), vectors.start * unit.lanes..vectors.end * unit.lanes)
                };
                let relu = direct.relu && products.is_last;
                let (rows, columns) = (&starts[..rows.len()], &columns[..vectors.len()]);
                tile(level, &Sums { a, rows, b, columns, terms, start, relu }, part);
            }
        }
    }

    /// Writes the sums of all parts to the output.
    fn write(&mut self) {
        let (plan, direct, level) = (self.job.plan, self.job.direct, self.job.level);
        let gather = direct.gather;
        let all = gather.groups * gather.results;
        let part = plan.sums(gather);
        let of_parts = gather.results * part;
        let phases = gather.columns.phases.len();
        let extents: Vec<_> = (0..plan.parts.len()).map(|part| self.extent(part)).collect();
        let lines: Vec<_> = extents.iter().map(|extent| self.lines((extent.0.max(1), extent.1.max(1)))).collect();
        for (row, channel) in self.channels.clone().enumerate() {
            for image in 0..self.task.outputs.len() {
                let place = ((self.task.image + image) * all + channel) * gather.result_plane() + self.task.place;
                let output = self.task.outputs[image].row(channel - self.task.channels.start);
                let pixels = &mut self.scratch.pixels[..output.len()];
                let to = if direct.finish.is_some() { &mut *pixels } else { &mut *output };
                for (phase, row_phase) in gather.rows.phases.iter().enumerate() {
                    for i in 0..extents[phase * phases].0 {
                        let to =
                            &mut to[(i * gather.rows.stride + row_phase.first) * self.task.wide..][..self.task.wide];
                        let from = |column: usize| {
                            let part_of = phase * phases + column;
                            let begin =
                                part_of * of_parts + row * part + image * lines[part_of].image + i * lines[part_of].row;
                            &self.scratch.sums[begin..][..extents[part_of].1]
                        };
                        match phases {
                            1 => level.run(Line { from: from(0), to }),
                            2 => interleave(from(0), from(1), to),
                            _ => {
                                for (column, phase) in gather.columns.phases.iter().enumerate() {
                                    let places = to[phase.first..].iter_mut().step_by(gather.columns.stride);
                                    places.zip(from(column)).for_each(|(to, from)| *to = *from);
                                }
                            }
                        }
                    }
                }
                if let Some(finish) = direct.finish {
                    finish(place, pixels, output);
                }
            }
        }
    }
}

/// Two phases of a row, in turn.
#[inline(always)]
pub(super) fn interleave(even: &[f32], odd: &[f32], to: &mut [f32]) {
    for ((to, even), odd) in to.chunks_exact_mut(2).zip(even).zip(odd) {
        to[0] = *even;
        to[1] = *odd;
    }
    if let (true, Some(last)) = (to.len() % 2 == 1, to.last_mut()) {
        *last = even[even.len() - 1];
    }
}

/// Copies a row.
struct Line<'a> {
    from: &'a [f32],
    to: &'a mut [f32],
}

impl Kernel for Line<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        copy(simd, self.from, self.to);
    }
}

/// Parts of a range, as even as can be, of so many at most.
pub(super) fn even(len: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = len.div_ceil(most);
    (0..parts).map(move |i| i * len / parts..(i + 1) * len / parts)
}

/// Vectors of a tile each: as even as can be, or whole tiles but the last.
fn chunks(vectors: usize, most: usize, are_whole: bool) -> impl Iterator<Item = Range<usize>> {
    let parts = vectors.div_ceil(most);
    let at = move |i: usize| if are_whole { (i * most).min(vectors) } else { i * vectors / parts };
    (0..parts).map(move |i| at(i)..at(i + 1))
}

/// Pixels that lie side by side in the padded source.
struct Run {
    from: usize,
    to: usize,
    len: usize,
}

/// Packs a panel: for each tap, the sources of some pixels.
struct Pack<'a> {
    source: &'a [f32],
    offsets: &'a [u32],
    runs: &'a [Run],
    width: usize,
    panel: &'a mut [f32],
}

impl Kernel for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Pack { source, offsets, runs, width, panel } = self;
        for (term, &offset) in offsets.iter().enumerate() {
            let source = &source[offset as usize..];
            for run in runs {
                // Whole vectors: what is too much is written again by the next run, or belongs to no pixel.
                for at in (0..run.len).step_by(S::LANES) {
                    let to = &mut panel[term * width + run.to + at..];
                    simd.store(to, simd.load(&source[run.from + at..]));
                }
            }
        }
    }
}
