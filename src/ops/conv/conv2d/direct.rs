//! Launches of `shaders/conv2d_direct.wgsl`, for groups of few channels.

use super::geometry::{Gather, Geometry, gcd};
use crate::ops::matmul::gemm::{Tiling, reduce};
use crate::ops::{Dispatch, MAX_LOOP_ITERATIONS, Slot};
use crate::shader::Target;

/// Most channels of a block.
const MAX_OUT: usize = 4;
/// Columns of a block.
const COLUMNS: usize = 4;
/// Kernel positions at a time along one axis, and in all.
const MAX_TAPS: (usize, usize) = (16, 49);
/// The same where code must be short.
const SHORT_TAPS: (usize, usize) = (5, 5);
/// Multiplications of a vector of four in the unrolled body, beyond which blocks get fewer rows: more only makes drivers
/// compile for longer.
const MAX_STATEMENTS: usize = 100;
/// Weights whose gradients one workgroup sums, for 256 bytes of workgroup memory each.
const MAX_SUMS: usize = 64;
/// Workgroups that a device should have to work on, and the least number of blocks for each of their 64 invocations.
const ENOUGH_WORKGROUPS: usize = 128;
const ENOUGH_BLOCKS: usize = 4;

params! {
    struct Params {
        samples: u32,
        groups: u32,
        dest_channels: u32,
        source_channels: u32,
        weight_dest: u32,
        weight_source: u32,
        kernel: [u32; 2] as [kernel_h, kernel_w],
        dest: [u32; 2] as [dest_h, dest_w],
        source: [u32; 2] as [source_h, source_w],
        stride: [u32; 2] as [stride_h, stride_w],
        padding: [u32; 2] as [padding_h, padding_w],
        dilation: [u32; 2] as [dilation_h, dilation_w],
        dest_step: [u32; 2] as [dest_step_h, dest_step_w],
        source_step: [u32; 2] as [source_step_h, source_step_w],
        tap_step: [u32; 2] as [tap_step_h, tap_step_w],
        blocks: [u32; 2] as [blocks_h, blocks_w],
        pieces: [u32; 2] as [pieces_h, pieces_w],
        splits: u32,
        terms: u32,
    }
}

/// One axis of a launch.
#[derive(Clone, Copy, Debug)]
struct Axis {
    kernel: usize,
    dest: usize,
    source: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    /// From pixel to pixel of a block, in the result and in what it reads.
    dest_step: usize,
    source_step: usize,
    /// From one kernel position that a pixel meets to the next, and the most that it meets.
    tap_step: usize,
    taps: usize,
    /// Pixels of the source, `source_step` apart, from one pixel of a block to the next.
    step: usize,
}

/// The largest divisor of `n` up to `most`.
fn divisor(n: usize, most: usize) -> usize {
    (1..=n.min(most)).rev().find(|&d| n.is_multiple_of(d)).unwrap_or(1)
}

/// How a launch is cut into blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direct {
    geometry: Geometry,
    axes: [Axis; 2],
    dest_channels: usize,
    source_channels: usize,
    weight_dest: usize,
    weight_source: usize,
    /// Channels, rows and kernel positions of a block.
    out: usize,
    rows: usize,
    taps: [usize; 2],
}

impl Direct {
    /// For pixels that are gathered, or (`Gather::Forward`) for the gradient of weight.
    pub(super) fn new(geometry: &Geometry, gather: Gather, target: &Target) -> Self {
        let g = geometry;
        let axis = |kernel: usize, input: usize, output: usize, stride: usize, padding: usize, dilation: usize| {
            let common = gcd(stride, dilation);
            let (dest, source, dest_step, source_step, tap_step, step) = match gather {
                Gather::Forward => (output, input, dilation / common, dilation, 1, stride / common),
                Gather::GradInput => {
                    (input, output, stride * (dilation / common), dilation / common, stride / common, 1)
                }
            };
            // Further apart than the result is large, each pixel is a block of its own.
            let dest_step = dest_step.min(dest);
            let taps = kernel.div_ceil(tap_step);
            Axis { kernel, dest, source, stride, padding, dilation, dest_step, source_step, tap_step, taps, step }
        };
        let axes = [
            axis(g.kernel.0, g.input.0, g.output.0, g.stride.0, g.padding.0, g.dilation.0),
            axis(g.kernel.1, g.input.1, g.output.1, g.stride.1, g.padding.1, g.dilation.1),
        ];
        let (dest_channels, source_channels) = g.rows_and_channels(gather);
        let (per_output, per_input) = (g.in_channels * g.taps(), g.taps());
        let (weight_dest, weight_source) = match gather {
            Gather::Forward => (per_output, per_input),
            Gather::GradInput => (per_input, per_output),
        };
        let (most_out, most_taps, most_statements) =
            if target.short_code { (1, SHORT_TAPS, 1) } else { (MAX_OUT, MAX_TAPS, MAX_STATEMENTS) };
        let out = dest_channels.next_power_of_two().min(most_out);
        let taps_w = divisor(axes[1].taps, most_taps.0.min(MAX_SUMS / out));
        let taps = [divisor(axes[0].taps, (most_taps.1.min(MAX_SUMS / out) / taps_w).max(1)), taps_w];
        let rows_of_phase = axes[0].dest.div_ceil(axes[0].dest_step);
        let rows = [4, 2, 1]
            .into_iter()
            .find(|&rows| rows < 2 * rows_of_phase && rows * out * taps[0] * taps[1] <= most_statements)
            .unwrap_or(1);
        Direct { geometry: *g, axes, dest_channels, source_channels, weight_dest, weight_source, out, rows, taps }
    }

