//! Extents of a convolution, and what its kernels share.

use super::Conv2d;
use super::batch_tiles::BatchTiles;
use super::direct::Direct;
use super::winograd::Winograd;
use crate::ops::matmul::gemm::{Product, Split, Tiling, reduce};
use crate::ops::{Dispatch, Slot};
use crate::shader::{Family, MatrixOperand, ProductKind, Target};

/// Most channels of a group for which no matrix products are made.
const MAX_DIRECT_CHANNELS: usize = 8;

/// Most kernel positions for which none are made: one invocation of the other kernels goes through all of them.
const MAX_DIRECT_TAPS: usize = 2048;

/// All extents of one convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Geometry {
    pub(in crate::ops) samples: usize,
    pub(in crate::ops) groups: usize,
    /// Input channels of a group.
    pub(in crate::ops) in_channels: usize,
    /// Output channels of a group.
    pub(in crate::ops) out_channels: usize,
    pub(in crate::ops) input: (usize, usize),
    pub(in crate::ops) output: (usize, usize),
    pub(in crate::ops) kernel: (usize, usize),
    pub(in crate::ops) stride: (usize, usize),
    /// Zeros above and on the left. How many there are behind only matters to `output`.
    pub(in crate::ops) padding: (usize, usize),
    pub(in crate::ops) dilation: (usize, usize),
}

params! {
    /// Parameters of the kernels that are matrix products.
    struct Params {
        rows: u32,
        columns: u32,
        channels: u32,
        groups: u32,
        taps: u32,
        kernel_w: u32,
        dest_h: u32,
        dest_w: u32,
        source_h: u32,
        source_w: u32,
        padding_h: u32,
        padding_w: u32,
        dilation_h: u32,
        dilation_w: u32,
        inner_steps: u32,
        splits: u32,
        part_steps: u32,
        steps: u32,
        c_split: u32,
        tiles_m: u32,
        tiles_n: u32,
        phases: [u32; 2] as [phases_h, phases_w],
        phase: [u32; 2] as [phase_h, phase_w],
        samples: u32,
        first_sample: u32,
    }
}

params! {
    struct PackParams {
        vectors: u32,
        row_vectors: u32,
        rows: u32,
        channels: u32,
        padded_channels: u32,
        taps: u32,
        group_stride: u32,
        row_stride: u32,
        channel_stride: u32,
    }
}

/// Greatest common divisor.
pub(in crate::ops) fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Which way an image is gathered through the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Gather {
    /// Pixels of the input, for each pixel of the output.
    Forward,
    /// Pixels of `grad_output`, for each pixel of the input.
    GradInput,
}

/// What [`Geometry::gather`] reads, and what it does to the sums.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Operands {
    pub(in crate::ops) weight: Slot,
    /// The image that is gathered.
    pub(in crate::ops) source: Slot,
    /// What the sums start from.
    pub(in crate::ops) bias: Option<Slot>,
    /// Whether negative sums become 0.
    pub(in crate::ops) relu: bool,
}

impl Geometry {
    /// From shapes that the op's shape rule accepted.
    pub(in crate::ops) fn new(conv: &Conv2d, input: &[usize], weight: &[usize], output: &[usize]) -> Self {
        Geometry {
            samples: input[0],
            groups: conv.groups,
            in_channels: weight[1],
            out_channels: weight[0] / conv.groups,
            input: (input[2], input[3]),
            output: (output[2], output[3]),
            kernel: (weight[2], weight[3]),
            stride: conv.stride,
            padding: conv.padding,
            dilation: conv.dilation,
        }
    }

    pub(in crate::ops) fn taps(&self) -> usize {
        self.kernel.0 * self.kernel.1
    }

    pub(in crate::ops) fn input_plane(&self) -> usize {
        self.input.0 * self.input.1
    }

    pub(in crate::ops) fn output_plane(&self) -> usize {
        self.output.0 * self.output.1
    }

    pub(in crate::ops) fn weight_numel(&self) -> usize {
        self.groups * self.out_channels * self.in_channels * self.taps()
    }

    /// Whether each channel is by itself.
    pub(in crate::ops) fn is_depthwise(&self) -> bool {
        self.groups > 1 && self.in_channels == 1
    }

    /// Groups are so small that a matrix product for each would compute mostly padding.
    pub(in crate::ops) fn is_direct(&self) -> bool {
        self.groups > 1
            && self.in_channels.max(self.out_channels) <= MAX_DIRECT_CHANNELS
            && self.taps() <= MAX_DIRECT_TAPS
    }

    /// Every output pixel depends on the input pixel of the same number only.
    pub(super) fn is_pointwise(&self) -> bool {
        self.taps() == 1 && self.stride == (1, 1) && self.padding == (0, 0) && self.input == self.output
    }

