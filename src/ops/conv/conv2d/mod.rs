//! Two-dimensional convolution.

mod batch_tiles;
mod direct;
mod geometry;
mod grad;
mod native;
mod twin;
mod winograd;

pub(in crate::ops) use geometry::{Gather, Geometry, Operands, gcd};
pub(in crate::ops) use grad::{Conv2dGradBias, Conv2dGradInput, Conv2dGradWeight, cost};
pub(in crate::ops) use native::Operands as NativeOperands;
pub(in crate::ops) use twin::grad_input as grad_input_twin;

use crate::ops::onnx;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use crate::error::OpError;
use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::elementwise::relu::Relu;
use crate::ops::{
    Backward, Builder, BuiltInActivation, Call, Case, Cost, Dispatch, MAX_LOOP_ITERATIONS, Native, Op, Parts, Real,
    Resources, Slot, expect_count, expect_dtype, expect_rank, expect_shape,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output[n, o, y, x] = bias[o] + Σ over c, ky, kx of weight[o, c, ky, kx] ·
/// input[n, c, y · stride − padding + ky · dilation, x · stride − padding + kx · dilation]`, where pixels outside of the
/// input count as 0 and `c` runs over the channels of the group of `o`; with `relu`, then `max(output, 0)`.
///
/// | tensor | shape |
/// |---|---|
/// | input | `[N, C, H, W]` |
/// | weight | `[O, C / groups, KH, KW]` |
/// | bias, if `bias` | `[O]` |
/// | output | `[N, O, H', W']` with `H' = (H + padding + padding_end − dilation · (KH − 1) − 1) / stride + 1`, `W'` likewise |
///
/// **Saved for backward:** input where weight wants a gradient, weight where input wants one, and with `relu` the output
/// (compressed, a bit for each of its elements unless the output is kept anyway). **In place:** no.
/// **Workspaces:** the weights once more, in the order in which the kernel reads them; for the gradient of weight the parts
/// of a split sum. Kernels of 3 by 3 with stride 1 and 16 or more channels on both sides are Winograd products (
/// F(4x4, 3x3)), with weights and images at those points, a part at a time.
/// **Numerics:** sums in f32, in an order that depends on the shapes only. Winograd products err twice as much as plain sums,
/// and a pixel that is not finite makes all outputs of its 4 by 4 tile NaN. NaN passes `relu`.
///
/// # Errors
/// Where shapes do not fit together, the kernel is larger than the padded input, a setting is 0 that must not be, an input
/// is not f32, or a sum is longer than a kernel may loop.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.Conv2d.html>
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Conv2d {
    /// Rows and columns from one output pixel to the next.
    pub stride: (usize, usize),
    /// Rows of zeros above the input and columns on its left, and as many below and on its right but for `padding_end`.
    pub padding: (usize, usize),
    /// Rows of zeros below the input and columns on its right, where they are not as many as above and on its left.
    pub padding_end: Option<(usize, usize)>,
    /// Rows and columns from one kernel element to the next.
    pub dilation: (usize, usize),
    /// Groups of channels that do not mix.
    pub groups: usize,
    /// Whether there is a third input, the bias.
    pub bias: bool,
    /// Whether negative outputs become 0, with the bits and gradients of [`Relu`].
    pub relu: bool,
}

/// `padding_end` only where there is one: plans in files know graphs by the texts of their ops.
impl Debug for Conv2d {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Conv2d { stride, padding, padding_end, dilation, groups, bias, relu } = self;
        let mut text = f.debug_struct("Conv2d");
        text.field("stride", stride).field("padding", padding);
        if let Some(end) = padding_end {
            text.field("padding_end", end);
        }
        text.field("dilation", dilation).field("groups", groups).field("bias", bias).field("relu", relu).finish()
    }
}

impl Default for Conv2d {
    fn default() -> Self {
        Conv2d {
            stride: (1, 1),
            padding: (0, 0),
            padding_end: None,
            dilation: (1, 1),
            groups: 1,
            bias: true,
            relu: false,
        }
    }
}

