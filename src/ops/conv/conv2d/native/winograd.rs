//! Convolutions of 3 by 3 with stride 1 as Winograd products F(4x4, 3x3): patches of the source and kernels are transformed to 36
//! points, at each of which channels are multiplied by a quarter of the products that pixels would take.
//!
//! Lanes of vectors are tiles side by side, or where images are small, one tile of as many images. A task is some rows of tiles, in
//! blocks of some vectors; of the products of a block only as many rows exist at a time as stay in the second cache.

use std::ops::Range;

use super::band::even;
use super::direct::{Finish, aligned};
use super::gather::{Axis, Gather};
use super::plan::{LINE, Unit};
use super::transforms::{Folds, Kernels, MAX_TILES, PATCH, POINTS, Patches, TILE, Tiles};
use crate::native::{Block, Cores, Level, MAX_ROWS, MAX_VECTORS, Offsets, Operand, Start, Sums, tile, transpose};

/// What lanes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lanes {
    /// Tiles of one image, in rows that run on through the padded image.
    Tiles,
    Images,
}

/// Elements of the transformed patches of a block.
const MOST_PATCHES: usize = 192 << 10;
/// Channels of the result whose products are made at a time.
const RESULTS: usize = 40;
/// Channels whose patches are copied at a time.
const CHANNELS: usize = 8;
/// Elements of the transformed weights.
const MOST_WEIGHTS: usize = 4 << 20;
/// Fewest channels on each side.
const LEAST_CHANNELS: usize = 16;
/// Rows of the weights that are transformed together.
const WEIGHT_ROWS: usize = 8;

/// How the work is divided.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    unit: Unit,
    lanes: Lanes,
    /// Rows and columns of tiles of an image.
    tiles: (usize, usize),
    /// Rows and columns of tiles of a block; a task is as many rows.
    block: (usize, usize),
    /// Channels of the result whose weights are transformed at a time.
    results: usize,
}

impl Plan {
    /// Where it is quicker than products of pixels, by the vectors that each takes.
    pub(super) fn new(gather: &Gather, unit: Unit) -> Option<Self> {
        let (rows, columns) = (&gather.rows, &gather.columns);
        let fits = |axis: &Axis| axis.step == 1 && axis.stride == 1 && is_three(axis) && (-2..=0).contains(&axis.least);
        let channels = gather.sources.min(gather.results);
        if !fits(rows) || !fits(columns) || gather.groups != 1 || channels < LEAST_CHANNELS {
            return None;
        }
        let tiles = (rows.result.div_ceil(TILE), columns.result.div_ceil(TILE));
        let most = (MOST_PATCHES / (POINTS * gather.sources)).clamp(2 * unit.lanes, MAX_TILES) / unit.lanes;
        let images = gather.samples.div_ceil(unit.lanes) * tiles.0 * tiles.1;
        let wide = tiles.1.min(most * unit.lanes);
        let wide = tiles.1.div_ceil(tiles.1.div_ceil(wide));
        let flat = |high: usize| ((high - 1) * (wide + 1) + wide).div_ceil(unit.lanes);
        let high = if wide < tiles.1 { 1 } else { (1..=tiles.0).rev().find(|&high| flat(high) <= most).unwrap_or(1) };
        let high = tiles.0.div_ceil(tiles.0.div_ceil(high));
        let by_tiles = gather.samples * tiles.0.div_ceil(high) * tiles.1.div_ceil(wide) * flat(high);
        let (lanes, block) = if by_tiles <= images {
            (Lanes::Tiles, (high, wide))
        } else {
            let wide = tiles.1.div_ceil(tiles.1.div_ceil(most));
            let high = if wide < tiles.1 { 1 } else { (most / wide).clamp(1, tiles.0) };
            (Lanes::Images, (high, wide))
        };
        let results = (MOST_WEIGHTS / (POINTS * gather.sources)).clamp(RESULTS, gather.results.max(RESULTS));
        let results = gather.results.div_ceil(gather.results.div_ceil(results));
        let plan = Plan { unit, lanes, tiles, block, results };
        (plan.cycles(gather, by_tiles.min(images)) < direct_cycles(gather, unit)).then_some(plan)
    }

