//! Launches of `conv2d_winograd.wgsl`: convolutions of 3 by 3 with stride 1 by Winograd's method, as a matrix product at each of 36
//! interpolation points.

use super::geometry::{Gather, Geometry, Operands};
use crate::ops::matmul::gemm::{Gemm, Matrix, Tiling};
use crate::ops::{Dispatch, Slot};
use crate::shader::Target;

/// Interpolation points of a tile, in both directions together.
const POINTS: usize = 36;
/// Pixels of a tile along each axis.
const TILE: usize = 4;
/// With fewer channels on either side, transforms cost more than they save.
const MIN_CHANNELS: usize = 16;
/// Most bytes of transformed images at a time: more do not stay in a cache.
const CHUNK_BYTES: usize = 16 << 20;
/// Bytes of transformed weights at a time, about.
const BLOCK_BYTES: usize = 10 << 20;
/// Rows of which a block has a multiple.
const BLOCK_ROWS: usize = 64;
/// Columns of the widest tile on any device, and so of a panel: workspaces hold whole ones on each.
const LARGEST_TILE: usize = 64;

params! {
    struct WeightParams {
        rows: u32,
        first: u32,
        vectors: u32,
        padded_vectors: u32,
        row_stride: u32,
        channel_stride: u32,
        first_tap: u32,
        tap_stride: u32,
        accumulate: u32,
    }
}

params! {
    struct ImageParams {
        channels: u32,
        first: u32,
        all_channels: u32,
        vectors: u32,
        first_tile: u32,
        tiles: u32,
        tiles_h: u32,
        tiles_w: u32,
        height: u32,
        width: u32,
        padding_h: u32,
        padding_w: u32,
    }
}

/// A convolution, or its gradient of input, which is the convolution of `grad_output` with the kernel turned round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Winograd {
    gather: Gather,
    samples: usize,
    /// Channels that are read and that are made.
    channels: usize,
    rows: usize,
    source: (usize, usize),
    dest: (usize, usize),
    padding: (usize, usize),
}

/// Some of the tiles of all samples.
#[derive(Clone, Copy, Debug)]
struct TileRange {
    first: usize,
    tiles: usize,
}

/// Some channels of an image, or rows of the weights.
#[derive(Clone, Copy, Debug)]
struct Block {
    first: usize,
    count: usize,
    /// Of the whole.
    all: usize,
}

impl Winograd {
    /// `None` for what other kernels do as well or better. Depends on the shapes only.
    pub(super) fn new(geometry: &Geometry, gather: Gather) -> Option<Self> {
        let g = geometry;
        let (rows, channels) = g.rows_and_channels(gather);
        let fits = g.groups == 1
            && g.kernel == (3, 3)
            && g.stride == (1, 1)
            && g.dilation == (1, 1)
            && g.padding.0 <= 2
            && g.padding.1 <= 2
            && rows.min(channels) >= MIN_CHANNELS
            && rows.is_multiple_of(4)
            && channels.is_multiple_of(4);
        let (source, dest, padding) = match gather {
            Gather::Forward => (g.input, g.output, g.padding),
            Gather::GradInput => (g.output, g.input, (2 - g.padding.0.min(2), 2 - g.padding.1.min(2))),
        };
        fits.then_some(Winograd { gather, samples: g.samples, channels, rows, source, dest, padding })
    }

    fn tiles(&self) -> (usize, usize) {
        (self.dest.0.div_ceil(TILE), self.dest.1.div_ceil(TILE))
    }

    fn all_tiles(&self) -> usize {
        self.samples * self.tiles().0 * self.tiles().1
    }

    /// Rows that are made at a time.
    fn rows_of_block(&self) -> usize {
        let most = BLOCK_BYTES / (POINTS * self.channels * 4) / BLOCK_ROWS * BLOCK_ROWS;
        self.rows.min(most.max(BLOCK_ROWS))
    }

    fn blocks(&self) -> impl Iterator<Item = Block> {
        let (step, all) = (self.rows_of_block(), self.rows);
        (0..all).step_by(step).map(move |first| Block { first, count: step.min(all - first), all })
    }