    /// Blocks whose first pixels are `dest_step` apart, by rows and by columns.
    fn blocks(&self) -> [usize; 2] {
        let count = |axis: &Axis, pixels: usize| axis.dest.div_ceil(axis.dest_step).div_ceil(pixels);
        [count(&self.axes[0], self.rows), count(&self.axes[1], COLUMNS)]
    }

    /// Pieces of the kernel, by rows and by columns.
    fn pieces(&self) -> [usize; 2] {
        [0, 1].map(|d| self.axes[d].taps / self.taps[d])
    }

    /// Blocks of one channel, or of `out` together, of one sample.
    fn all_blocks(&self) -> usize {
        self.blocks().iter().zip(&self.axes).map(|(blocks, axis)| blocks * axis.dest_step).product()
    }

    fn dispatch(&self, entry: &'static str, bindings: Vec<Slot>, splits: usize, terms: usize) -> Dispatch {
        let pair = |value: fn(&Axis) -> usize| self.axes.each_ref().map(|axis| value(axis) as u32);
        let params = Params {
            samples: self.geometry.samples as u32,
            groups: self.geometry.groups as u32,
            dest_channels: self.dest_channels as u32,
            source_channels: self.source_channels as u32,
            weight_dest: self.weight_dest as u32,
            weight_source: self.weight_source as u32,
            kernel: pair(|axis| axis.kernel),
            dest: pair(|axis| axis.dest),
            source: pair(|axis| axis.source),
            stride: pair(|axis| axis.stride),
            padding: pair(|axis| axis.padding),
            dilation: pair(|axis| axis.dilation),
            dest_step: pair(|axis| axis.dest_step),
            source_step: pair(|axis| axis.source_step),
            tap_step: pair(|axis| axis.tap_step),
            blocks: self.blocks().map(|blocks| blocks as u32),
            pieces: self.pieces().map(|pieces| pieces as u32),
            splits: splits as u32,
            terms: terms as u32,
        };
        // Pixels that lie between those that neighbours read are not read.
        let step = [0, 1].map(|d| self.axes[d].step.min(self.taps[d]));
        let gap = [0, 1].map(|d| self.axes[d].step - step[d]);
        let span = [(self.rows - 1) * step[0] + self.taps[0], (COLUMNS - 1) * step[1] + self.taps[1]];
        [
            ("OUT", self.out),
            ("ROWS", self.rows),
            ("TAPS_H", self.taps[0]),
            ("TAPS_W", self.taps[1]),
            ("STEP_H", step[0]),
            ("STEP_W", step[1]),
            ("GAP_H", gap[0]),
            ("GAP_W", gap[1]),
            ("SPAN_H", span[0]),
            ("SPAN_W", span[1]),
        ]
        .into_iter()
        .chain(self.pairs(entry).into_iter().flat_map(|odd| [("PAIRS", (span[1] + odd).div_ceil(2)), ("ODD", odd)]))
        .fold(Dispatch::new("conv2d_direct", entry, bindings).params(&params), |dispatch, (name, value)| {
            dispatch.constant(name, value as u32)
        })
        .flags([("BY_ELEMENT", self.axes[1].dest_step > 1 || !self.axes[1].dest.is_multiple_of(COLUMNS))])
    }