    /// About how long it takes, in the time of two products of vectors.
    fn cycles(&self, gather: &Gather, vectors: usize) -> f64 {
        let (sources, results) = (gather.sources as f64, gather.results as f64);
        let points = POINTS as f64;
        let passes = gather.results.div_ceil(self.results) as f64;
        let patches = passes * sources * 4.0 * points;
        let per_vector = points * sources * results / 2.0 * 1.2 + patches + results * 8.0 * points;
        vectors as f64 * per_vector + sources * results * 8.0 * points / self.unit.lanes as f64
    }

    /// Elements of the copied source from one row to the next: tiles, or pixels.
    fn pitch(&self) -> usize {
        let wide = self.block.1;
        if self.lanes == Lanes::Tiles { wide + 1 } else { TILE * wide + 2 }
    }

    fn columns(&self) -> usize {
        let (high, wide) = self.block;
        let vectors = match self.lanes {
            Lanes::Tiles => ((high - 1) * (wide + 1) + wide).div_ceil(self.unit.lanes),
            Lanes::Images => high * wide,
        };
        vectors * self.unit.lanes
    }

    /// Elements from one point to the next, in patches, products and weights.
    fn points(&self, gather: &Gather) -> [usize; 3] {
        let columns = self.columns();
        // A line more, so that points do not lie in the same places of a cache.
        [gather.sources * columns, RESULTS * columns, self.results * gather.sources]
            .map(|len| len.next_multiple_of(LINE) + LINE)
    }

    /// Elements of a channel of the copied patches.
    fn channel(&self) -> usize {
        let (high, wide) = self.block;
        match self.lanes {
            Lanes::Tiles => TILE * TILE * (high + 1) * (wide + 1),
            Lanes::Images => (TILE * high + 2) * (TILE * wide + 2) * self.unit.lanes,
        }
    }

    /// Elements of the copied patches, the transformed patches, the products, and the pixels of a channel.
    fn lengths(&self, gather: &Gather) -> [usize; 4] {
        let [patches, products, _] = self.points(gather);
        let pixels = (self.columns() + 1) * TILE * TILE;
        let source = CHANNELS * self.channel() + self.unit.lanes;
        [source, POINTS * patches, POINTS * products, pixels].map(|len| len.next_multiple_of(LINE))
    }

    /// Elements of the scratch of a thread.
    pub(super) fn scratch(&self, gather: &Gather) -> usize {
        self.lengths(gather).iter().sum::<usize>() + LINE
    }

    /// Elements of the transformed weights.
    pub(super) fn weights(&self, gather: &Gather) -> usize {
        POINTS * self.points(gather)[2] + LINE
    }
}

/// Whether three neighbours are read.
fn is_three(axis: &Axis) -> bool {
    let taps = &axis.phases[0].taps;
    taps.len() == 3 && axis.reach == 2 && taps.iter().all(|tap| tap.fold == 0)
}

/// About how long the direct form takes, likewise.
fn direct_cycles(gather: &Gather, unit: Unit) -> f64 {
    let vectors = (gather.samples * gather.result_plane()) as f64 / unit.lanes as f64;
    vectors * (9 * gather.sources * gather.results) as f64 / 2.0 * 1.1
}

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
struct Task<'a> {
    images: Range<usize>,
    rows: Range<usize>,
    /// Rows are planes, columns pixels.
    output: Block<'a>,
}

