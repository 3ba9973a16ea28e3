//! The transforms of Winograd products F(4x4, 3x3), for as many tiles at once as a vector has lanes.
#![allow(clippy::needless_range_loop)]

use super::padded::copy;
use crate::native::{Block, Kernel, Simd};

/// Points of a transformed tile.
pub(super) const POINTS: usize = 36;
/// Rows and columns of the patch of a tile.
pub(super) const PATCH: usize = 6;
/// Rows and columns of a tile.
pub(super) const TILE: usize = 4;

/// a + x · b
#[inline(always)]
fn plus<S: Simd>(simd: S, a: S::V, x: f32, b: S::V) -> S::V {
    simd.mul_add(simd.splat(x), b, a)
}

/// A row or column of a patch at the points.
#[inline(always)]
fn patch<S: Simd>(simd: S, d: [S::V; PATCH]) -> [S::V; PATCH] {
    let (even, odd) = (plus(simd, d[4], -4.0, d[2]), plus(simd, d[3], -4.0, d[1]));
    let (far, near) = (plus(simd, d[4], -1.0, d[2]), plus(simd, d[3], -1.0, d[1]));
    [
        plus(simd, plus(simd, d[4], -5.0, d[2]), 4.0, d[0]),
        simd.add(even, odd),
        plus(simd, even, -1.0, odd),
        plus(simd, far, 2.0, near),
        plus(simd, far, -2.0, near),
        plus(simd, plus(simd, d[5], -5.0, d[3]), 4.0, d[1]),
    ]
}

/// A row or column of a kernel at the points.
#[inline(always)]
fn kernel<S: Simd>(simd: S, g: [S::V; 3]) -> [S::V; PATCH] {
    let zero = simd.splat(0.0);
    let ends = plus(simd, zero, -1.0 / 6.0, simd.add(g[0], g[2]));
    let middle = plus(simd, zero, 1.0 / 6.0, g[1]);
    let far = plus(simd, plus(simd, zero, 1.0 / 24.0, g[0]), 1.0 / 6.0, g[2]);
    let near = plus(simd, zero, 1.0 / 12.0, g[1]);
    [
        plus(simd, zero, 0.25, g[0]),
        plus(simd, ends, -1.0, middle),
        simd.add(ends, middle),
        simd.add(far, near),
        plus(simd, far, -1.0, near),
        g[2],
    ]
}

/// A row or column of a tile from the points.
#[inline(always)]
fn tile<S: Simd>(simd: S, m: [S::V; PATCH]) -> [S::V; TILE] {
    let (sum, difference) = (simd.add(m[1], m[2]), plus(simd, m[1], -1.0, m[2]));
    let (far_sum, far_difference) = (simd.add(m[3], m[4]), plus(simd, m[3], -1.0, m[4]));
    [
        simd.add(simd.add(m[0], sum), far_sum),
        plus(simd, difference, 2.0, far_difference),
        plus(simd, sum, 4.0, far_sum),
        simd.add(plus(simd, difference, 8.0, far_difference), m[5]),
    ]
}

/// Longest row of tiles of a block.
pub(super) const MAX_TILES: usize = 96;

/// Copies rows of a channel: those of every fourth row and column are a plane of so many rows.
pub(super) struct Folds<'a> {
    pub(super) source: &'a [f32],
    pub(super) width: usize,
    /// The first row and column, which may be in the padding, and how many rows.
    pub(super) corner: (isize, isize),
    pub(super) rows: usize,
    /// Columns and rows of a plane.
    pub(super) pitch: usize,
    pub(super) high: usize,
    pub(super) to: &'a mut [f32],
}