    /// Tiles that are transformed at a time: with no more bytes than the images themselves have, or the weights at the points.
    /// Whole panels, so that only the last chunk is padded.
    fn tiles_of_chunk(&self) -> usize {
        let rows = self.rows_of_block();
        let tile = POINTS * (self.channels + rows) * 4;
        let pixels = self.source.0 * self.source.1 * self.channels + self.dest.0 * self.dest.1 * self.rows;
        let beside = (self.samples * pixels * 4).max(POINTS * rows * self.channels * 4);
        let most = (CHUNK_BYTES.min(beside) / tile / LARGEST_TILE * LARGEST_TILE).max(LARGEST_TILE);
        let chunks = self.all_tiles().div_ceil(most);
        // The same number each time, if possible.
        self.all_tiles().div_ceil(chunks).next_multiple_of(LARGEST_TILE)
    }

    fn chunks(&self) -> impl Iterator<Item = TileRange> {
        let (step, all) = (self.tiles_of_chunk(), self.all_tiles());
        (0..all).step_by(step).map(move |first| TileRange { first, tiles: step.min(all - first) })
    }

    fn image_bytes(&self, channels: usize) -> u64 {
        (POINTS * channels * self.tiles_of_chunk() * 4) as u64
    }

    /// Some rows of the weights at the points (for the gradient of weight, of the products), and the transformed images of a
    /// chunk: all channels that are read, and those rows.
    pub(super) fn workspaces(&self) -> Vec<u64> {
        let rows = self.rows_of_block();
        let channels = self.channels.next_multiple_of(LARGEST_TILE);
        vec![(POINTS * rows * channels * 4) as u64, self.image_bytes(self.channels), self.image_bytes(rows)]
    }

    /// A launch that transforms the image of a chunk, `extent` large, or makes it; what it becomes lies in panels so wide.
    fn image(
        &self,
        entry: &'static str,
        bindings: Vec<Slot>,
        chunk: TileRange,
        panel: usize,
        channels: Block,
        extent: (usize, usize),
    ) -> Dispatch {
        let (tiles_h, tiles_w) = self.tiles();
        let vectors = chunk.tiles.next_multiple_of(panel) / 4;
        let params = ImageParams {
            channels: channels.count as u32,
            first: channels.first as u32,
            all_channels: channels.all as u32,
            vectors: vectors as u32,
            first_tile: chunk.first as u32,
            tiles: chunk.tiles as u32,
            tiles_h: tiles_h as u32,
            tiles_w: tiles_w as u32,
            height: extent.0 as u32,
            width: extent.1 as u32,
            padding_h: self.padding.0 as u32,
            padding_w: self.padding.1 as u32,
        };
        let dispatch = Dispatch::new("conv2d_winograd", entry, bindings)
            .params(&params)
            .flops((12 * 14 * chunk.tiles * channels.count) as u64)
            .constant("PANEL", panel as u32)
            .linear((vectors * channels.count).div_ceil(64));
        // What reads the input has its own ways of reading pixels together.
        dispatch.flags([("BY_ELEMENT", entry != "transform_input" && !extent.1.is_multiple_of(4))])
    }

    fn transform_input(&self, source: Slot, chunk: TileRange, panel: usize) -> Dispatch {
        let all = Block { first: 0, count: self.channels, all: self.channels };
        let dispatch = self.image("transform_input", vec![source, Slot::Workspace(1)], chunk, panel, all, self.source);
        let padding = self.padding.1 as u32;
        if self.source.1.is_multiple_of(4) && self.tiles().1.is_multiple_of(4) {
            dispatch.constant("ROW", 1).constant("PADDING_W", padding)
        } else if self.source.1.is_multiple_of(2) {
            // Six pixels lie in three pairs, or reach into four.
            dispatch.constant("PAIRS", 3 + padding % 2)
        } else {
            dispatch
        }
    }

    fn weight(
        &self,
        entry: &'static str,
        bindings: Vec<Slot>,
        block: Block,
        panel: usize,
        accumulate: bool,
    ) -> Dispatch {
        // The kernel of grad_input is turned by 180 degrees.
        let (row_stride, channel_stride, first_tap, tap_stride) = match self.gather {
            Gather::Forward => (self.channels * 9, 9, 0, 1),
            Gather::GradInput => (9, self.rows * 9, 8, u32::MAX),
        };
        let padded = self.channels.next_multiple_of(panel);
        let params = WeightParams {
            rows: block.count as u32,
            first: block.first as u32,
            vectors: (self.channels / 4) as u32,
            padded_vectors: (padded / 4) as u32,
            row_stride: row_stride as u32,
            channel_stride: channel_stride as u32,
            first_tap,
            tap_stride,
            accumulate: u32::from(accumulate),
        };
        Dispatch::new("conv2d_winograd", entry, bindings)
            .params(&params)
            .flops((12 * 14 * block.count * self.channels) as u64)
            .constant("WEIGHT", 1)
            .constant("PANEL", panel as u32)
            .linear((block.count * padded / 4).div_ceil(64))
    }

