//! How Winograd products are divided, and where they are quicker.

use super::gather::{Axis, Gather};
use super::plan::{LINE, Unit};
use super::transforms::{MAX_TILES, POINTS, TILE};

/// What lanes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lanes {
    /// Tiles of one image, in rows that run on through the padded image.
    Tiles,
    Images,
}

/// Elements of the transformed patches of a block.
const MOST_PATCHES: usize = 600 << 10;
/// Tiles of products, of channels of the result, that are made at a time.
const PRODUCTS: usize = 4;
/// Channels whose patches are copied at a time.
pub(super) const CHANNELS: usize = 8;
/// Elements of the transformed weights.
const MOST_WEIGHTS: usize = 2 << 20;
/// Cycles that it takes to copy and transform a vector of a channel, or to transform and write it.
const TRANSFORM: f64 = 600.0;
/// Fewest vectors for which weights are transformed.
const LEAST_VECTORS: usize = 2;
/// Fewest channels on each side.
const LEAST_CHANNELS: usize = 16;
/// How the work is divided.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) unit: Unit,
    pub(super) lanes: Lanes,
    /// Rows and columns of tiles of an image.
    pub(super) tiles: (usize, usize),
    /// Rows and columns of tiles of a block; a band is as many rows.
    pub(super) block: (usize, usize),
    /// Channels of the result whose weights are transformed at a time.
    pub(super) results: usize,
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
        let vectors = by_tiles.min(images);
        let results = (MOST_WEIGHTS / (POINTS * gather.sources)).clamp(1, gather.results);
        let results = gather.results.div_ceil(gather.results.div_ceil(results));
        let plan = Plan { unit, lanes, tiles, block, results };
        let is_quicker = plan.cycles(gather, vectors) < direct_cycles(gather, unit);
        (vectors >= LEAST_VECTORS && is_quicker).then_some(plan)
    }

    /// About how long it takes, in cycles of two products of vectors each.
    fn cycles(&self, gather: &Gather, vectors: usize) -> f64 {
        let (sources, results) = (gather.sources as f64, gather.results as f64);
        let products = POINTS as f64 * sources * results;
        let per_vector = products / 2.0 * 1.1 + (sources + results) * TRANSFORM;
        let weights = products * (8.0 / self.unit.lanes as f64 + 0.5);
        vectors as f64 * per_vector + weights
    }

    /// Elements of the copied source from one row to the next: tiles, or pixels.
    pub(super) fn pitch(&self) -> usize {
        let wide = self.block.1;
        if self.lanes == Lanes::Tiles { wide + 1 } else { TILE * wide + 2 }
    }

    /// Channels of the result whose products are made at a time.
    pub(super) fn chunk(&self) -> usize {
        PRODUCTS * self.unit.rows
    }

    pub(super) fn columns(&self) -> usize {
        let (high, wide) = self.block;
        let vectors = match self.lanes {
            Lanes::Tiles => ((high - 1) * (wide + 1) + wide).div_ceil(self.unit.lanes),
            Lanes::Images => high * wide,
        };
        vectors * self.unit.lanes
    }

    /// Elements from one point to the next, in patches, products and weights.
    pub(super) fn points(&self, gather: &Gather) -> [usize; 3] {
        let columns = self.columns();
        // A line more, so that points do not lie in the same places of a cache.
        [gather.sources * columns, self.chunk() * columns, self.results * gather.sources]
            .map(|len| len.next_multiple_of(LINE) + LINE)
    }

    /// Elements of a channel of the copied patches.
    pub(super) fn channel(&self) -> usize {
        let (high, wide) = self.block;
        match self.lanes {
            Lanes::Tiles => TILE * TILE * (high + 1) * (wide + 1),
            Lanes::Images => (TILE * high + 2) * (TILE * wide + 2) * self.unit.lanes,
        }
    }

    /// Elements of the copied patches, the products, and the pixels of a channel.
    pub(super) fn lengths(&self, gather: &Gather) -> [usize; 3] {
        let products = self.points(gather)[1];
        let pixels = (self.columns() + 1) * TILE * TILE;
        let source = CHANNELS * self.channel() + self.unit.lanes;
        [source, POINTS * products, pixels].map(|len| len.next_multiple_of(LINE))
    }

    /// Elements of the scratch of a thread.
    pub(super) fn own(&self, gather: &Gather) -> usize {
        self.lengths(gather).iter().sum::<usize>() + LINE
    }

    /// Elements of the transformed patches of a block.
    pub(super) fn patches(&self, gather: &Gather) -> usize {
        POINTS * self.points(gather)[0]
    }

    /// Elements of scratch for each thread: there are as many blocks at a time.
    pub(super) fn scratch(&self, gather: &Gather) -> usize {
        self.own(gather) + self.patches(gather) + LINE
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
    vectors * (9 * gather.sources * gather.results) as f64 / 2.0 * 1.2
}
