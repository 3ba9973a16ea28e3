//! Two-dimensional transposed convolution.

use std::fmt::{self, Debug, Formatter};

use crate::error::OpError;
use crate::ops::conv::conv2d::{
    Conv2d, Conv2dGradBias, Conv2dGradWeight, Gather, Geometry, MAX_EXTENT, NativeOperands, Operands, cost,
    expect_operands, expect_short_sums, grad_input_twin,
};
use crate::ops::onnx;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Native, Op, Parts, Real, Resources, Slot, expect_count, expect_shape,
};
use crate::shader::Target;
use crate::tensor::{TensorDesc, ValueId};

/// `output[n, o, y · stride − padding + ky · dilation, x · stride − padding + kx · dilation] += weight[c, o, ky, kx] ·
/// input[n, c, y, x]`, starting from `bias[o]`, where what falls outside of the output is dropped and `c` runs over the
/// channels of the group of `o`: the gradient of [`Conv2d`] for its input, with the same settings and weights.
///
/// | tensor | shape |
/// |---|---|
/// | input | `[N, C, H, W]` |
/// | weight | `[C, O / groups, KH, KW]` |
/// | bias, if `bias` | `[O]` |
/// | output | `[N, O, H', W']` with `H' = (H − 1) · stride − padding − padding_end + dilation · (KH − 1) + output_padding + 1`, `W'` likewise |
///
/// Runs the kernels of `conv2d`: forward its `grad_input`, the gradient of input its `forward`, that of weight its
/// `grad_weight` with the two images exchanged.
///
/// **Saved for backward:** input where weight wants a gradient, weight where input wants one. **In place:** no.
/// **Workspaces:** the weights once more, in the order in which the kernel reads them; for the gradient of weight the parts
/// of a split sum.
/// **Numerics:** sums in f32, in an order that depends on the shapes only.
///
/// # Errors
/// Where shapes do not fit together, nothing is left of the output, a setting is 0 that must not be, `output_padding` is
/// not below `stride`, an input is not f32, or a sum is longer than a kernel may loop.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.ConvTranspose2d.html>
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConvTranspose2d {
    /// Rows and columns of the output from one input pixel to the next.
    pub stride: (usize, usize),
    /// Rows cut off above and columns on the left of the output, and as many below and on the right but for `padding_end`.
    pub padding: (usize, usize),
    /// Rows cut off below and columns on the right of the output, where they are not as many as above and on the left.
    pub padding_end: Option<(usize, usize)>,
    /// Rows and columns that the output has more, below and on the right.
    pub output_padding: (usize, usize),
    /// Rows and columns from one kernel element to the next.
    pub dilation: (usize, usize),
    /// Groups of channels that do not mix.
    pub groups: usize,
    /// Whether there is a third input, the bias.
    pub bias: bool,
}

/// `padding_end` only where there is one: plans in files know graphs by the texts of their ops.
impl Debug for ConvTranspose2d {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ConvTranspose2d { stride, padding, padding_end, output_padding, dilation, groups, bias } = self;
        let mut text = f.debug_struct("ConvTranspose2d");
        text.field("stride", stride).field("padding", padding);
        if let Some(end) = padding_end {
            text.field("padding_end", end);
        }
        text.field("output_padding", output_padding).field("dilation", dilation);
        text.field("groups", groups).field("bias", bias).finish()
    }
}

impl Default for ConvTranspose2d {
    fn default() -> Self {
        let Conv2d { stride, padding, padding_end, dilation, groups, bias, .. } = Conv2d::default();
        ConvTranspose2d { stride, padding, padding_end, output_padding: (0, 0), dilation, groups, bias }
    }
}

impl ConvTranspose2d {
    /// The convolution from the output back to the input.
    fn conv(&self) -> Conv2d {
        let ConvTranspose2d { stride, padding, padding_end, dilation, groups, .. } = *self;
        Conv2d { stride, padding, padding_end, dilation, groups, bias: false, relu: false }
    }