    /// The launches of forward or grad_input.
    pub(super) fn gather(&self, target: &Target, operands: Operands) -> Vec<Dispatch> {
        let Operands { weight, source, bias, relu } = operands;
        let [u, v, m] = [0, 1, 2].map(Slot::Workspace);
        let mut bindings = vec![m, Slot::Output(0)];
        bindings.extend(bias);
        let mut dispatches = Vec::new();
        let panel = Tiling::panel_width(target);
        for chunk in self.chunks() {
            dispatches.push(self.transform_input(source, chunk, panel));
            for block in self.blocks() {
                // A single block stays for all chunks.
                if chunk.first == 0 || block.count < block.all {
                    dispatches.push(self.weight("transform_weight", vec![weight, u], block, panel, false));
                }
                let tiles = chunk.tiles.next_multiple_of(4);
                let product = Gemm { batch: POINTS, ..Gemm::new(block.count, tiles, self.channels) };
                let matrix = |slot, rows, columns| Matrix::in_panels(slot, rows, columns, panel);
                let (a, b) = (matrix(u, block.count, self.channels), matrix(v, self.channels, tiles));
                dispatches.push(product.single(target, a, b, matrix(m, block.count, tiles)));
                let output = self.image("transform_output", bindings.clone(), chunk, panel, block, self.dest);
                dispatches.push(output.flags([("ROW_START", bias.is_some()), ("RELU", relu)]));
            }
        }
        dispatches
    }

    /// The launches of grad_weight (inputs `input, grad_output`), of a forward convolution.
    pub(super) fn grad_weight(&self, target: &Target) -> Vec<Dispatch> {
        let [products, v, w] = [0, 1, 2].map(Slot::Workspace);
        let mut dispatches = Vec::new();
        let panel = Tiling::panel_width(target);
        for chunk in self.chunks() {
            dispatches.push(self.transform_input(Slot::Input(0), chunk, panel));
            for block in self.blocks() {
                let grad_output = vec![Slot::Input(1), w];
                dispatches.push(self.image("transform_grad_output", grad_output, chunk, panel, block, self.dest));
                let tiles = chunk.tiles.next_multiple_of(4);
                let sum = Gemm { batch: POINTS, trans_b: true, ..Gemm::new(block.count, self.channels, tiles) };
                let matrix = |slot, rows, columns| Matrix::in_panels(slot, rows, columns, panel);
                let (a, b) = (matrix(w, block.count, tiles), matrix(v, self.channels, tiles));
                dispatches.push(sum.single(target, a, b, matrix(products, block.count, self.channels)));
                let bindings = vec![products, Slot::Output(0)];
                dispatches.push(self.weight("transform_grad_weight", bindings, block, panel, chunk.first > 0));
            }
        }
        dispatches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Op;
    use crate::ops::conv::conv2d::{Conv2d, Conv2dGradInput, Conv2dGradWeight};
    use crate::tensor::TensorDesc;

    #[test]
    fn one_large_image_takes_a_part_at_a_time() {
        let conv = Conv2d { padding: (1, 1), bias: false, ..Conv2d::default() };
        let [image, weight] = [TensorDesc::f32([1, 16, 3000, 3000]), TensorDesc::f32([16, 16, 3, 3])];
        let ops: [(Box<dyn Op>, [&TensorDesc; 2], &TensorDesc); 3] = [
            (Box::new(conv), [&image, &weight], &image),
            (Box::new(Conv2dGradInput { conv, height: 3000, width: 3000 }), [&weight, &image], &image),
            (Box::new(Conv2dGradWeight { conv, kernel: (3, 3) }), [&image, &image], &weight),
        ];
        for (op, inputs, output) in ops {
            let (inputs, outputs) = (inputs.map(Clone::clone), [output.clone()]);
            // That none loops too often is asserted where they are made.
            assert!(op.dispatches(&inputs, &outputs, &Target::default()).len() > 100);
            let bytes: u64 = op.workspaces(&inputs, &outputs).iter().sum();
            assert!(bytes < 2 * (CHUNK_BYTES + BLOCK_BYTES) as u64, "{}: {bytes}", op.name());
        }
    }
}
