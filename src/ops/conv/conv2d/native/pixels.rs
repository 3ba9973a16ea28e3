//! Convolutions of images of one pixel, as behind a global pooling: products of matrices, where samples are rows.

use super::super::geometry::Geometry;
use super::{F32, Operands};
use crate::native::{Block, Extents, Factor, Product, Start};
use crate::ops::Resources;

/// Which of the products of a convolution.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Forward,
    GradInput,
    GradWeight,
}

impl Geometry {
    /// Whether images have one pixel, in which all channels meet.
    pub(super) fn is_pixel(&self) -> bool {
        self.is_pointwise() && self.groups == 1 && self.output_plane() == 1
    }

    fn pixel_extents(&self, which: Which) -> Extents {
        let (samples, sources, results) = (self.samples, self.in_channels, self.out_channels);
        match which {
            Which::Forward => Extents::new(samples, results, sources),
            Which::GradInput => Extents::new(samples, sources, results),
            Which::GradWeight => Extents::new(results, sources, samples),
        }
    }

    pub(super) fn pixel_workspace(&self, which: Which, threads: usize) -> u64 {
        self.pixel_extents(which).scratch(threads) as u64 * F32
    }

    /// Of the gradient of weights, `operands` has `grad_output` as the source, and the input in place of weights.
    pub(super) fn run_pixel(
        &self,
        which: Which,
        operands: &Operands<'_>,
        with: &mut Resources<'_>,
        output: &mut [f32],
    ) {
        let extents = self.pixel_extents(which);
        let Resources { cores, workspaces, epilogue } = with;
        let finish =
            |start: usize, values: &mut [f32], to: &mut [f32]| epilogue.finish(cores.level(), start, values, to);
        let Operands { source, weights, bias, relu } = *operands;
        let (m, n, k) = (extents.m, extents.n, extents.k);
        let a = if which == Which::GradWeight { Factor::across(source, m) } else { Factor::along(source, k) };
        let b = if which == Which::Forward { Factor::along(weights, k) } else { Factor::across(weights, n) };
        let start = bias.map_or(Start::Zero, Start::Columns);
        let finish = if epilogue.is_empty() { None } else { Some(&finish as _) };
        Product { extents, a, b, start, relu, finish }.run(cores, workspaces[0], Block::new(output, m, n, n));
    }
}