impl Kernel for Folds<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Folds { width, corner, rows, pitch, high, to, .. } = self;
        let mut line = [0.0; TILE * (MAX_TILES + 1)];
        let line = &mut line[..TILE * pitch];
        let begin = ((-corner.1).max(0) as usize).min(line.len());
        let from = ((corner.1 + begin as isize) as usize).min(width);
        let end = (begin + width.saturating_sub(from)).min(line.len());
        for (y, source) in (0..rows).map(|y| (y, corner.0 + y as isize)) {
            let at = y % TILE * TILE * high * pitch + y / TILE * pitch;
            let to = &mut to[at..];
            if source < 0 || source as usize * width >= self.source.len() {
                (0..TILE).for_each(|fold| to[fold * high * pitch..][..pitch].fill(0.0));
                continue;
            }
            copy(simd, &self.source[source as usize * width + from..][..end - begin], &mut line[begin..end]);
            let (a, to) = to.split_at_mut(high * pitch);
            let (b, to) = to.split_at_mut(high * pitch);
            let (c, d) = to.split_at_mut(high * pitch);
            let (a, b, c, d) = (&mut a[..pitch], &mut b[..pitch], &mut c[..pitch], &mut d[..pitch]);
            for (i, four) in line.chunks_exact(TILE).enumerate() {
                a[i] = four[0];
                b[i] = four[1];
                c[i] = four[2];
                d[i] = four[3];
            }
        }
    }
}

/// Copies rows of a channel of some images, at most as many as a vector has lanes: the images of each pixel lie side by side.
pub(super) struct Lines<'a> {
    /// The first image and what is behind it, elements from one to the next, and how many images.
    pub(super) source: &'a [f32],
    pub(super) stride: usize,
    pub(super) images: usize,
    /// Rows and columns of an image.
    pub(super) extent: (usize, usize),
    /// The first row and column, which may be in the padding, and how many rows.
    pub(super) corner: (isize, isize),
    pub(super) rows: usize,
    /// Columns that are written.
    pub(super) columns: usize,
    pub(super) to: &'a mut [f32],
}

impl Kernel for Lines<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Lines { source, stride, images, extent: (height, width), corner, rows, columns, to } = self;
        let begin = ((-corner.1).max(0) as usize).min(columns);
        let from = ((corner.1 + begin as isize) as usize).min(width);
        let end = (begin + width.saturating_sub(from)).min(columns);
        for (y, to) in to.chunks_mut(columns * S::LANES).take(rows).enumerate() {
            let row = corner.0 + y as isize;
            if row < 0 || row as usize >= height {
                to.fill(0.0);
                continue;
            }
            to[..begin * S::LANES].fill(0.0);
            let source = &source[row as usize * width + from..];
            let mut at = begin;
            while at < end {
                let (source, to) = (&source[at - begin..], &mut to[at * S::LANES..]);
                let is_whole = images == S::LANES
                    && source.len() >= (S::LANES - 1) * stride + S::LANES
                    && to.len() >= S::LANES * S::LANES;
                if is_whole {
                    // What lies behind the row is written too, and then overwritten.
                    simd.transpose(source, stride, to, S::LANES);
                } else {
                    for (column, to) in to.chunks_exact_mut(S::LANES).take((end - at).min(S::LANES)).enumerate() {
                        for (image, to) in to.iter_mut().enumerate().take(images) {
                            *to = source[image * stride + column];
                        }
                    }
                }
                at += S::LANES;
            }
            to[end * S::LANES..].fill(0.0);
        }
    }
}

/// Transforms patches.
pub(super) struct Patches<'a, 'b> {
    pub(super) source: &'a [f32],
    /// Where the patch of each vector begins, in each channel.
    pub(super) starts: &'a [usize],
    /// Where its elements lie behind it.
    pub(super) offsets: &'a [u32],
    /// Elements of the source of a channel, and how many there are.
    pub(super) channel: usize,
    pub(super) channels: usize,
    /// A row for each point; in it, vectors of one channel and then the next, which is so far behind.
    pub(super) to: &'a mut Block<'b>,
    pub(super) columns: usize,
}

impl Kernel for Patches<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Patches { source, starts, offsets, channel, channels, to, columns } = self;
        let offsets: &[u32; POINTS] = offsets.try_into().expect("bug: an offset for each point");
        for c in 0..channels {
            for (vector, start) in starts.iter().enumerate() {
                let source = &source[c * channel + start..];
                let at = c * columns + vector * S::LANES;
                let mut half = [[simd.splat(0.0); PATCH]; PATCH];
                for x in 0..PATCH {
                    let mut d = [simd.splat(0.0); PATCH];
                    for y in 0..PATCH {
                        d[y] = simd.load(&source[offsets[y * PATCH + x] as usize..]);
                    }
                    let points = patch(simd, d);
                    for y in 0..PATCH {
                        half[y][x] = points[y];
                    }
                }
                for y in 0..PATCH {
                    let points = patch(simd, half[y]);
                    for x in 0..PATCH {
                        simd.store(&mut to.row(y * PATCH + x)[at..], points[x]);
                    }
                }
            }
        }
    }
}