    /// As the kernels see it: planes of a pointwise convolution are one long row.
    pub(super) fn flattened(&self) -> Self {
        if self.is_pointwise() {
            Geometry { input: (1, self.input_plane()), output: (1, self.output_plane()), ..*self }
        } else {
            *self
        }
    }

    /// A multiply-add counts two; taps that fall into the padding count too.
    pub(in crate::ops) fn flops(&self) -> u64 {
        2 * (self.samples * self.output_plane()) as u64 * self.weight_numel() as u64
    }

    /// Channels of a group in what is made and in what is gathered: rows and inner terms of its matrix product.
    pub(in crate::ops) fn rows_and_channels(&self, gather: Gather) -> (usize, usize) {
        match gather {
            Gather::Forward => (self.out_channels, self.in_channels),
            Gather::GradInput => (self.in_channels, self.out_channels),
        }
    }

    /// Whether pixels of the result that lie whole strides apart are gathered together, since they meet the same kernel
    /// positions.
    pub(super) fn has_phases(&self, gather: Gather) -> bool {
        gather == Gather::GradInput && self.stride != (1, 1)
    }

    /// Channels at one kernel position, as the weights are packed. Pixels that meet only some of the positions begin at any of
    /// them, so there is padding at each, and so there is where the image is packed likewise; otherwise only at the end of a row.
    fn padded_channels(&self, gather: Gather) -> usize {
        let (_, channels) = self.rows_and_channels(gather);
        let is_padded = self.has_phases(gather) || BatchTiles::new(self, gather).is_packed();
        if is_padded { channels.next_multiple_of(4) } else { channels }
    }

    /// Vectors of four in a row of packed weights.
    fn row_vectors(&self, gather: Gather) -> usize {
        (self.taps() * self.padded_channels(gather)).div_ceil(4)
    }

    /// Bytes of the weights in the order in which the matrix product reads them; `None` where it reads them as they are.
    fn packed_bytes(&self, gather: Gather) -> Option<u64> {
        let (rows, channels) = self.rows_and_channels(gather);
        let in_order = gather == Gather::Forward && self.taps() == 1 && channels.is_multiple_of(4);
        let packed = (self.groups * rows * self.row_vectors(gather) * 16) as u64;
        (!self.is_direct() && !in_order).then_some(packed)
    }

    /// Bytes of the workspaces of forward or grad_input.
    pub(in crate::ops) fn workspaces(&self, gather: Gather) -> Vec<u64> {
        let batch_tiles = BatchTiles::new(self, gather).workspaces();
        self.workspaces_beside(gather, self.packed_bytes(gather).into_iter().chain(batch_tiles.into_iter().flatten()))
    }

    /// What Winograd products need, if they are made, and the other kernels, `plain`: those run where code must be short.
    fn workspaces_beside(&self, gather: Gather, plain: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut workspaces = Winograd::new(self, gather).map_or(Vec::new(), |winograd| winograd.workspaces());
        for (i, size_bytes) in plain.into_iter().enumerate() {
            match workspaces.get_mut(i) {
                Some(workspace) => *workspace = size_bytes.max(*workspace),
                None => workspaces.push(size_bytes),
            }
        }
        workspaces
    }

    /// Winograd products, if they are made on this target: their unrolled transforms are long code, and what they multiply is too
    /// little precise in 16 bits.
    fn winograd(&self, gather: Gather, target: &Target) -> Option<Winograd> {
        let has_f16_operands = matches!(target.family, Family::Cooperative { operand: MatrixOperand::F16, .. });
        Winograd::new(self, gather).filter(|_| !target.short_code && !has_f16_operands)
    }

    fn pack(&self, gather: Gather, weight: Slot) -> Dispatch {
        let (rows, channels) = self.rows_and_channels(gather);
        let (row, channel) = match gather {
            Gather::Forward => (self.in_channels * self.taps(), self.taps()),
            Gather::GradInput => (self.taps(), self.in_channels * self.taps()),
        };
        let vectors = self.groups * rows * self.row_vectors(gather);
        let params = PackParams {
            vectors: vectors as u32,
            row_vectors: self.row_vectors(gather) as u32,
            rows: rows as u32,
            channels: channels as u32,
            padded_channels: self.padded_channels(gather) as u32,
            taps: self.taps() as u32,
            group_stride: (self.weight_numel() / self.groups) as u32,
            row_stride: row as u32,
            channel_stride: channel as u32,
        };
        Dispatch::new("conv2d_layout", "pack_weight", [weight, Slot::Workspace(0)])
            .params(&params)
            .linear(vectors.div_ceil(64))
    }

