//! Launches of `shaders/conv2d_winograd.wgsl`: convolutions of 3 by 3 with stride 1 as matrix products at 36 points.

use bytemuck::NoUninit;

use super::super::gemm::{Gemm, Matrix};
use super::super::{Dispatch, Slot};
use super::geometry::{Gather, Geometry, Operands};
use crate::shader::Target;

/// Points of a tile, in both directions together.
const POINTS: usize = 36;
/// Pixels of a tile along each axis.
const TILE: usize = 4;
/// With fewer channels on either side, transforms cost more than they save.
const MIN_CHANNELS: usize = 16;
/// Bytes of transformed images at a time, about: more do not stay in a cache.
const CHUNK_BYTES: usize = 16 << 20;

#[repr(C)]
#[derive(Clone, Copy, Debug, NoUninit)]
struct WeightParams {
    rows: u32,
    vectors: u32,
    row_stride: u32,
    channel_stride: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, NoUninit)]
struct ImageParams {
    channels: u32,
    vectors: u32,
    tiles: u32,
    tiles_h: u32,
    tiles_w: u32,
    height: u32,
    width: u32,
    offset: u32,
    padding_h: u32,
    padding_w: u32,
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

/// Some samples, and where their transformed images begin and end.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    first: usize,
    tiles: usize,
    /// Tiles with the zeros that follow them.
    padded: usize,
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

    fn tiles_of_sample(&self) -> usize {
        self.tiles().0 * self.tiles().1
    }

    /// Samples that are transformed at a time.
    fn samples_of_chunk(&self) -> usize {
        let sample = POINTS * self.tiles_of_sample() * (self.channels + self.rows) * 4;
        let chunks = self.samples.div_ceil((CHUNK_BYTES / sample).max(1));
        self.samples.div_ceil(chunks)
    }

    fn chunks(&self) -> impl Iterator<Item = Chunk> {
        let (step, samples, per_sample) = (self.samples_of_chunk(), self.samples, self.tiles_of_sample());
        (0..samples).step_by(step).map(move |first| {
            let tiles = step.min(samples - first) * per_sample;
            Chunk { first, tiles, padded: tiles.next_multiple_of(4) }
        })
    }

    fn image_bytes(&self, channels: usize) -> u64 {
        let tiles = (self.samples_of_chunk() * self.tiles_of_sample()).next_multiple_of(4);
        (POINTS * channels * tiles * 4) as u64
    }

    /// Weights at the points (for the gradient of weight, the products), and the transformed images of a chunk on both sides.
    pub(super) fn workspaces(&self) -> Vec<u64> {
        let weight = (POINTS * self.rows * self.channels * 4) as u64;
        vec![weight, self.image_bytes(self.channels), self.image_bytes(self.rows)]
    }

    /// A launch that transforms the image of a chunk, `extent` large, or makes it.
    fn image(
        &self,
        entry: &'static str,
        bindings: Vec<Slot>,
        chunk: Chunk,
        channels: usize,
        extent: (usize, usize),
    ) -> Dispatch {
        let (tiles_h, tiles_w) = self.tiles();
        let vectors = chunk.padded / 4;
        let params = ImageParams {
            channels: channels as u32,
            vectors: vectors as u32,
            tiles: chunk.tiles as u32,
            tiles_h: tiles_h as u32,
            tiles_w: tiles_w as u32,
            height: extent.0 as u32,
            width: extent.1 as u32,
            offset: (chunk.first * channels * extent.0 * extent.1) as u32,
            padding_h: self.padding.0 as u32,
            padding_w: self.padding.1 as u32,
        };
        let dispatch = Dispatch::new("conv2d_winograd", entry, bindings)
            .params(&params)
            .flops((12 * 14 * chunk.padded * channels) as u64)
            .linear((vectors * channels).div_ceil(64));
        if extent.1.is_multiple_of(4) { dispatch.constant("VEC", 1) } else { dispatch }
    }

