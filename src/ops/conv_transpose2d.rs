//! Two-dimensional transposed convolution.

use super::conv2d::{Conv2d, Conv2dGradBias, Conv2dGradWeight, Gather, Geometry, MAX_EXTENT, cost, twin};
use super::slice::Slice;
use super::{Backward, Builder, Call, Case, Cost, Dispatch, Op, Real, Slot};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::{TensorDesc, ValueId};

/// `output[n, o, y, x] = bias[o] + Σ over c, ky, kx of weight[c, o, ky, kx] · input[n, c, (y + padding − ky · dilation) / stride,
/// (x + padding − kx · dilation) / stride]`, over the positions that are whole numbers within the input, where `c` runs over
/// the channels of the group of `o`: what [`Conv2d`] does to the gradient of its output.
///
/// | tensor | shape |
/// |---|---|
/// | input | `[N, C, H, W]` |
/// | weight | `[C, O / groups, KH, KW]` |
/// | bias, if `bias` | `[O]` |
/// | output | `[N, O, H', W']`, `H' = (H − 1) · stride − 2 · padding + dilation · (KH − 1) + output_padding + 1`, `W'` likewise |
///
/// **Saved for backward:** input where weight wants a gradient, weight where input wants one. **In place:** no.
/// **Workspaces:** the weights once more, in the order in which the kernel reads them; for the gradient of weight the parts
/// of a split sum.
/// **Numerics:** sums in f32, in an order that depends on the shapes only. The kernels are those of [`Conv2d`]: its gradient
/// of input here is forward, its forward the gradient of input, and in its gradient of weight the images change places.
///
/// # Errors
/// As [`Conv2d`]; and where no output is left, or `output_padding` is at least as large as both stride and dilation.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.ConvTranspose2d.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvTranspose2d {
    /// Rows and columns of the output from one input pixel to the next.
    pub stride: (usize, usize),
    /// Rows and columns left out on each side of the output.
    pub padding: (usize, usize),
    /// Rows and columns more at the end of the output.
    pub output_padding: (usize, usize),
    /// Rows and columns from one kernel element to the next.
    pub dilation: (usize, usize),
    /// Groups of channels that do not mix.
    pub groups: usize,
    /// Whether there is a third input, the bias.
    pub bias: bool,
}

impl Default for ConvTranspose2d {
    fn default() -> Self {
        let one = (1, 1);
        ConvTranspose2d { stride: one, padding: (0, 0), output_padding: (0, 0), dilation: one, groups: 1, bias: true }
    }
}

impl ConvTranspose2d {
    /// The convolution from the output to the input.
    fn conv(&self) -> Conv2d {
        let ConvTranspose2d { stride, padding, dilation, groups, bias, .. } = *self;
        Conv2d { stride, padding, dilation, groups, bias, relu: false }
    }