/// Largest setting and extent, far beyond use and safe to calculate with.
pub(in crate::ops) const MAX_EXTENT: usize = 1 << 24;

/// Checks the types of `input, weight, bias`, and that the first two have four dimensions none of which is empty or absurd.
pub(in crate::ops) fn expect_operands(op: &'static str, inputs: &[TensorDesc]) -> Result<(), OpError> {
    for (name, desc) in ["input", "weight", "bias"].into_iter().zip(inputs) {
        expect_dtype(op, name, desc, DType::F32)?;
    }
    for (name, desc) in ["input", "weight"].into_iter().zip(inputs) {
        expect_rank(op, name, desc, 4)?;
        if desc.shape.iter().any(|extent| !(1..=MAX_EXTENT).contains(extent)) {
            let expected = format!("of extents 1..={MAX_EXTENT}");
            return Err(OpError::Input { op, input: name, expected, found: desc.clone() });
        }
    }
    Ok(())
}

/// Refuses weights over which one invocation would loop too often.
pub(in crate::ops) fn expect_short_sums(op: &'static str, weight: &TensorDesc, groups: usize) -> Result<(), OpError> {
    let (high, wide) = (weight.shape[2] as u64, weight.shape[3] as u64);
    let longest = weight.shape[1].max(weight.shape[0] / groups) as u64;
    if high * wide * (longest / 4 + 4) + high + wide <= MAX_LOOP_ITERATIONS {
        return Ok(());
    }
    let expected = "smaller: a sum over one kernel and all channels is too long".to_owned();
    Err(OpError::Input { op, input: "weight", expected, found: weight.clone() })
}

impl Conv2d {
    /// Refuses settings that make no sense, in the name of `op`.
    pub(in crate::ops) fn check_settings(&self, op: &'static str) -> Result<(), OpError> {
        let pairs = [
            ("stride", self.stride, 1),
            ("padding", self.padding, 0),
            ("padding_end", self.end(), 0),
            ("dilation", self.dilation, 1),
        ];
        for (setting, value, least) in pairs {
            let range = least..=MAX_EXTENT;
            if !range.contains(&value.0) || !range.contains(&value.1) {
                let reason = format!("both numbers must be in {least}..={MAX_EXTENT}");
                return Err(OpError::Setting { op, setting, value: format!("{value:?}"), reason });
            }
        }
        Ok(())
    }

    /// Rows of zeros below the input and columns on its right.
    pub(in crate::ops) fn end(&self) -> (usize, usize) {
        self.padding_end.unwrap_or(self.padding)
    }

    /// Output extent along one axis, of so many elements with the padding; `None` where the kernel does not fit.
    fn extent(padded: usize, kernel: usize, stride: usize, dilation: usize) -> Option<usize> {
        let reach = dilation * (kernel - 1) + 1;
        padded.checked_sub(reach).map(|rest| rest / stride + 1)
    }

