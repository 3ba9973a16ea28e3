//! Convolutions of 3 by 3 with stride 1 as Winograd products F(4x4, 3x3): patches of the source and kernels are transformed to 36
//! points, at each of which channels are multiplied by a quarter of the products that pixels would take.
//!
//! Lanes of vectors are tiles side by side, or where images are small, one tile of as many images. Some rows of tiles are a band,
//! divided into blocks of some vectors. There are as many blocks at a time as threads, which first share the channels of the
//! patches, and then those of the result; of the products only so many exist at a time as stay in the second cache.

use std::ops::Range;

use super::direct::{Finish, aligned};
use super::gather::Gather;
use super::transforms::{Kernels, PATCH, POINTS, TILE};
use super::winograd_block::Part;
use super::winograd_plan::{CHANNELS, Lanes, Plan};
use crate::native::{Block, Cores, Level};

/// Rows of the weights that are transformed together.
const WEIGHT_ROWS: usize = 8;

/// A convolution and its operands.
pub(super) struct Winograd<'a> {
    pub(super) gather: &'a Gather,
    pub(super) source: &'a [f32],
    /// As they are: `[results][sources][3][3]`, or for the gradient of input `[sources][results][3][3]`.
    pub(super) weights: &'a [f32],
    pub(super) is_backward: bool,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) relu: bool,
    pub(super) finish: Finish<'a>,
}

/// Rows of tiles of an image, or of as many as there are lanes.
struct Band<'a> {
    images: Range<usize>,
    rows: Range<usize>,
    /// For each image, a row for each channel and a column for each pixel.
    outputs: Vec<Block<'a>>,
}

impl Winograd<'_> {
    pub(super) fn run(&self, cores: &Cores, plan: &Plan, scratch: &mut [f32], weights: &mut [f32], output: &mut [f32]) {
        let (gather, threads) = (self.gather, cores.threads());
        let job = Job::new(self, plan, cores.level());
        let (weights, _) = aligned(weights, POINTS * plan.points(gather)[2]);
        let (patches, own) = aligned(scratch, threads * plan.patches(gather));
        let mut own: Vec<_> = own.chunks_exact_mut(plan.own(gather)).take(threads).collect();
        let mut bands = job.bands(output);
        // What is there already is not computed anew for other channels of the result.
        let is_one = bands.len() <= threads && plan.block.1 == plan.tiles.1;
        for first in (0..gather.results).step_by(plan.results) {
            let results = first..gather.results.min(first + plan.results);
            self.transform(cores, &results, weights, plan.points(gather)[2]);
            for column in (0..plan.tiles.1).step_by(plan.block.1) {
                let columns = column..plan.tiles.1.min(column + plan.block.1);
                for bands in bands.chunks_mut(threads) {
                    if first == 0 || !is_one {
                        job.patches(cores, bands, &columns, &mut own, patches);
                    }
                    job.results(cores, bands, &columns, &results, &mut own, [weights, patches]);
                }
            }
        }
    }

    /// Transforms the weights of some channels of the result.
    fn transform(&self, cores: &Cores, results: &Range<usize>, weights: &mut [f32], point: usize) {
        let (sources, all) = (self.gather.sources, self.gather.results);
        let strides = if self.is_backward { [9, all * 9] } else { [sources * 9, 9] };
        let block = Block::new(weights, POINTS, results.len() * sources, point);
        let blocks = block.grid(POINTS, WEIGHT_ROWS * sources);
        let mut tasks: Vec<_> = blocks.into_iter().enumerate().collect();
        cores.each(&mut tasks, |_, (i, to)| {
            let first = results.start + *i * WEIGHT_ROWS;
            let results = first..results.end.min(first + WEIGHT_ROWS);
            let (weights, is_flipped) = (self.weights, self.is_backward);
            cores.run(Kernels { weights, strides, is_flipped, results, sources, to });
        });
    }
}

/// What tasks share.
pub(super) struct Job<'a> {
    pub(super) winograd: &'a Winograd<'a>,
    pub(super) plan: &'a Plan,
    pub(super) level: Level,
    /// Where the elements of a patch lie.
    pub(super) offsets: Vec<u32>,
}