    fn geometry(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Geometry {
        Geometry::new(&self.conv(), &outputs[0].shape, &inputs[1].shape, &inputs[0].shape)
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let geometry = self.geometry(call.input_descs, call.output_descs);
        let (input, weight) = (call.input(0), call.input(1));
        let bias = self.bias.then(|| call.input(2));
        let plane = call.output_shape(0)[2] * call.output_shape(0)[3];
        let output = call.output(0);
        twin::grad_input(&geometry, weight, input, output);
        let Some(bias) = bias else { return };
        for (i, plane) in output.chunks_exact_mut(plane).enumerate() {
            for y in plane {
                *y += bias[i % bias.len()];
            }
        }
    }
}

impl Op for ConvTranspose2d {
    fn name(&self) -> &'static str {
        "conv_transpose2d"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        const OP: &str = "conv_transpose2d";
        let out_channels = self.conv().check(OP, true, inputs)?;
        let (input, weight) = (&inputs[0], &inputs[1]);
        let axes = [
            (self.output_padding.0, self.stride.0, self.dilation.0, self.padding.0),
            (self.output_padding.1, self.stride.1, self.dilation.1, self.padding.1),
        ];
        if axes.iter().any(|&(extra, stride, dilation, _)| extra >= stride.max(dilation)) {
            let reason = "it must be smaller than the stride or the dilation".to_owned();
            let value = format!("{:?}", self.output_padding);
            return Err(OpError::Setting { op: OP, setting: "output_padding", value, reason });
        }
        let mut shape = [input.shape[0], out_channels, 0, 0];
        for (axis, (extra, stride, dilation, padding)) in (2..).zip(axes) {
            let whole = (input.shape[axis] - 1) * stride + dilation * (weight.shape[axis] - 1) + extra + 1;
            shape[axis] = whole.checked_sub(2 * padding).unwrap_or(0);
            if !(1..=MAX_EXTENT).contains(&shape[axis]) {
                let expected = format!("such that the output, {whole} less twice the padding, has 1..={MAX_EXTENT} pixels");
                return Err(OpError::Input { op: OP, input: "input", expected, found: input.clone() });
            }
        }
        Ok(vec![TensorDesc::f32(shape)])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let mut grads = vec![None; forward.inputs.len()];
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(grads) };
        let (input, weight) = (forward.inputs[0], forward.inputs[1]);
        let conv = Conv2d { bias: false, ..self.conv() };
        if forward.wanted[0] {
            let mut grad_input = graph.emit(conv, &[grad_output, weight])?;
            for axis in [2, 3] {
                let length = graph.desc(input).shape[axis];
                // With a whole stride of output padding or more, the convolution goes past the input's last pixel.
                if graph.desc(grad_input).shape[axis] > length {
                    grad_input = graph.emit(Slice { axis, start: 0, length }, &[grad_input])?;
                }
            }
            grads[0] = Some(grad_input);
        }
        if forward.wanted[1] {
            let shape = &graph.desc(weight).shape;
            let op = Conv2dGradWeight { conv, kernel: (shape[2], shape[3]) };
            grads[1] = Some(graph.emit(op, &[grad_output, input])?);
        }
        if self.bias && forward.wanted[2] {
            grads[2] = Some(graph.emit(Conv2dGradBias, &[grad_output])?);
        }
        Ok(grads)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let geometry = self.geometry(inputs, outputs);
        cost(geometry.flops(), inputs, outputs, geometry.packed_bytes(Gather::GradInput))
    }

    fn workspaces(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Vec<u64> {
        self.geometry(inputs, outputs).packed_bytes(Gather::GradInput).into_iter().collect()
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        let mut dispatches = self.geometry(inputs, outputs).gather(Gather::GradInput, target, self.bias, false);
        for slot in dispatches.iter_mut().flat_map(|dispatch| &mut dispatch.bindings) {
            // The gradient's inputs are weight and grad_output, here the image comes first.
            *slot = match *slot {
                Slot::Input(0) => Slot::Input(1),
                Slot::Input(1) => Slot::Input(0),
                slot => slot,
            };
        }
        dispatches
    }

    twin!();
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    let plain = ConvTranspose2d { bias: false, ..ConvTranspose2d::default() };
    let case = |name: &str, op: ConvTranspose2d, input: [usize; 4], weight: [usize; 4]| {
        let mut inputs = vec![TensorDesc::f32(input), TensorDesc::f32(weight)];
        if op.bias {
            inputs.push(TensorDesc::f32([weight[1] * op.groups]));
        }
        let [samples, channels, height, width] = input;
        let pixels = samples * height * width;
        let terms = weight[2] * weight[3] * channels.max(weight[1] * op.groups);
        // The gradient of bias sums over the output.
        let outputs = pixels * op.stride.0.max(2) * op.stride.1.max(2);
        let case = Case::new(name, op, inputs).reduction(terms.max(outputs));
        if pixels * channels * weight[1] * weight[2] * weight[3] > 40_000 { case.large() } else { case }
    };
    let stride2 = ConvTranspose2d { stride: (2, 2), ..ConvTranspose2d::default() };
    let same = ConvTranspose2d { stride: (2, 2), padding: (1, 1), output_padding: (1, 1), ..ConvTranspose2d::default() };
    let uneven = ConvTranspose2d { stride: (3, 1), padding: (0, 2), output_padding: (2, 0), ..plain };
    let dilated = ConvTranspose2d { padding: (1, 2), dilation: (2, 3), ..ConvTranspose2d::default() };
    let padded = ConvTranspose2d { output_padding: (2, 1), dilation: (3, 2), ..ConvTranspose2d::default() };
    let groups = |op: ConvTranspose2d, groups: usize| ConvTranspose2d { groups, ..op };
    let all = ConvTranspose2d {
        stride: (2, 3),
        padding: (2, 1),
        output_padding: (1, 2),
        dilation: (2, 1),
        groups: 2,
        bias: true,
    };
    vec![
        case("basic", ConvTranspose2d::default(), [1, 3, 5, 4], [3, 2, 3, 3]),
        case("one_pixel", ConvTranspose2d::default(), [3, 2, 1, 1], [2, 2, 1, 1]),
        case("kernel1x1_no_bias", plain, [2, 4, 3, 5], [4, 3, 1, 1]),
        case("kernel2_stride2", stride2, [2, 3, 3, 2], [3, 2, 2, 2]),
        case("kernel4_stride2_pad1", ConvTranspose2d { padding: (1, 1), ..stride2 }, [1, 3, 4, 5], [3, 2, 4, 4]),
        case("kernel3_stride2_pad1_out1", same, [2, 3, 2, 3], [3, 2, 3, 3]),
        case("stride3x1_pad0x2_out2x0", uneven, [1, 2, 3, 6], [2, 3, 2, 5]),
        case("stride3_kernel1_gaps", ConvTranspose2d { stride: (3, 3), ..plain }, [1, 2, 3, 4], [2, 3, 1, 1]),
        case("dilation2x3_pad1x2", dilated, [1, 2, 5, 6], [2, 3, 3, 2]),
        case("dilation3x2_out2x1", padded, [1, 2, 4, 3], [2, 3, 2, 2]),
        case("dilation3x2_out2x1_kernel1", padded, [1, 2, 4, 3], [2, 3, 1, 1]),
        case("groups2", groups(same, 2), [1, 4, 3, 2], [4, 3, 3, 3]),
        case("depthwise_stride2", groups(same, 3), [2, 3, 3, 2], [3, 1, 3, 3]),
        case("all_settings", all, [2, 4, 3, 2], [4, 1, 3, 2]),
        case("channels17to9", ConvTranspose2d { bias: false, ..same }, [1, 17, 3, 3], [17, 9, 3, 3]),
        case("all_settings_larger", all, [3, 6, 7, 5], [6, 5, 3, 2]),
        // Around the tiles, several tiles, vectors and none.
        case("channels64to36_stride2", stride2, [2, 64, 6, 5], [64, 36, 2, 2]),
        case("channels65to33", same, [1, 65, 5, 7], [65, 33, 3, 3]),
        case("kernel1x1_vectors", ConvTranspose2d::default(), [3, 34, 4, 6], [34, 8, 1, 1]),
        case("depthwise_vectors", groups(ConvTranspose2d { padding: (1, 1), ..stride2 }, 5), [3, 5, 6, 8], [5, 1, 4, 4]),
        // The sum of the gradient of weight is split.
        case("split_weight", stride2, [20, 3, 9, 12], [3, 1, 2, 2]),
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
        let plain = ConvTranspose2d { bias: false, ..ConvTranspose2d::default() };
        let fit = outputs(ConvTranspose2d { stride: (2, 2), ..plain }, [2, 3, 4, 5], [3, 7, 2, 2]);
        assert_eq!(fit, Ok(vec![TensorDesc::f32([2, 7, 8, 10])]));
        let refused = |op, input, weight, words: &str| {
            let error = outputs(op, input, weight).expect_err("must be refused");
            assert!(error.starts_with("conv_transpose2d: ") && error.contains(words), "{error}");
        };
        refused(plain, [2, 3, 4, 5], [4, 7, 2, 2], "`weight` must be of shape [3, O / 1, KH, KW]");
        refused(ConvTranspose2d { groups: 2, ..plain }, [2, 3, 4, 5], [3, 1, 2, 2], "groups = 2 is not possible");
        refused(ConvTranspose2d { groups: usize::MAX, ..plain }, [2, 3, 4, 5], [3, 1, 2, 2], "groups");
        refused(ConvTranspose2d { output_padding: (0, 1), ..plain }, [2, 3, 4, 5], [3, 1, 2, 2], "output_padding = (0, 1)");
        refused(ConvTranspose2d { padding: (1, 1), ..plain }, [1, 1, 1, 1], [1, 1, 2, 2], "2 less twice the padding");
        refused(ConvTranspose2d { stride: (1 << 24, 1), ..plain }, [1, 1, 9, 1], [1, 1, 2, 2], "pixels");
        refused(ConvTranspose2d { stride: (0, 1), ..plain }, [1, 1, 9, 1], [1, 1, 2, 2], "stride = (0, 1)");
    }
}