/// Transforms kernels of some channels of the result, for all channels of the source: `to[point][result][source]`.
pub(super) struct Kernels<'a, 'b> {
    pub(super) weights: &'a [f32],
    /// From the kernel of one channel to the next, of the result and of the source.
    pub(super) strides: [usize; 2],
    /// Whether kernels are turned around.
    pub(super) is_flipped: bool,
    pub(super) results: std::ops::Range<usize>,
    pub(super) sources: usize,
    /// A row for each point.
    pub(super) to: &'a mut Block<'b>,
}

/// Most lanes of a vector.
const MAX_LANES: usize = 16;

impl Kernel for Kernels<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Kernels { weights, strides, is_flipped, results, sources, to } = self;
        for first in (0..sources).step_by(S::LANES) {
            let lanes = S::LANES.min(sources - first);
            for (i, result) in results.clone().enumerate() {
                let mut elements = [[0.0; MAX_LANES]; 9];
                for lane in 0..lanes {
                    let at = result * strides[0] + (first + lane) * strides[1];
                    let weights: &[f32; 9] = weights[at..at + 9].try_into().expect("bug: kernels of 3 by 3");
                    for (place, weight) in weights.iter().enumerate() {
                        elements[if is_flipped { 8 - place } else { place }][lane] = *weight;
                    }
                }
                let mut half = [[simd.splat(0.0); 3]; PATCH];
                for x in 0..3 {
                    let column = [&elements[x], &elements[3 + x], &elements[6 + x]];
                    let points = kernel(simd, [simd.load(column[0]), simd.load(column[1]), simd.load(column[2])]);
                    for y in 0..PATCH {
                        half[y][x] = points[y];
                    }
                }
                for y in 0..PATCH {
                    let points = kernel(simd, half[y]);
                    for x in 0..PATCH {
                        let row = &mut to.row(y * PATCH + x)[i * sources + first..][..lanes];
                        simd.store_part(row, points[x]);
                    }
                }
            }
        }
    }
}

/// Transforms the products of one channel of the result into pixels.
pub(super) struct Tiles<'a> {
    /// The products at the first point; vectors lie side by side.
    pub(super) products: &'a [f32],
    /// From one point to the next.
    pub(super) point: usize,
    pub(super) bias: f32,
    pub(super) relu: bool,
    /// For each lane of each vector, where the first pixel of its tile goes, and pixels from one row to the next.
    pub(super) places: &'a [(u32, u32)],
    pub(super) pixels: &'a mut [f32],
}

impl Kernel for Tiles<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Tiles { products, point, bias, relu, places, pixels } = self;
        let bias = simd.splat(bias);
        for (vector, places) in places.chunks_exact(S::LANES).enumerate() {
            let products = &products[vector * S::LANES..];
            let mut half = [[simd.splat(0.0); PATCH]; TILE];
            for x in 0..PATCH {
                let mut m = [simd.splat(0.0); PATCH];
                for y in 0..PATCH {
                    m[y] = simd.load(&products[(y * PATCH + x) * point..]);
                }
                let rows = tile(simd, m);
                for y in 0..TILE {
                    half[y][x] = rows[y];
                }
            }
            let (mut by_pixel, mut by_tile) = ([0.0; TILE * TILE * MAX_LANES], [0.0; TILE * TILE * MAX_LANES]);
            for y in 0..TILE {
                let row = tile(simd, half[y]);
                for x in 0..TILE {
                    let sum = simd.add(row[x], bias);
                    let sum = if relu { simd.relu(sum) } else { sum };
                    simd.store(&mut by_pixel[(y * TILE + x) * S::LANES..], sum);
                }
            }
            for first in (0..TILE * TILE).step_by(S::LANES) {
                simd.transpose(&by_pixel[first * S::LANES..], S::LANES, &mut by_tile[first..], TILE * TILE);
            }
            for (tile, &(place, pitch)) in by_tile.chunks_exact(TILE * TILE).zip(places) {
                for (y, row) in tile.chunks_exact(TILE).enumerate() {
                    pixels[place as usize + y * pitch as usize..][..TILE].copy_from_slice(row);
                }
            }
        }
    }
}
