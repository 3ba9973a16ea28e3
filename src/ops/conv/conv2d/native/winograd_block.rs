//! What Winograd products do with a block of tiles.

use std::ops::Range;

use super::band::even;
use super::gather::Axis;
use super::transforms::{Folds, Lines, POINTS, Patches, TILE, Tiles};
use super::winograd::Job;
use super::winograd_plan::Lanes;
use crate::native::{Block, MAX_ROWS, MAX_VECTORS, Offsets, Operand, Start, Sums, tile};

/// Tiles of a row that lie side by side, and where their pixels begin.
pub(super) struct Run {
    image: usize,
    /// The row of tiles, counted within the band.
    row: usize,
    pixels: usize,
}

/// A block: some columns of the tiles of a band.
pub(super) struct Part<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) images: Range<usize>,
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
}

impl Part<'_> {
    /// Where each vector begins in the copied source.
    fn starts(&self) -> Vec<usize> {
        let (lanes, pitch) = (self.job.plan.unit.lanes, self.job.plan.pitch());
        let (high, wide) = (self.rows.len(), self.columns.len());
        match self.job.plan.lanes {
            Lanes::Tiles => (0..((high - 1) * pitch + wide).div_ceil(lanes)).map(|vector| vector * lanes).collect(),
            Lanes::Images => {
                let tiles = (0..high).flat_map(|row| (0..wide).map(move |column| (row, column)));
                tiles.map(|(row, column)| TILE * (row * pitch + column) * lanes).collect()
            }
        }
    }

    /// Transforms the patches of some channels; `to` has a row for each point.
    pub(super) fn patches(&self, channels: &Range<usize>, source: &mut [f32], to: &mut Block<'_>) {
        let (job, plan) = (self.job, self.job.plan);
        match plan.lanes {
            Lanes::Tiles => self.fold(channels, source),
            Lanes::Images => self.interleave(channels, source),
        }
        job.level.run(Patches {
            source,
            starts: &self.starts(),
            offsets: &job.offsets,
            channel: plan.channel(),
            channels: channels.len(),
            columns: plan.columns(),
            to,
        });
    }

    /// The first row and column of the patches, which may be in the padding.
    fn corner(&self) -> (isize, isize) {
        let gather = self.job.winograd.gather;
        let first = |axis: &Axis, tile: usize| (tile * TILE) as isize + axis.least;
        (first(&gather.rows, self.rows.start), first(&gather.columns, self.columns.start))
    }

    /// Copies channels of an image with the zeros around it, in planes of every fourth row and column.
    fn fold(&self, channels: &Range<usize>, to: &mut [f32]) {
        let (job, plan, gather) = (self.job, self.job.plan, self.job.winograd.gather);
        let plane = gather.source_plane();
        let rows = TILE * self.rows.len() + 2;
        for (channel, to) in channels.clone().zip(to.chunks_exact_mut(plan.channel())) {
            let begin = (self.images.start * gather.sources + channel) * plane;
            let source = &job.winograd.source[begin..][..plane];
            let (width, corner, pitch, high) = (gather.columns.source, self.corner(), plan.pitch(), plan.block.0 + 1);
            job.level.run(Folds { source, width, corner, rows, pitch, high, to });
        }
    }

    /// Copies channels of the images with the zeros around them, the images of each pixel side by side.
    fn interleave(&self, channels: &Range<usize>, to: &mut [f32]) {
        let (job, plan, gather) = (self.job, self.job.plan, self.job.winograd.gather);
        let plane = gather.source_plane();
        let (extent, stride) = ((gather.rows.source, gather.columns.source), gather.sources * plane);
        for (channel, to) in channels.clone().zip(to.chunks_exact_mut(plan.channel())) {
            job.level.run(Lines {
                source: &job.winograd.source[(self.images.start * gather.sources + channel) * plane..],
                stride,
                images: self.images.len(),
                extent,
                corner: self.corner(),
                rows: TILE * self.rows.len() + 2,
                columns: plan.pitch(),
                to,
            });
        }
    }

    /// Multiplies channels of the result, counted within those whose weights are there.
    pub(super) fn multiply(&self, results: &Range<usize>, weights: &[f32], patches: &[f32], products: &mut [f32]) {
        let (job, plan, gather) = (self.job, self.job.plan, self.job.winograd.gather);
        let (sources, columns, unit) = (gather.sources, plan.columns(), plan.unit);
        let [patch_point, product_point, weight_point] = plan.points(gather);
        let vectors = self.starts().len();
        for point in 0..POINTS {
            let data = &patches[point * patch_point..][..sources * columns];
            let b = Operand { data, offsets: Offsets::Step(columns) };
            let a = Operand { data: weights, offsets: Offsets::Step(1) };
            let to = &mut products[point * product_point..][..product_point];
            let mut to = Block::new(to, results.len(), vectors * unit.lanes, columns);
            for rows in even(results.len(), unit.rows) {
                let mut starts = [0; MAX_ROWS];
                for (start, row) in starts.iter_mut().zip(rows.clone()) {
                    *start = point * weight_point + (results.start + row) * sources;
                }
                for own in even(vectors, unit.vectors) {
                    let mut begins = [0; MAX_VECTORS];
                    for (begin, vector) in begins.iter_mut().zip(own.clone()) {
                        *begin = vector * unit.lanes;
                    }
                    let to = to.part(rows.clone(), own.start * unit.lanes..own.end * unit.lanes);
                    let (rows, columns) = (&starts[..rows.len()], &begins[..own.len()]);
                    let (start, relu) = (Start::Zero, false);
                    tile(job.level, &Sums { a, rows, b, columns, terms: sources, start, relu }, to);
                }
            }
        }
    }

    /// Where the pixels of each lane of each vector go, with the way from one row to the next, and what they are.
    pub(super) fn places(&self) -> (Vec<(u32, u32)>, Vec<Run>) {
        let (plan, high, wide) = (self.job.plan, self.rows.len(), self.columns.len());
        let images = self.images.len();
        let size = TILE * TILE * wide;
        let place = |run: usize, column: usize| ((run * size + column * TILE) as u32, (TILE * wide) as u32);
        // Lanes that are no tiles go behind all others.
        let nowhere = ((images * high * size) as u32, TILE as u32);
        let runs = (0..images * high).map(|i| Run { image: i / high, row: i % high, pixels: i * size }).collect();
        let lanes = self.starts().len() * plan.unit.lanes;
        let places = (0..lanes).map(|lane| match plan.lanes {
            Lanes::Tiles => {
                let (row, column) = (lane / self.job.plan.pitch(), lane % self.job.plan.pitch());
                if row < high && column < wide { place(row, column) } else { nowhere }
            }
            Lanes::Images => {
                let (tile, image) = (lane / plan.unit.lanes, lane % plan.unit.lanes);
                if image < images { place(image * high + tile / wide, tile % wide) } else { nowhere }
            }
        });
        (places.collect(), runs)
    }

    /// Transforms the products of some channels into pixels, and writes these to a row of the output of their image.
    pub(super) fn write(
        &self,
        channels: &Range<usize>,
        places: &[(u32, u32)],
        runs: &[Run],
        products: &[f32],
        pixels: &mut [f32],
        outputs: &mut [Block<'_>],
    ) {
        let (job, winograd) = (self.job, self.job.winograd);
        let gather = winograd.gather;
        let (high, wide) = (gather.rows.result, gather.columns.result);
        let (point, columns) = (job.plan.points(gather)[1], job.plan.columns());
        let pitch = TILE * self.columns.len();
        let left = self.columns.start * TILE;
        let len = pitch.min(wide - left);
        for (row, channel) in channels.clone().enumerate() {
            let bias = winograd.bias.map_or(0.0, |bias| bias[channel]);
            let (products, relu) = (&products[row * columns..], winograd.relu);
            job.level.run(Tiles { products, point, bias, relu, places, pixels });
            for run in runs {
                let plane = (self.images.start + run.image) * gather.results + channel;
                let output = outputs[run.image].row(row);
                let top = (self.rows.start + run.row) * TILE;
                let lines = TILE.min(high - top);
                // Whole rows lie one after the other.
                let (count, len) = if pitch == wide { (1, lines * wide) } else { (lines, len) };
                for y in 0..count {
                    let values = &mut pixels[run.pixels + y * pitch..][..len];
                    let to = &mut output[(run.row * TILE + y) * wide + left..][..len];
                    match winograd.finish {
                        Some(finish) => finish((plane * high + top + y) * wide + left, values, to),
                        None => to.copy_from_slice(values),
                    }
                }
            }
        }
    }
}