    fn geometry(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Geometry {
        Geometry::new(&self.conv(), &outputs[0].shape, &inputs[1].shape, &inputs[0].shape)
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let geometry = self.geometry(call.input_descs, call.output_descs);
        grad_input_twin(&geometry, call.input(1), call.input(0), call.output(0));
        if self.bias {
            let (bias, plane) = (call.input(2), geometry.input_plane());
            for (i, plane) in call.output(0).chunks_exact_mut(plane).enumerate() {
                plane.iter_mut().for_each(|y| *y += bias[i % bias.len()]);
            }
        }
    }
}

impl Op for ConvTranspose2d {
    fn name(&self) -> &'static str {
        "conv_transpose2d"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let inputs = call.inputs();
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let (before, after) = (self.padding, self.padding_end.unwrap_or(self.padding));
        let attributes = [
            ("strides", (&[self.stride.0, self.stride.1][..]).into()),
            ("pads", (&[before.0, before.1, after.0, after.1][..]).into()),
            ("output_padding", (&[self.output_padding.0, self.output_padding.1][..]).into()),
            ("dilations", (&[self.dilation.0, self.dilation.1][..]).into()),
            ("group", (self.groups as i64).into()),
        ];
        Some(vec![call.node("ConvTranspose", &inputs, attributes)])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        const OP: &str = "conv_transpose2d";
        self.conv().check_settings(OP)?;
        let refuse = |setting, value: String, reason: String| Err(OpError::Setting { op: OP, setting, value, reason });
        if self.output_padding.0 >= self.stride.0 || self.output_padding.1 >= self.stride.1 {
            let reason = format!("it must be below stride {:?}", self.stride);
            return refuse("output_padding", format!("{:?}", self.output_padding), reason);
        }
        expect_count(OP, inputs, if self.bias { 3 } else { 2 })?;
        expect_operands(OP, inputs)?;
        let (input, weight) = (&inputs[0].shape, &inputs[1].shape);
        if self.groups == 0 || self.groups > MAX_EXTENT || !input[1].is_multiple_of(self.groups) {
            let reason = format!("it must divide the {} input channels", input[1]);
            return refuse("groups", self.groups.to_string(), reason);
        }
        if weight[0] != input[1] {
            let expected = format!("of shape [{}, O / groups, KH, KW]", input[1]);
            return Err(OpError::Input { op: OP, input: "weight", expected, found: inputs[1].clone() });
        }
        let channels = weight[1] * self.groups;
        if self.bias {
            expect_shape(OP, "bias", &inputs[2], [channels])?;
        }
        expect_short_sums(OP, &inputs[1], self.groups)?;
        let extent = |axis: usize, stride: usize, padding: usize, output_padding: usize, dilation: usize| {
            let whole = (input[axis] - 1) * stride + dilation * (weight[axis] - 1) + output_padding + 1;
            whole.checked_sub(padding).filter(|extent| (1..=MAX_EXTENT).contains(extent))
        };
        let end = self.conv().end();
        let height = extent(2, self.stride.0, self.padding.0 + end.0, self.output_padding.0, self.dilation.0);
        let width = extent(3, self.stride.1, self.padding.1 + end.1, self.output_padding.1, self.dilation.1);
        let (Some(height), Some(width)) = (height, width) else {
            let reason =
                format!("of {} and weights {} the output must keep 1..={MAX_EXTENT} pixels", inputs[0], inputs[1]);
            return refuse("padding", format!("{:?}", self.padding), reason);
        };
        Ok(vec![TensorDesc::f32([input[0], channels, height, width])])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let mut grads = vec![None; forward.inputs.len()];
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(grads) };
        let (input, weight) = (forward.inputs[0], forward.inputs[1]);
        if forward.wanted[0] {
            grads[0] = Some(graph.emit(self.conv(), &[grad_output, weight])?);
        }
        if forward.wanted[1] {
            let shape = &graph.desc(weight).shape;
            let op = Conv2dGradWeight { conv: self.conv(), kernel: (shape[2], shape[3]) };
            grads[1] = Some(graph.emit(op, &[grad_output, input])?);
        }
        if self.bias && forward.wanted[2] {
            grads[2] = Some(graph.emit(Conv2dGradBias, &[grad_output])?);
        }
        Ok(grads)
    }

    fn takes_epilogue(&self) -> bool {
        true
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let geometry = self.geometry(inputs, outputs);
        cost(geometry.flops(), inputs, outputs, &geometry.workspaces(Gather::GradInput))
    }

    fn workspaces(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Vec<u64> {
        self.geometry(inputs, outputs).workspaces(Gather::GradInput)
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        let bias = self.bias.then_some(Slot::Input(2));
        let operands = Operands { weight: Slot::Input(1), source: Slot::Input(0), bias, relu: false };
        self.geometry(inputs, outputs).gather(Gather::GradInput, target, operands)
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for ConvTranspose2d {
    fn workspaces(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], threads: usize) -> Vec<u64> {
        self.geometry(inputs, outputs).native_backward_workspaces(threads)
    }

    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        Some(if self.bias { Parts::samples([true, false, false], 1) } else { Parts::samples([true, false], 1) })
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let geometry = self.geometry(call.input_descs, call.output_descs);
        let bias = self.bias.then(|| call.input(2));
        let operands = NativeOperands { source: call.input(0), weights: call.input(1), bias, relu: false };
        geometry.run_backward(&operands, with, call.output(0));
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, op: ConvTranspose2d, input: [usize; 4], weight: [usize; 4]| {
        let mut inputs = vec![TensorDesc::f32(input), TensorDesc::f32(weight)];
        if op.bias {
            inputs.push(TensorDesc::f32([weight[1] * op.groups]));
        }
        let [samples, channels, height, width] = input;
        let terms = weight[2] * weight[3] * channels.max(weight[1] * op.groups);
        let pixels = samples * (height * op.stride.0 + weight[2]) * (width * op.stride.1 + weight[3]);
        let case = Case::new(name, op, inputs).reduction(terms.max(pixels));
        let products = samples * height * width * weight.iter().product::<usize>();
        if products > 40_000 { case.large() } else { case }
    };
    let plain = ConvTranspose2d { bias: false, ..ConvTranspose2d::default() };
    let basic = ConvTranspose2d::default();
    let double = ConvTranspose2d { stride: (2, 2), ..basic };
    let all = ConvTranspose2d {
        stride: (2, 3),
        padding: (2, 1),
        padding_end: None,
        output_padding: (1, 2),
        dilation: (2, 1),
        groups: 2,
        bias: true,
    };
    let sides = |start, end, op: ConvTranspose2d| ConvTranspose2d { padding: start, padding_end: Some(end), ..op };
    let padded = ConvTranspose2d { padding: (1, 1), output_padding: (1, 1), ..double };
    vec![
        case("basic", basic, [2, 3, 5, 6], [3, 4, 3, 3]),
        case("no_bias", plain, [2, 3, 4, 4], [3, 5, 2, 3]),
        case("one_pixel", basic, [3, 2, 1, 1], [2, 2, 1, 1]),
        case("kernel2_stride2", double, [2, 4, 3, 5], [4, 3, 2, 2]),
        case(
            "kernel1_stride2_output_padding",
            ConvTranspose2d { output_padding: (1, 0), ..double },
            [1, 2, 3, 4],
            [2, 3, 1, 1],
        ),
        case("kernel3_stride2_pad1_output_padding1", padded, [2, 3, 4, 5], [3, 4, 3, 3]),
        case("kernel4_stride2_pad1", ConvTranspose2d { padding: (1, 1), ..double }, [1, 3, 4, 4], [3, 2, 4, 4]),
        case(
            "dilation2_pad1",
            ConvTranspose2d { padding: (1, 1), dilation: (2, 2), ..plain },
            [1, 2, 5, 4],
            [2, 3, 3, 3],
        ),
        case("groups2", ConvTranspose2d { groups: 2, ..double }, [2, 4, 3, 4], [4, 3, 2, 3]),
        case("depthwise", ConvTranspose2d { groups: 3, ..padded }, [2, 3, 5, 4], [3, 1, 3, 3]),
        // Other rows and columns cut off in front than behind.
        case("kernel3_stride2_pads0_to_1", sides((0, 0), (1, 1), double), [2, 3, 4, 5], [3, 4, 3, 3]),
        case("kernel2_pads1x0_to_0x1", sides((1, 0), (0, 1), plain), [1, 4, 5, 6], [4, 3, 2, 2]),
        case("kernel1x1_pads0_to_1", sides((0, 0), (1, 2), basic), [2, 8, 4, 6], [8, 5, 1, 1]),
        case(
            "pads_depthwise",
            ConvTranspose2d { groups: 3, ..sides((0, 1), (2, 0), double) },
            [2, 3, 5, 4],
            [3, 1, 3, 3],
        ),
        case("pads_all_settings", sides((3, 0), (0, 2), all), [2, 4, 5, 4], [4, 3, 3, 2]),
        case("all_settings", all, [2, 4, 5, 4], [4, 3, 3, 2]),
        case("channels36to33_stride2", padded, [2, 36, 5, 7], [36, 33, 3, 3]),
        case("kernel1x1_vectors", basic, [3, 8, 4, 6], [8, 34, 1, 1]),
        case("split_weight", double, [9, 2, 9, 7], [2, 3, 3, 3]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_does_not_fit() {
        let outputs = |op: ConvTranspose2d, input: [usize; 4], weight: [usize; 4]| {
            op.outputs(&[TensorDesc::f32(input), TensorDesc::f32(weight)]).map_err(|error| error.to_string())
        };
        let op = ConvTranspose2d { stride: (2, 2), bias: false, ..ConvTranspose2d::default() };
        assert_eq!(outputs(op, [1, 4, 7, 7], [4, 3, 2, 2]), Ok(vec![TensorDesc::f32([1, 3, 14, 14])]));
        let refused = |op, weight, part: &str| {
            assert!(outputs(op, [1, 4, 7, 7], weight).is_err_and(|error| error.contains(part)), "{part}");
        };
        refused(op, [3, 4, 2, 2], "of shape [4, O / groups, KH, KW]");
        refused(ConvTranspose2d { output_padding: (2, 0), ..op }, [4, 3, 2, 2], "below stride (2, 2)");
        refused(ConvTranspose2d { padding: (7, 7), ..op }, [4, 3, 2, 2], "padding");
        refused(ConvTranspose2d { groups: 3, ..op }, [4, 3, 2, 2], "must divide the 4 input channels");
    }
}