impl Winograd<'_> {
    pub(super) fn run(&self, cores: &Cores, plan: &Plan, scratch: &mut [f32], weights: &mut [f32], output: &mut [f32]) {
        let gather = self.gather;
        let job = Job::new(self, plan, cores.level());
        let point = plan.points(gather)[2];
        let (weights, _) = aligned(weights, POINTS * point);
        let mut tasks = job.tasks(output);
        let mut own: Vec<_> = scratch.chunks_exact_mut(plan.scratch(gather)).take(cores.threads()).collect();
        for first in (0..gather.results).step_by(plan.results) {
            let results = first..gather.results.min(first + plan.results);
            self.transform(cores, &results, weights, point);
            let weights = &*weights;
            cores.each_with(&mut tasks, &mut own, |scratch, task| job.task(scratch, task, &results, weights));
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
struct Job<'a> {
    winograd: &'a Winograd<'a>,
    plan: &'a Plan,
    level: Level,
    /// Where the elements of a patch lie.
    offsets: Vec<u32>,
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

    fn tasks<'o>(&self, output: &'o mut [f32]) -> Vec<Task<'o>> {
        let (gather, plan) = (self.winograd.gather, self.plan);
        let images = if plan.lanes == Lanes::Images { plan.unit.lanes } else { 1 };
        let plane = gather.result_plane();
        let mut tasks = Vec::new();
        for (i, output) in output.chunks_mut(images * gather.results * plane).enumerate() {
            let planes = output.len() / plane;
            let images = i * images..i * images + planes / gather.results;
            let bands =
                Block::new(output, planes, plane, plane).grid(planes, plan.block.0 * TILE * gather.columns.result);
            for (band, output) in bands.into_iter().enumerate() {
                let rows = band * plan.block.0..plan.tiles.0.min((band + 1) * plan.block.0);
                tasks.push(Task { images: images.clone(), rows, output });
            }
        }
        tasks
    }

    fn task(&self, scratch: &mut [f32], task: &mut Task<'_>, results: &Range<usize>, weights: &[f32]) {
        let (gather, plan) = (self.winograd.gather, self.plan);
        let [source, patches, products, pixels] = plan.lengths(gather);
        let (source, rest) = aligned(scratch, source);
        let (patches, rest) = rest.split_at_mut(patches);
        let (products, rest) = rest.split_at_mut(products);
        let pixels = &mut rest[..pixels];
        for column in (0..plan.tiles.1).step_by(plan.block.1) {
            let columns = column..plan.tiles.1.min(column + plan.block.1);
            let mut part = Part { job: self, task, columns };
            part.patches(source, patches);
            let (places, runs) = part.places();
            for own in even(results.len(), RESULTS) {
                part.multiply(&own, weights, patches, products);
                let channels = results.start + own.start..results.start + own.end;
                part.write(&channels, &places, &runs, products, pixels);
            }
        }
    }
}

/// Tiles of a row that lie side by side, and where their pixels begin.
struct Run {
    image: usize,
    /// The row of tiles, counted within the task.
    row: usize,
    pixels: usize,
}

/// Some columns of the tiles of a task.
struct Part<'a, 't, 'o> {
    job: &'a Job<'a>,
    task: &'t mut Task<'o>,
    columns: Range<usize>,
}