    /// The launches of forward or grad_input.
    pub(in crate::ops) fn gather(&self, gather: Gather, target: &Target, operands: Operands) -> Vec<Dispatch> {
        if let Some(winograd) = self.winograd(gather, target) {
            return winograd.gather(target, operands);
        }
        let Operands { weight, source, bias, relu } = operands;
        let mut bindings = vec![weight, source, Slot::Output(0)];
        bindings.extend(bias);
        let entry = match gather {
            Gather::Forward => "forward",
            Gather::GradInput => "grad_input",
        };
        let dispatches = if self.is_direct() {
            vec![Direct::new(self, gather, target).gather(entry, bindings)]
        } else {
            self.gather_as_product(gather, target, entry, bindings)
        };
        let flags = [("ROW_START", bias.is_some()), ("RELU", relu)];
        let has_sums = |launch: &Dispatch| launch.kernel.entry == entry;
        dispatches.into_iter().map(|launch| if has_sums(&launch) { launch.flags(flags) } else { launch }).collect()
    }

    /// The launches as a matrix product, some samples at a time. `bindings` are the weight, the image that is gathered, what is
    /// made, and whatever else the kernel binds.
    fn gather_as_product(
        &self,
        gather: Gather,
        target: &Target,
        entry: &'static str,
        mut bindings: Vec<Slot>,
    ) -> Vec<Dispatch> {
        let flat = self.flattened();
        let (dest, source) = match gather {
            Gather::Forward => (flat.output, flat.input),
            Gather::GradInput => (flat.input, flat.output),
        };
        let (rows, channels) = self.rows_and_channels(gather);
        let has_phases = self.has_phases(gather);
        let apart = if has_phases { self.stride } else { (1, 1) };
        let phases = [apart.0.min(dest.0), apart.1.min(dest.1)];
        let phase = [dest.0.div_ceil(apart.0), dest.1.div_ceil(apart.1)];
        // A step lies at one kernel position if their channels are whole steps.
        let is_flat = !self.padded_channels(gather).is_multiple_of(4);
        let row_vectors = self.row_vectors(gather);
        let depth = self.groups * phases[0] * phases[1];
        let n = self.samples * phase[0] * phase[1];
        let product = Product { kind: ProductKind::Image, m: rows, n, depth, flops: self.flops() };
        let tiling = Tiling::new(target, product);
        let mut dispatches = Vec::new();
        let mut workspaces = (0..).map(Slot::Workspace);
        let mut workspace =
            |wanted: bool, otherwise| if wanted { workspaces.next() } else { None }.unwrap_or(otherwise);
        let batch_tiles = BatchTiles::new(self, gather);
        let [a, b, c] = [bindings[0], bindings[1], bindings[2]];
        bindings[0] = workspace(self.packed_bytes(gather).is_some(), a);
        bindings[1] = workspace(batch_tiles.is_packed(), b);
        bindings[2] = workspace(batch_tiles.is_staged(), c);
        if bindings[0] != a {
            dispatches.push(self.pack(gather, a));
        }
        // The single tap of four pixels side by side is four pixels side by side.
        let is_dense = |stride: usize, extent: usize| gather == Gather::GradInput || stride == 1 || extent == 1;
        let is_aligned = self.taps() == 1
            && self.padding == (0, 0)
            && phase == [source.0, source.1]
            && is_dense(self.stride.0, source.0)
            && is_dense(self.stride.1, source.1);
        let has_vectors = (batch_tiles.is_staged() || !has_phases) && (phase[0] * phase[1]).is_multiple_of(4);
        let flags = [
            ("FLAT", is_flat),
            ("C_TAIL", has_phases && !batch_tiles.is_packed() && !channels.is_multiple_of(4)),
            ("VEC_B", batch_tiles.is_packed() || is_aligned && (source.0 * source.1).is_multiple_of(4)),
            ("BY_ELEMENT", !has_vectors),
            ("PHASES", has_phases),
            ("PACKED", batch_tiles.is_packed()),
            ("STAGED", batch_tiles.is_staged()),
        ];
        let step = |stride: usize, dilation: usize| (stride / gcd(stride, dilation)) as u32;
        for first in (0..self.samples).step_by(batch_tiles.samples) {
            let samples = batch_tiles.samples.min(self.samples - first);
            let columns = samples * phase[0] * phase[1];
            let params = Params {
                phases: phases.map(|n| n as u32),
                phase: phase.map(|n| n as u32),
                inner_steps: if is_flat { row_vectors } else { row_vectors / self.taps() } as u32,
                samples: samples as u32,
                first_sample: first as u32,
                ..flat.params(&tiling, rows, columns, channels, dest, source)
            };
            let mut dispatch = Dispatch::new("conv2d", entry, bindings.clone())
                .params(&params)
                .loops(row_vectors + self.kernel.0 + self.kernel.1)
                .constant("GEMM", 1)
                .constant("VEC_A", 1)
                .flags(flags)
                .flops(tiling.flops(rows, columns, self.groups * self.taps(), channels));
            if has_phases {
                dispatch = dispatch
                    .constant("TAP_STEP_H", step(self.stride.0, self.dilation.0))
                    .constant("TAP_STEP_W", step(self.stride.1, self.dilation.1));
            }
            dispatches.extend(batch_tiles.pack(first, samples, b, bindings[1]));
            dispatches.push(tiling.apply(self.strides(dispatch), rows, columns, depth));
            dispatches.extend(batch_tiles.interleave(first, samples, bindings[2], c));
        }
        dispatches
    }