    fn geometry(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Geometry {
        Geometry::new(self, &inputs[0].shape, &inputs[1].shape, &outputs[0].shape)
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let geometry = self.geometry(call.input_descs, call.output_descs);
        let bias = self.bias.then(|| call.input(2));
        twin::forward(&geometry, call.input(0), call.input(1), bias, call.output(0));
        if self.relu {
            call.output(0).iter_mut().for_each(|y| *y = Relu.value(*y));
        }
    }
}

impl Op for Conv2d {
    fn name(&self) -> &'static str {
        "conv2d"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let (before, after) = (self.padding, self.padding_end.unwrap_or(self.padding));
        let inputs = call.inputs();
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let attributes = [
            ("strides", (&[self.stride.0, self.stride.1][..]).into()),
            ("pads", (&[before.0, before.1, after.0, after.1][..]).into()),
            ("dilations", (&[self.dilation.0, self.dilation.1][..]).into()),
            ("group", (self.groups as i64).into()),
        ];
        let output = call.node("Conv", &inputs, attributes);
        Some(vec![call.with_relu(output, self.relu)])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        const OP: &str = "conv2d";
        self.check_settings(OP)?;
        expect_count(OP, inputs, if self.bias { 3 } else { 2 })?;
        expect_operands(OP, inputs)?;
        let (input, weight) = (&inputs[0], &inputs[1]);
        let refuse = |input: &'static str, expected: String, found: &TensorDesc| {
            Err(OpError::Input { op: OP, input, expected, found: found.clone() })
        };
        let (channels, out_channels) = (input.shape[1], weight.shape[0]);
        if self.groups == 0 || !channels.is_multiple_of(self.groups) || !out_channels.is_multiple_of(self.groups) {
            let reason = format!("it must divide the {channels} input and the {out_channels} output channels");
            return Err(OpError::Setting { op: OP, setting: "groups", value: self.groups.to_string(), reason });
        }
        if weight.shape[1] != channels / self.groups {
            let expected = format!("of shape [O, {}, KH, KW]", channels / self.groups);
            return refuse("weight", expected, weight);
        }
        if self.bias {
            expect_shape(OP, "bias", &inputs[2], [out_channels])?;
        }
        expect_short_sums(OP, weight, self.groups)?;
        let extent = |axis: usize, stride: usize, padding: usize, dilation: usize| {
            Conv2d::extent(input.shape[axis] + padding, weight.shape[axis], stride, dilation)
        };
        let end = self.end();
        let height = extent(2, self.stride.0, self.padding.0 + end.0, self.dilation.0);
        let width = extent(3, self.stride.1, self.padding.1 + end.1, self.dilation.1);
        let (Some(height), Some(width)) = (height, width) else {
            let expected = format!("at least as large as the dilated kernel of {weight}, padding included");
            return refuse("input", expected, input);
        };
        Ok(vec![TensorDesc::f32([input.shape[0], out_channels, height, width])])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let mut grads = vec![None; forward.inputs.len()];
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(grads) };
        let grad_output = if self.relu {
            activation::grad_input(Relu, graph, forward, forward.outputs[0], grad_output)?
        } else {
            grad_output
        };
        let (input, weight) = (forward.inputs[0], forward.inputs[1]);
        if forward.wanted[0] {
            let shape = &graph.desc(input).shape;
            let op = Conv2dGradInput { conv: *self, height: shape[2], width: shape[3] };
            grads[0] = Some(graph.emit(op, &[weight, grad_output])?);
        }
        if forward.wanted[1] {
            let shape = &graph.desc(weight).shape;
            let op = Conv2dGradWeight { conv: *self, kernel: (shape[2], shape[3]) };
            grads[1] = Some(graph.emit(op, &[input, grad_output])?);
        }
        if self.bias && forward.wanted[2] {
            grads[2] = Some(graph.emit(Conv2dGradBias, &[grad_output])?);
        }
        Ok(grads)
    }

    fn takes_epilogue(&self) -> bool {
        true
    }

    fn with_activation(&self, activation: BuiltInActivation) -> Option<Arc<dyn Op>> {
        let BuiltInActivation::Relu = activation;
        (!self.relu).then(|| Arc::new(Conv2d { relu: true, ..*self }) as Arc<dyn Op>)
    }

    fn cost_name(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> &'static str {
        if self.geometry(inputs, outputs).is_depthwise() { "conv2d.depthwise" } else { self.name() }
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let geometry = self.geometry(inputs, outputs);
        cost(geometry.flops(), inputs, outputs, &geometry.workspaces(Gather::Forward))
    }

    fn workspaces(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Vec<u64> {
        self.geometry(inputs, outputs).workspaces(Gather::Forward)
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        let bias = self.bias.then_some(Slot::Input(2));
        let operands = Operands { weight: Slot::Input(1), source: Slot::Input(0), bias, relu: self.relu };
        self.geometry(inputs, outputs).gather(Gather::Forward, target, operands)
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Conv2d {
    fn workspaces(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], threads: usize) -> Vec<u64> {
        self.geometry(inputs, outputs).native_forward_workspaces(threads)
    }

    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        Some(if self.bias { Parts::samples([true, false, false], 1) } else { Parts::samples([true, false], 1) })
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let geometry = self.geometry(call.input_descs, call.output_descs);
        let bias = self.bias.then(|| call.input(2));
        let operands = NativeOperands { source: call.input(0), weights: call.input(1), bias, relu: self.relu };
        geometry.run_forward(&operands, with, call.output(0));
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let plain = Conv2d { bias: false, ..Conv2d::default() };
    let case = |name: &str, conv: Conv2d, input: [usize; 4], weight: [usize; 4]| {
        let mut inputs = vec![TensorDesc::f32(input), TensorDesc::f32(weight)];
        if conv.bias {
            inputs.push(TensorDesc::f32([weight[0]]));
        }
        let [samples, channels, height, width] = input;
        let terms = weight[2] * weight[3] * channels.max(weight[0]);
        let case = Case::new(name, conv, inputs).reduction(terms.max(samples * height * width));
        if samples * channels * height * width * weight[0] * weight[2] * weight[3] > 40_000 {
            case.large()
        } else {
            case
        }
    };
    let same = Conv2d { padding: (1, 1), ..Conv2d::default() };
    let stride2 = Conv2d { stride: (2, 2), padding: (1, 1), ..Conv2d::default() };
    let groups = |conv: Conv2d, groups: usize| Conv2d { groups, ..conv };
    let sides = |start, end, conv: Conv2d| Conv2d { padding: start, padding_end: Some(end), ..conv };
    let strip = Conv2d { stride: (2, 1), padding: (0, 2), ..Conv2d::default() };
    let dilated = Conv2d { padding: (2, 2), dilation: (2, 2), ..Conv2d::default() };
    let uneven = Conv2d { stride: (1, 2), dilation: (1, 3), ..Conv2d::default() };
    let stride2_no_bias = Conv2d { stride: (2, 2), ..plain };
    let all = Conv2d { stride: (2, 3), padding: (2, 1), dilation: (2, 1), ..Conv2d::default() };
    let relu_same = Conv2d { relu: true, ..same };
    let common = Conv2d { stride: (2, 2), padding: (2, 3), dilation: (4, 2), ..Conv2d::default() };
    let gaps = Conv2d { stride: (3, 5), padding: (1, 1), ..Conv2d::default() };
    let wide = Conv2d { padding: (0, 3), ..Conv2d::default() };
    vec![
        case("basic", Conv2d::default(), [2, 3, 8, 8], [4, 3, 3, 3]),
        case("no_bias", plain, [2, 3, 6, 7], [5, 3, 3, 3]),
        case("one_pixel", Conv2d::default(), [3, 2, 1, 1], [2, 2, 1, 1]),
        case("one_pixel_vectors", Conv2d { relu: true, ..Conv2d::default() }, [7, 37, 1, 1], [53, 37, 1, 1]),
        case("kernel1x1", Conv2d::default(), [2, 4, 5, 5], [3, 4, 1, 1]),
        case("kernel1x1_stride2", stride2_no_bias, [2, 4, 5, 6], [3, 4, 1, 1]),
        case("kernel5_pad2", Conv2d { padding: (2, 2), ..Conv2d::default() }, [1, 1, 8, 8], [2, 1, 5, 5]),
        case("stride2_pad1", stride2, [2, 3, 9, 9], [4, 3, 3, 3]),
        case("stride2x1_pad0x2", strip, [1, 2, 7, 8], [3, 2, 3, 2]),
        case("stride3_leftover", Conv2d { stride: (3, 3), ..Conv2d::default() }, [1, 2, 10, 10], [2, 2, 2, 2]),
        case("dilation2_pad2", dilated, [1, 2, 9, 8], [3, 2, 3, 3]),
        case("dilation1x3_stride1x2", uneven, [1, 2, 6, 11], [2, 2, 2, 3]),
        case("groups2", groups(same, 2), [2, 4, 6, 6], [6, 2, 3, 3]),
        case("groups2_stride2_no_bias", groups(stride2_no_bias, 2), [1, 4, 7, 7], [2, 2, 3, 3]),
        case("depthwise", groups(same, 4), [2, 4, 6, 6], [4, 1, 3, 3]),
        case(
            "depthwise_two_per_channel",
            groups(Conv2d { stride: (2, 2), ..Conv2d::default() }, 3),
            [1, 3, 7, 7],
            [6, 1, 3, 3],
        ),
        case("channels9to17", same, [1, 9, 5, 5], [17, 9, 3, 3]),
        // Around the tiles, several tiles, vectors and none.
        case("channels36to65", same, [2, 36, 8, 9], [65, 36, 3, 3]),
        case("channels36to64", same, [2, 36, 8, 9], [64, 36, 3, 3]),
        // Winograd products: tiles in a row of four, and not; whole tiles, and not; several batch tiles, which begin within a
        // sample, and of weights.
        case("winograd_rows", same, [1, 16, 12, 16], [20, 16, 3, 3]),
        case("winograd_rows_no_padding", plain, [2, 20, 7, 20], [16, 20, 3, 3]),
        case(
            "winograd_rows_pad2",
            Conv2d { padding: (2, 2), relu: true, ..Conv2d::default() },
            [1, 16, 6, 28],
            [16, 16, 3, 3],
        ),
        case("winograd_pad1x2", Conv2d { padding: (1, 2), ..plain }, [3, 16, 5, 8], [24, 16, 3, 3]),
        case("winograd_tiles", same, [7, 16, 9, 16], [16, 16, 3, 3]),
        case("winograd_tiles_odd", same, [8, 16, 9, 11], [16, 16, 3, 3]),
        case("winograd_tiles_blocks", same, [3, 1156, 4, 4], [128, 1156, 3, 3]),
        case("channels42to63", same, [2, 42, 9, 7], [63, 42, 3, 3]),
        case("channels4to33", Conv2d::default(), [3, 4, 13, 11], [33, 4, 3, 3]),
        case("groups3_wide", groups(same, 3), [2, 15, 7, 12], [24, 5, 3, 3]),
        case("kernel1x1_vectors", plain, [3, 8, 4, 6], [34, 8, 1, 1]),
        case("kernel1x1_pad1", same, [1, 5, 3, 3], [4, 5, 1, 1]),
        case("all_settings", groups(all, 2), [2, 6, 11, 13], [8, 3, 3, 2]),
        case("depthwise_stride2_pad2", groups(Conv2d { padding: (2, 2), ..stride2 }, 5), [3, 5, 9, 11], [5, 1, 5, 3]),
        // Planes longer than one loop may be.
        case("long_plane", Conv2d::default(), [1, 2, 363, 363], [3, 2, 1, 1]),
        case("relu", relu_same, [2, 3, 6, 7], [5, 3, 3, 3]),
        case("relu_no_bias_vectors", Conv2d { relu: true, ..plain }, [3, 8, 4, 6], [34, 8, 1, 1]),
        case("relu_depthwise", groups(relu_same, 5), [2, 5, 7, 6], [5, 1, 3, 3]),
        // Few channels in a group: blocks in place of matrix products.
        case("depthwise_two_per_channel_pad1", groups(same, 3), [2, 3, 6, 7], [6, 1, 3, 3]),
        case("depthwise_5x5_stride2", groups(Conv2d { padding: (2, 2), ..stride2 }, 3), [2, 3, 9, 10], [3, 1, 5, 5]),
        case("depthwise_dilation2", groups(dilated, 3), [1, 3, 9, 11], [3, 1, 3, 3]),
        case("depthwise_all_settings", groups(all, 2), [2, 2, 11, 13], [6, 1, 3, 2]),
        case("depthwise_stride2_dilation4", groups(common, 2), [1, 2, 13, 12], [4, 1, 2, 3]),
        case("depthwise_gaps", groups(gaps, 2), [1, 2, 13, 19], [2, 1, 2, 2]),
        case("depthwise_long_kernel", groups(wide, 2), [1, 2, 5, 29], [2, 1, 1, 17]),
        case("depthwise_7x7_primes", groups(Conv2d { padding: (3, 3), ..plain }, 7), [3, 7, 17, 19], [7, 1, 7, 7]),
        case("depthwise_kernel1x1", groups(plain, 3), [2, 3, 5, 4], [3, 1, 1, 1]),
        // Pairs of pixels are read, vectors written: a block begins at the first of a pair, or at the second.
        case("depthwise_vectors", groups(same, 5), [2, 5, 6, 8], [5, 1, 3, 3]),
        case("depthwise_vectors_5x5", groups(Conv2d { padding: (2, 2), ..plain }, 3), [2, 3, 7, 12], [3, 1, 5, 5]),
        case(
            "depthwise_vectors_stride2",
            groups(Conv2d { padding: (1, 1), ..stride2 }, 3),
            [2, 3, 9, 16],
            [6, 1, 3, 3],
        ),
        case("depthwise_one_pixel", groups(same, 2), [1, 2, 1, 1], [2, 1, 3, 3]),
        case("groups3_channels5to3", groups(stride2, 3), [1, 15, 5, 6], [9, 5, 3, 3]),
        case("groups4_channels4", groups(same, 4), [2, 16, 9, 13], [16, 4, 3, 3]),
        case("groups2_channels8to7", groups(same, 2), [1, 16, 5, 6], [14, 8, 3, 3]),
        case("groups2_channels9", groups(stride2, 2), [1, 18, 7, 5], [18, 9, 3, 3]),
        // Gradients of strided convolutions: parts of the input meet different parts of the kernel, or nothing.
        case("patches", Conv2d { stride: (4, 4), ..Conv2d::default() }, [1, 3, 8, 12], [5, 3, 4, 4]),
        case("stride2_dilation4", common, [1, 3, 13, 12], [4, 3, 2, 3]),
        case("stride_beyond_input", Conv2d { stride: (9, 7), ..same }, [2, 3, 5, 6], [4, 3, 3, 3]),
        case("stride2_channels36to33", stride2, [2, 36, 13, 11], [33, 36, 3, 3]),
        // The same with parts of whole vectors, which are put together afterwards; several batch tiles.
        case("stride2_vectors", stride2, [2, 5, 10, 16], [9, 5, 3, 3]),
        case("kernel1x1_stride2_vectors", stride2_no_bias, [2, 6, 4, 8], [5, 6, 1, 1]),
        case("groups2_stride3x4_vectors", groups(Conv2d { stride: (3, 4), ..same }, 2), [2, 18, 9, 16], [18, 9, 2, 3]),
        case("stride2_tiles", stride2_no_bias, [3, 2, 512, 512], [3, 2, 2, 2]),
        // Other zeros above and on the left than below and on the right.
        case("same_upper_k2", sides((0, 0), (1, 1), Conv2d::default()), [2, 3, 5, 6], [4, 3, 2, 2]),
        case("same_upper_stride2_k3", sides((0, 0), (1, 1), stride2), [2, 3, 8, 10], [4, 3, 3, 3]),
        case("pads1x0_to_0x2", sides((1, 0), (0, 2), plain), [1, 2, 6, 7], [3, 2, 3, 4]),
        case("pads0_to_2_kernel1x1", sides((0, 0), (2, 1), Conv2d::default()), [2, 4, 3, 3], [3, 4, 1, 1]),
        case("pads0_to_2_kernel1x1_stride2", sides((0, 0), (2, 2), stride2_no_bias), [2, 8, 3, 3], [3, 8, 1, 1]),
        case("pads_all_settings", sides((1, 3), (4, 0), groups(all, 2)), [2, 6, 11, 13], [8, 3, 3, 2]),
        case("pads_depthwise", sides((0, 1), (2, 3), groups(stride2, 3)), [2, 3, 9, 8], [6, 1, 3, 3]),
        case("pads_depthwise_vectors", sides((0, 0), (2, 2), groups(same, 5)), [2, 5, 6, 8], [5, 1, 3, 3]),
        case("pads_stride2_vectors", sides((0, 0), (1, 1), stride2), [2, 5, 10, 16], [9, 5, 3, 3]),
        case("winograd_pads0_to_2", sides((0, 0), (2, 2), plain), [2, 16, 6, 8], [24, 16, 3, 3]),
        case("winograd_pads1_to_0", sides((1, 1), (0, 0), relu_same), [3, 16, 9, 11], [16, 16, 3, 3]),
        // Tiles that lie in the padding altogether.
        case("winograd_pads0_to_11", sides((0, 1), (11, 9), plain), [2, 16, 6, 8], [16, 16, 3, 3]),
        case("packed_pads", sides((0, 2), (3, 0), Conv2d::default()), [2, 10, 7, 9], [11, 10, 5, 5]),
        // Pixels with their channels side by side; several batch tiles.
        case("packed_5x5", Conv2d { padding: (2, 1), ..Conv2d::default() }, [2, 10, 7, 9], [11, 10, 5, 5]),
        case("packed_groups2_dilation2", groups(dilated, 2), [2, 24, 9, 8], [18, 12, 3, 3]),
        case("packed_tiles", Conv2d { stride: (3, 3), padding: (2, 2), ..plain }, [5, 9, 193, 191], [8, 9, 5, 5]),
        // The sum of the gradient of weight is split.
        case("split_weight", Conv2d::default(), [20, 1, 12, 12], [3, 1, 3, 3]),
        case("split_pointwise", plain, [9, 3, 16, 15], [5, 3, 1, 1]),
        case("depthwise_split", groups(same, 2), [16, 2, 20, 20], [2, 1, 3, 3]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_before_stay_as_they_are() {
        let conv = Conv2d { padding: (1, 2), ..Conv2d::default() };
        let text = "Conv2d { stride: (1, 1), padding: (1, 2), dilation: (1, 1), groups: 1, bias: true, relu: false }";
        assert_eq!(format!("{conv:?}"), text);
        let sides = Conv2d { padding_end: Some((0, 3)), ..conv };
        assert_eq!(format!("{sides:?}"), text.replace("(1, 2), ", "(1, 2), padding_end: (0, 3), "));
    }

    #[test]
    fn outputs_have_room_for_both_sides() {
        let outputs = |conv: Conv2d, input: [usize; 4], weight: [usize; 4]| {
            let conv = Conv2d { bias: false, ..conv };
            conv.outputs(&[TensorDesc::f32(input), TensorDesc::f32(weight)]).map_err(|error| error.to_string())
        };
        let sides = |start, end| Conv2d { padding: start, padding_end: Some(end), ..Conv2d::default() };
        assert_eq!(outputs(sides((0, 2), (1, 0)), [1, 1, 5, 6], [1, 1, 2, 4]), Ok(vec![TensorDesc::f32([1, 1, 5, 5])]));
        assert!(outputs(sides((0, 0), (1, 0)), [1, 1, 2, 6], [1, 1, 4, 1]).is_err());
        let huge = outputs(sides((0, 0), (MAX_EXTENT + 1, 0)), [1, 1, 5, 6], [1, 1, 2, 4]);
        assert!(huge.is_err_and(|error| error.contains("padding_end")));
    }
}