    /// Where the rows that blocks read are made of whole pairs of pixels, next to each other: 1 if the first pixel of a block is
    /// the second of its pair, in every block, else 0.
    fn pairs(&self, entry: &str) -> Option<usize> {
        let axis = &self.axes[1];
        let is_dense =
            axis.source_step == 1 && axis.dest_step == 1 && axis.step <= self.taps[1] && self.pieces()[1] == 1;
        let is_gradient = entry == "grad_input";
        let fits = is_dense && axis.source.is_multiple_of(2) && !(is_gradient && axis.stride > 1);
        let first = if is_gradient { axis.padding + self.taps[1] - 1 } else { axis.padding };
        fits.then_some(first % 2)
    }

    /// Flops of whole blocks, of `taps` kernel positions.
    fn flops(&self, blocks: usize, channels: usize, taps: usize) -> u64 {
        (2 * self.out * self.rows * COLUMNS * taps) as u64 * (blocks * channels) as u64
    }

    /// The launch of forward or grad_input.
    pub(super) fn gather(&self, entry: &'static str, bindings: Vec<Slot>) -> Dispatch {
        let invocations =
            self.geometry.samples * self.geometry.groups * self.dest_channels.div_ceil(self.out) * self.all_blocks();
        let [high, wide] = &self.axes;
        let steps = self.source_channels * self.pieces().iter().product::<usize>();
        let dispatch = self
            .dispatch(entry, bindings, 1, 0)
            .loops(steps + high.kernel + wide.kernel)
            .flops(self.flops(invocations, self.source_channels, high.taps * wide.taps))
            .linear(invocations.div_ceil(64));
        // Some pixels of a strided gradient meet fewer kernel positions than others, or none.
        let uneven = |axis: &Axis| axis.stride != axis.tap_step || !axis.kernel.is_multiple_of(axis.tap_step);
        let is_strided = entry == "grad_input" && self.axes.iter().any(|axis| axis.stride > 1);
        dispatch.flags([
            ("ONE_STEP", steps == 1),
            ("STRIDED", is_strided),
            ("GUARD_TAPS", is_strided && self.axes.iter().any(uneven)),
        ])
    }

    /// Parts of the sum of grad_weight over blocks: depends on the shapes only, as the workspace does.
    fn parts(geometry: &Geometry) -> usize {
        let long = Direct::new(geometry, Gather::Forward, &Target::default());
        let blocks = geometry.samples * long.all_blocks();
        let wanted = ENOUGH_WORKGROUPS.div_ceil(long.weight_pieces()).min(blocks / (64 * ENOUGH_BLOCKS)).max(1);
        // The smallest subgroup has four invocations, and where code is short a block has one row.
        let needed = (blocks * long.rows).div_ceil(4 * (MAX_LOOP_ITERATIONS as usize - 64));
        blocks.div_ceil(blocks.div_ceil(wanted.max(needed)))
    }

    /// Pieces of the weights that a workgroup each makes the gradient of.
    fn weight_pieces(&self) -> usize {
        let taps: usize = self.pieces().iter().product();
        self.geometry.groups * self.dest_channels.div_ceil(self.out) * self.source_channels * taps
    }

    /// Bytes of the parts' results of grad_weight, if there are several.
    pub(super) fn workspace_bytes(geometry: &Geometry) -> Option<u64> {
        let parts = Direct::parts(geometry);
        (parts > 1).then(|| (parts * geometry.weight_numel().next_multiple_of(4) * 4) as u64)
    }

    /// The launches of grad_weight (inputs `input, grad_output`).
    pub(super) fn grad_weight(&self, target: &Target) -> Vec<Dispatch> {
        let parts = Direct::parts(&self.geometry);
        let terms = (self.geometry.samples * self.all_blocks()).div_ceil(parts);
        let result = if parts > 1 { Slot::Workspace(0) } else { Slot::Output(0) };
        let blocks =
            self.geometry.samples * self.geometry.groups * self.dest_channels.div_ceil(self.out) * self.all_blocks();
        let first = self
            .dispatch("grad_weight", vec![Slot::Input(1), Slot::Input(0), result], parts, terms)
            .constant("SUMS", (self.out * self.taps[0] * self.taps[1]) as u32)
            .loops(terms.div_ceil(4) + 64)
            .flops(self.flops(blocks, self.source_channels, self.geometry.taps()))
            .family(Tiling::family(target))
            .linear(self.weight_pieces() * parts);
        let mut dispatches = vec![first];
        if parts > 1 {
            dispatches.push(reduce(Slot::Workspace(0), Slot::Output(0), parts, self.geometry.weight_numel()));
        }
        dispatches
    }
}