impl<'a> Job<'a> {
    fn new(winograd: &'a Winograd<'a>, plan: &'a Plan, level: Level) -> Self {
        let pitch = plan.pitch();
        let place = |i: usize| match (plan.lanes, i / PATCH, i % PATCH) {
            (Lanes::Tiles, y, x) => {
                let plane = (plan.block.0 + 1) * pitch;
                (y % TILE * TILE + x % TILE) * plane + y / TILE * pitch + x / TILE
            }
            (Lanes::Images, y, x) => (y * pitch + x) * plan.unit.lanes,
        };
        let offsets = (0..POINTS).map(|i| place(i) as u32).collect();
        Job { winograd, plan, level, offsets }
    }

    fn bands<'o>(&self, output: &'o mut [f32]) -> Vec<Band<'o>> {
        let (gather, plan) = (self.winograd.gather, self.plan);
        let images = if plan.lanes == Lanes::Images { plan.unit.lanes } else { 1 };
        let (plane, pixels) = (gather.result_plane(), plan.block.0 * TILE * gather.columns.result);
        let mut bands = Vec::new();
        for (i, output) in output.chunks_mut(images * gather.results * plane).enumerate() {
            let outputs = output.chunks_exact_mut(gather.results * plane);
            let parts =
                |image| Block::new(image, gather.results, plane, plane).grid(gather.results, pixels).into_iter();
            let mut outputs: Vec<_> = outputs.map(parts).collect();
            let images = i * images..i * images + outputs.len();
            for row in (0..plan.tiles.0).step_by(plan.block.0) {
                let rows = row..plan.tiles.0.min(row + plan.block.0);
                let outputs = outputs.iter_mut().filter_map(Iterator::next).collect();
                bands.push(Band { images: images.clone(), rows, outputs });
            }
        }
        bands
    }

    fn part(&self, band: &Band<'_>, columns: &Range<usize>) -> Part<'_> {
        Part { job: self, images: band.images.clone(), rows: band.rows.clone(), columns: columns.clone() }
    }

    /// Transforms the patches of a block of each band.
    fn patches(
        &self,
        cores: &Cores,
        bands: &[Band<'_>],
        columns: &Range<usize>,
        own: &mut [&mut [f32]],
        patches: &mut [f32],
    ) {
        let (gather, plan) = (self.winograd.gather, self.plan);
        let (sources, width, point) = (gather.sources, plan.columns(), plan.points(gather)[0]);
        let mut tasks = Vec::new();
        for (band, patches) in bands.iter().zip(patches.chunks_exact_mut(plan.patches(gather))) {
            let blocks = Block::new(patches, POINTS, sources * width, point).grid(POINTS, CHANNELS * width);
            tasks.extend(
                blocks.into_iter().enumerate().map(|(i, block)| (self.part(band, columns), i * CHANNELS, block)),
            );
        }
        cores.each_with(&mut tasks, own, |own, (part, first, to)| {
            let (source, _) = aligned(own, plan.lengths(gather)[0]);
            part.patches(&(*first..sources.min(*first + CHANNELS)), source, to);
        });
    }

    /// Computes the channels of the result whose weights are there, of a block of each band.
    fn results(
        &self,
        cores: &Cores,
        bands: &mut [Band<'_>],
        columns: &Range<usize>,
        results: &Range<usize>,
        own: &mut [&mut [f32]],
        [weights, patches]: [&[f32]; 2],
    ) {
        let (gather, plan) = (self.winograd.gather, self.plan);
        let [source, products, pixels] = plan.lengths(gather);
        let parts: Vec<_> = bands.iter().map(|band| self.part(band, columns)).collect();
        let places: Vec<_> = parts.iter().map(Part::places).collect();
        let mut tasks = Vec::new();
        for (i, band) in bands.iter_mut().enumerate() {
            let mut outputs = Vec::new();
            for block in &mut band.outputs {
                let pixels = block.columns();
                outputs.push(block.part(results.clone(), 0..pixels).grid(plan.chunk(), pixels).into_iter());
            }
            for first in (0..results.len()).step_by(plan.chunk()) {
                let channels = first..results.len().min(first + plan.chunk());
                let outputs: Vec<_> = outputs.iter_mut().filter_map(Iterator::next).collect();
                tasks.push((i, channels, outputs));
            }
        }
        cores.each_with(&mut tasks, own, |own, (i, channels, outputs)| {
            let (_, rest) = aligned(own, source);
            let (products, rest) = rest.split_at_mut(products);
            let (part, (places, runs)) = (&parts[*i], &places[*i]);
            let patches = &patches[*i * plan.patches(gather)..][..plan.patches(gather)];
            part.multiply(channels, weights, patches, products);
            let channels = results.start + channels.start..results.start + channels.end;
            part.write(&channels, places, runs, products, &mut rest[..pixels], outputs);
        });
    }
}
