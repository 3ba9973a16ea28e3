//! The gradients of a convolution, as ops.

use super::geometry::{Gather, Geometry, Operands};
use super::{Conv2d, NativeOperands, native, twin};
use crate::error::OpError;
use crate::ops::matmul::gemm::{Tiling, reduce_rows};
use crate::ops::{Call, Cost, Dispatch, MAX_LOOP_ITERATIONS, Native, Op, Parts, Real, Resources, Slot};
use crate::shader::Target;
use crate::tensor::TensorDesc;

/// Flops, and every tensor once; workspaces are written and read.
pub(in crate::ops) fn cost(flops: u64, inputs: &[TensorDesc], outputs: &[TensorDesc], workspaces: &[u64]) -> Cost {
    let tensors = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum::<u64>();
    Cost { flops, bytes_moved: tensors + 2 * workspaces.iter().sum::<u64>() }
}

/// The gradient of input; inputs `weight, grad_output`. The input's extents do not follow from those of the output.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Conv2dGradInput {
    pub(in crate::ops) conv: Conv2d,
    pub(in crate::ops) height: usize,
    pub(in crate::ops) width: usize,
}

impl Conv2dGradInput {
    fn geometry(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Geometry {
        Geometry::new(&self.conv, &outputs[0].shape, &inputs[0].shape, &inputs[1].shape)
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let geometry = self.geometry(call.input_descs, call.output_descs);
        twin::grad_input(&geometry, call.input(0), call.input(1), call.output(0));
    }
}

impl Op for Conv2dGradInput {
    fn name(&self) -> &'static str {
        "conv2d.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let channels = inputs[0].shape[1] * self.conv.groups;
        Ok(vec![TensorDesc::f32([inputs[1].shape[0], channels, self.height, self.width])])
    }

    fn takes_epilogue(&self) -> bool {
        true
    }

    fn cost_name(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> &'static str {
        if self.geometry(inputs, outputs).is_depthwise() { "conv2d.grad_input.depthwise" } else { self.name() }
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let geometry = self.geometry(inputs, outputs);
        cost(geometry.flops(), inputs, outputs, &geometry.workspaces(Gather::GradInput))
    }