    fn transform_input(&self, source: Slot, chunk: Chunk) -> Dispatch {
        let dispatch = self.image("transform_input", vec![source, Slot::Workspace(1)], chunk, self.channels, self.source);
        let padding = self.padding.1 as u32;
        if self.source.1.is_multiple_of(4) && self.tiles().1.is_multiple_of(4) {
            dispatch.constant("ROW", 1).constant("PADDING_W", padding)
        } else if self.source.1.is_multiple_of(2) {
            // Six pixels lie in three pairs, or reach into four.
            dispatch.constant("PAIRS", 3 + padding % 2).constant("PADDING_W", padding)
        } else {
            dispatch
        }
    }

    fn weight(&self, entry: &'static str, bindings: Vec<Slot>) -> Dispatch {
        let (row_stride, channel_stride) = match self.gather {
            Gather::Forward => (self.channels * 9, 9),
            Gather::GradInput => (9, self.rows * 9),
        };
        let params = WeightParams {
            rows: self.rows as u32,
            vectors: (self.channels / 4) as u32,
            row_stride: row_stride as u32,
            channel_stride: channel_stride as u32,
        };
        Dispatch::new("conv2d_winograd", entry, bindings)
            .params(&params)
            .flops((12 * 14 * self.rows * self.channels) as u64)
            .constant("WEIGHT", 1)
            .linear((self.rows * self.channels / 4).div_ceil(64))
    }

    /// The launches of forward or grad_input.
    pub(super) fn gather(&self, target: &Target, operands: Operands) -> Vec<Dispatch> {
        let Operands { weight, source, bias, relu } = operands;
        let [u, v, m] = [0, 1, 2].map(Slot::Workspace);
        let transform = self.weight("transform_weight", vec![weight, u]);
        let is_turned = self.gather == Gather::GradInput;
        let mut dispatches = vec![if is_turned { transform.constant("FLIP", 1) } else { transform }];
        for chunk in self.chunks() {
            let product = Gemm { batch: POINTS, ..Gemm::new(self.rows, chunk.padded, self.channels) };
            let kernel = Matrix { batch: self.rows * self.channels, ..Matrix::new(u, self.channels) };
            let image = |slot, channels| Matrix { batch: channels * chunk.padded, ..Matrix::new(slot, chunk.padded) };
            dispatches.push(self.transform_input(source, chunk));
            dispatches.push(product.single(target, kernel, image(v, self.channels), image(m, self.rows)));
            let mut bindings = vec![m, Slot::Output(0)];
            bindings.extend(bias);
            let output = self.image("transform_output", bindings, chunk, self.rows, self.dest);
            dispatches.push(
                [("ROW_START", bias.is_some()), ("RELU", relu)]
                    .into_iter()
                    .filter(|(_, set)| *set)
                    .fold(output, |dispatch, (name, _)| dispatch.constant(name, 1)),
            );
        }
        dispatches
    }

    /// The launches of grad_weight (inputs `input, grad_output`), of a forward convolution.
    pub(super) fn grad_weight(&self, target: &Target) -> Vec<Dispatch> {
        let [products, v, w] = [0, 1, 2].map(Slot::Workspace);
        let mut dispatches = Vec::new();
        for chunk in self.chunks() {
            dispatches.push(self.transform_input(Slot::Input(0), chunk));
            dispatches.push(self.image("transform_grad_output", vec![Slot::Input(1), w], chunk, self.rows, self.dest));
            let product = Gemm {
                batch: POINTS,
                trans_b: true,
                accumulate: chunk.first > 0,
                ..Gemm::new(self.rows, self.channels, chunk.padded)
            };
            let image = |slot, channels| Matrix { batch: channels * chunk.padded, ..Matrix::new(slot, chunk.padded) };
            let sums = Matrix { batch: self.rows * self.channels, ..Matrix::new(products, self.channels) };
            dispatches.push(product.single(target, image(w, self.rows), image(v, self.channels), sums));
        }
        dispatches.push(self.weight("transform_grad_weight", vec![products, Slot::Output(0)]));
        dispatches
    }
}