    /// Steps of the sum of grad_weight over samples and pixels of the output.
    fn grad_weight_steps(&self) -> usize {
        self.samples * self.output_plane().div_ceil(4)
    }

    /// Bytes of the parts' results of grad_weight, if its sum is split, or of what its transforms need.
    pub(in crate::ops) fn grad_weight_workspaces(&self) -> Vec<u64> {
        let plain = if self.is_direct() {
            Direct::workspace_bytes(self)
        } else {
            let (rows, columns) = (self.out_channels, self.in_channels * self.taps());
            Split::most_bytes(rows, columns, self.groups, self.grad_weight_steps(), self.weight_numel())
        };
        self.workspaces_beside(Gather::Forward, plain)
    }

    /// The launches of grad_weight (inputs `input, grad_output`).
    pub(in crate::ops) fn grad_weight(&self, target: &Target) -> Vec<Dispatch> {
        if self.is_direct() {
            return Direct::new(self, Gather::Forward, target).grad_weight(target);
        }
        if let Some(winograd) = self.winograd(Gather::Forward, target) {
            return winograd.grad_weight(target);
        }
        let flat = self.flattened();
        let (rows, columns) = (self.out_channels, self.in_channels * self.taps());
        let (count, steps) = (self.weight_numel(), self.grad_weight_steps());
        let (kind, flops) = (ProductKind::GradWeight, self.flops());
        let tiling = Tiling::new(target, Product { kind, m: rows, n: columns, depth: self.groups, flops });
        let split = Split::new(tiling.family, rows, columns, self.groups, steps);
        let result = if split.is_split() { Slot::Workspace(0) } else { Slot::Output(0) };
        let params = Params {
            inner_steps: self.output_plane().div_ceil(4) as u32,
            splits: split.parts as u32,
            part_steps: split.steps as u32,
            steps: steps as u32,
            c_split: count.next_multiple_of(4) as u32,
            ..flat.params(&tiling, rows, columns, self.in_channels, flat.output, flat.input)
        };
        let whole = self.output_plane().is_multiple_of(4);
        let dispatch = Dispatch::new("conv2d", "grad_weight", [Slot::Input(1), Slot::Input(0), result])
            .params(&params)
            .loops(split.steps.min(steps))
            .constant("GEMM", 1)
            .flags([
                ("VEC_A", whole),
                ("VEC_B", whole && self.is_pointwise()),
                ("BY_ELEMENT", !columns.is_multiple_of(4)),
            ]);
        let dispatch = dispatch.flops(tiling.flops(rows, columns, self.groups * self.samples, self.output_plane()));
        let mut dispatches = vec![tiling.apply(self.strides(dispatch), rows, columns, self.groups * split.parts)];
        if split.is_split() {
            dispatches.push(reduce(Slot::Workspace(0), Slot::Output(0), split.parts, count));
        }
        dispatches
    }

    /// Strides are constants: the kernels divide by them for every pixel.
    fn strides(&self, dispatch: Dispatch) -> Dispatch {
        dispatch.constant("STRIDE_H", self.stride.0 as u32).constant("STRIDE_W", self.stride.1 as u32)
    }

    fn params(
        &self,
        tiling: &Tiling,
        rows: usize,
        columns: usize,
        channels: usize,
        dest: (usize, usize),
        source: (usize, usize),
    ) -> Params {
        Params {
            rows: rows as u32,
            columns: columns as u32,
            channels: channels as u32,
            groups: self.groups as u32,
            taps: self.taps() as u32,
            kernel_w: self.kernel.1 as u32,
            dest_h: dest.0 as u32,
            dest_w: dest.1 as u32,
            source_h: source.0 as u32,
            source_w: source.1 as u32,
            padding_h: self.padding.0 as u32,
            padding_w: self.padding.1 as u32,
            dilation_h: self.dilation.0 as u32,
            dilation_w: self.dilation.1 as u32,
            inner_steps: 0,
            splits: 1,
            part_steps: 0,
            steps: 0,
            c_split: 0,
            tiles_m: rows.div_ceil(tiling.tile_m) as u32,
            tiles_n: columns.div_ceil(tiling.tile_n) as u32,
            phases: [1; 2],
            phase: [0; 2],
            samples: self.samples as u32,
            first_sample: 0,
        }
    }
}