    fn workspaces(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Vec<u64> {
        self.geometry(inputs, outputs).workspaces(Gather::GradInput)
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        let operands = Operands { weight: Slot::Input(0), source: Slot::Input(1), bias: None, relu: false };
        self.geometry(inputs, outputs).gather(Gather::GradInput, target, operands)
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Conv2dGradInput {
    fn workspaces(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], threads: usize) -> Vec<u64> {
        self.geometry(inputs, outputs).native_backward_workspaces(threads)
    }

    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        Some(Parts::samples([false, true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let geometry = self.geometry(call.input_descs, call.output_descs);
        let operands = NativeOperands { source: call.input(1), weights: call.input(0), bias: None, relu: false };
        geometry.run_backward(&operands, with, call.output(0));
    }
}

/// The gradient of weight; inputs `input, grad_output`.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Conv2dGradWeight {
    pub(in crate::ops) conv: Conv2d,
    pub(in crate::ops) kernel: (usize, usize),
}

impl Conv2dGradWeight {
    fn geometry(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Geometry {
        Geometry::new(&self.conv, &inputs[0].shape, &outputs[0].shape, &inputs[1].shape)
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let geometry = self.geometry(call.input_descs, call.output_descs);
        twin::grad_weight(&geometry, call.input(0), call.input(1), call.output(0));
    }
}

impl Op for Conv2dGradWeight {
    fn name(&self) -> &'static str {
        "conv2d.grad_weight"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let (channels, out_channels) = (inputs[0].shape[1], inputs[1].shape[1]);
        Ok(vec![TensorDesc::f32([out_channels, channels / self.conv.groups, self.kernel.0, self.kernel.1])])
    }

    fn cost_name(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> &'static str {
        if self.geometry(inputs, outputs).is_depthwise() { "conv2d.grad_weight.depthwise" } else { self.name() }
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        cost(self.geometry(inputs, outputs).flops(), inputs, outputs, &Op::workspaces(self, inputs, outputs))
    }

    fn workspaces(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Vec<u64> {
        self.geometry(inputs, outputs).grad_weight_workspaces()
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        self.geometry(inputs, outputs).grad_weight(target)
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Conv2dGradWeight {
    fn workspaces(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], threads: usize) -> Vec<u64> {
        self.geometry(inputs, outputs).native_grad_weight_workspaces(threads)
    }

    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        Some(Parts::sum([true, true]))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let geometry = self.geometry(call.input_descs, call.output_descs);
        geometry.run_grad_weight(call.input(0), call.input(1), with, call.output(0));
    }
}

/// The gradient of bias: the sum of `grad_output` over samples and pixels.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Conv2dGradBias;

params! {
    struct GradBiasParams {
        channels: u32,
        samples: u32,
        plane: u32,
        splits: u32,
        terms: u32,
        segments: u32,
        segment: u32,
    }
}

/// Workgroups that a device should have to work on.
const ENOUGH_WORKGROUPS: usize = 128;

/// How the sum over samples and pixels is cut: planes into segments, and those of all samples into parts.
struct BiasSplit {
    /// Elements of a segment, a multiple of 4; the last one of a plane may have fewer.
    segment: usize,
    /// Segments of a plane.
    segments: usize,
    /// Segments of each part but the last.
    terms: usize,
    parts: usize,
}

/// Longest segment: as long a loop over it as leaves some iterations for the rest, in the smallest subgroup.
const LONGEST_SEGMENT: usize = 1 << 17;

impl BiasSplit {
    fn new(grad_output: &TensorDesc) -> Self {
        let shape = &grad_output.shape;
        let (samples, channels, plane) = (shape[0], shape[1], shape[2] * shape[3]);
        let segments = plane.div_ceil(LONGEST_SEGMENT).max(1);
        let segment = plane.div_ceil(segments).next_multiple_of(4);
        let total = samples * segments;
        let most = (MAX_LOOP_ITERATIONS as usize - 64) / Self::loops(segment);
        let terms = total.div_ceil(ENOUGH_WORKGROUPS.div_ceil(channels)).clamp(1, most);
        BiasSplit { segment, segments, terms, parts: total.div_ceil(terms) }
    }

    /// Loops of one invocation over a segment, for the smallest subgroup and where vectors are not possible.
    fn loops(segment: usize) -> usize {
        segment.div_ceil(4) + 1
    }
}

impl Conv2dGradBias {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (shape, grad_output) = (call.shape(0), call.input(0));
        twin::grad_bias(shape[1], shape[2] * shape[3], grad_output, call.output(0));
    }
}

impl Op for Conv2dGradBias {
    fn name(&self) -> &'static str {
        "conv2d.grad_bias"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(vec![TensorDesc::f32([inputs[0].shape[1]])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        cost(inputs[0].numel() as u64, inputs, outputs, &Op::workspaces(self, inputs, outputs))
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        let splits = BiasSplit::new(&inputs[0]).parts;
        let bytes = (splits * inputs[0].shape[1].next_multiple_of(4) * 4) as u64;
        (splits > 1).then_some(bytes).into_iter().collect()
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        let shape = &inputs[0].shape;
        let (samples, channels, plane) = (shape[0], shape[1], shape[2] * shape[3]);
        let BiasSplit { segment, segments, terms, parts: splits } = BiasSplit::new(&inputs[0]);
        let vectors = plane.is_multiple_of(4);
        let params = GradBiasParams {
            channels: channels as u32,
            samples: samples as u32,
            plane: if vectors { plane / 4 } else { plane } as u32,
            splits: splits as u32,
            terms: terms as u32,
            segments: segments as u32,
            segment: if vectors { segment / 4 } else { segment } as u32,
        };
        let result = if splits > 1 { Slot::Workspace(0) } else { Slot::Output(0) };
        let mut dispatch = Dispatch::new("conv2d", "grad_bias", [Slot::Input(0), result])
            .params(&params)
            .loops(terms * BiasSplit::loops(segment) + 64)
            .family(Tiling::family(target))
            .linear(channels * splits);
        if vectors {
            dispatch = dispatch.constant("VEC_A", 1);
        }
        let mut dispatches = vec![dispatch];
        if splits > 1 {
            dispatches.push(reduce_rows(Slot::Workspace(0), Slot::Output(0), splits, channels, splits));
        }
        dispatches
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Conv2dGradBias {
    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        Some(Parts::sum([true]))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let (shape, grad_output) = (call.shape(0), call.input(0));
        native::grad_bias(with.cores, shape[1], shape[2] * shape[3], grad_output, call.output(0));
    }
}