impl Part<'_, '_, '_> {
    /// Where each vector begins in the copied source.
    fn starts(&self) -> Vec<usize> {
        let (lanes, pitch) = (self.job.plan.unit.lanes, self.job.plan.pitch());
        let (high, wide) = (self.task.rows.len(), self.columns.len());
        match self.job.plan.lanes {
            Lanes::Tiles => (0..((high - 1) * pitch + wide).div_ceil(lanes)).map(|vector| vector * lanes).collect(),
            Lanes::Images => {
                let tiles = (0..high).flat_map(|row| (0..wide).map(move |column| (row, column)));
                tiles.map(|(row, column)| TILE * (row * pitch + column) * lanes).collect()
            }
        }
    }

    /// Transforms the patches of all channels.
    fn patches(&self, source: &mut [f32], to: &mut [f32]) {
        let (job, plan, gather) = (self.job, self.job.plan, self.job.winograd.gather);
        let (starts, columns, point) = (self.starts(), plan.columns(), plan.points(gather)[0]);
        for first in (0..gather.sources).step_by(CHANNELS) {
            let channels = first..gather.sources.min(first + CHANNELS);
            match plan.lanes {
                Lanes::Tiles => self.fold(&channels, source),
                Lanes::Images => self.interleave(&channels, source),
            }
            job.level.run(Patches {
                source,
                starts: &starts,
                offsets: &job.offsets,
                channel: plan.channel(),
                channels: channels.len(),
                point,
                columns,
                to: &mut to[first * columns..],
            });
        }
    }

    /// The first row and column of the patches, which may be in the padding.
    fn corner(&self) -> (isize, isize) {
        let gather = self.job.winograd.gather;
        let first = |axis: &Axis, tile: usize| (tile * TILE) as isize + axis.least;
        (first(&gather.rows, self.task.rows.start), first(&gather.columns, self.columns.start))
    }

    /// Copies channels of an image with the zeros around it, in planes of every fourth row and column.
    fn fold(&self, channels: &Range<usize>, to: &mut [f32]) {
        let (job, plan, gather) = (self.job, self.job.plan, self.job.winograd.gather);
        let plane = gather.source_plane();
        let rows = TILE * self.task.rows.len() + 2;
        for (channel, to) in channels.clone().zip(to.chunks_exact_mut(plan.channel())) {
            let begin = (self.task.images.start * gather.sources + channel) * plane;
            let source = &job.winograd.source[begin..][..plane];
            let (width, corner, pitch, high) = (gather.columns.source, self.corner(), plan.pitch(), plan.block.0 + 1);
            job.level.run(Folds { source, width, corner, rows, pitch, high, to });
        }
    }

    /// Copies channels of the images with the zeros around them, the images of each pixel side by side.
    fn interleave(&self, channels: &Range<usize>, to: &mut [f32]) {
        let (job, plan, gather) = (self.job, self.job.plan, self.job.winograd.gather);
        let (lanes, plane, width) = (plan.unit.lanes, gather.source_plane(), gather.columns.source);
        let line = self.job.plan.pitch() * lanes;
        let (top, left) = self.corner();
        let begin = (-left).max(0) as usize;
        let from = (left + begin as isize) as usize;
        let len = (TILE * self.columns.len() + 2 - begin).min(width - from);
        for (channel, to) in channels.clone().zip(to.chunks_exact_mut(plan.channel())) {
            for (y, to) in to.chunks_exact_mut(line).take(TILE * self.task.rows.len() + 2).enumerate() {
                let row = top + y as isize;
                if row < 0 || row >= gather.rows.source as isize {
                    to.fill(0.0);
                    continue;
                }
                to[..begin * lanes].fill(0.0);
                to[(begin + len) * lanes..].fill(0.0);
                let at = (self.task.images.start * gather.sources + channel) * plane + row as usize * width + from;
                let (images, stride) = (self.task.images.len(), gather.sources * plane);
                transpose(job.level, images, len, &job.winograd.source[at..], stride, &mut to[begin * lanes..], lanes);
            }
        }
    }

    /// Multiplies channels of the result, counted within those whose weights are there.
    fn multiply(&self, results: &Range<usize>, weights: &[f32], patches: &[f32], products: &mut [f32]) {
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
    fn places(&self) -> (Vec<(u32, u32)>, Vec<Run>) {
        let (plan, high, wide) = (self.job.plan, self.task.rows.len(), self.columns.len());
        let images = self.task.images.len();
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

    /// Transforms the products of some channels into pixels, and writes these.
    fn write(
        &mut self,
        channels: &Range<usize>,
        places: &[(u32, u32)],
        runs: &[Run],
        products: &[f32],
        pixels: &mut [f32],
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
                let plane = (self.task.images.start + run.image) * gather.results + channel;
                let output = self.task.output.row(run.image * gather.results + channel);
                let top = (self.task.rows.start + run.row) * TILE;
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
