//! One number per channel of each sample, multiplied.

use super::reduce;
use super::{
    Backward, Builder, Call, Case, Cost, Dispatch, MAX_LOOP_ITERATIONS, Op, Real, Slot, activation, expect_count,
    expect_dtype, expect_shape,
};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output[n, c, …] = scale[n, c] · input[n, c, …]`
///
/// | tensor | shape |
/// |---|---|
/// | input | `[N, C, …]` |
/// | scale | `[N, C]` |
/// | output | as input |
///
/// **Saved for backward:** scale where input wants a gradient, input where scale wants one. **In place:** yes, on the input.
/// **Numerics:** the gradient of scale is a sum in f32, in an order that depends on the shapes only.
///
/// # Errors
/// Where an input is not f32, the input has fewer than 2 dimensions, scale is not `[N, C]`, or a channel of a sample has more
/// elements than a kernel may loop over (4,193,728).
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.mul.html> (broadcast)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulChannels;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    vectors: u32,
    rows: u32,
    inner: u32,
}

/// Most elements of a channel of a sample: 64 invocations share them out, and then add up their sums.
const MAX_INNER: usize = 64 * (MAX_LOOP_ITERATIONS as usize - 8);

/// Elements of one channel of one sample.
fn inner(shape: &Shape) -> usize {
    shape[2..].iter().product()
}

/// A launch that works on a tensor of this shape.
fn launch(entry: &'static str, bindings: [Slot; 3], shape: &Shape) -> Dispatch {
    let [vectors, rows, inner] = [shape.numel().div_ceil(4), shape[0] * shape[1], inner(shape)].map(|n| n as u32);
    Dispatch::new("mul_channels", entry, bindings).params(&Params { vectors, rows, inner })
}

impl MulChannels {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let inner = inner(&call.input_descs[0].shape);
        let (input, scale) = (call.input(0), call.input(1));
        for (i, (y, &x)) in call.output(0).iter_mut().zip(input).enumerate() {
            *y = scale[i / inner] * x;
        }
    }
}

impl Op for MulChannels {
    fn name(&self) -> &'static str {
        "mul_channels"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        const OP: &str = "mul_channels";
        expect_count(OP, inputs, 2)?;
        expect_dtype(OP, "input", &inputs[0], DType::F32)?;
        expect_dtype(OP, "scale", &inputs[1], DType::F32)?;
        let shape = &inputs[0].shape;
        if shape.len() < 2 || inner(shape) > MAX_INNER {
            let expected = format!("of shape [N, C, …] with at most {MAX_INNER} elements after the channels");
            return Err(OpError::Input { op: OP, input: "input", expected, found: inputs[0].clone() });
        }
        expect_shape(OP, "scale", &inputs[1], [shape[0], shape[1]])?;
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let (input, scale) = (forward.inputs[0], forward.inputs[1]);
        let mut grads = vec![None, None];
        // First the one after which the input can go.
        if forward.wanted[1] {
            grads[1] = Some(graph.emit(MulChannelsGradScale, &[input, grad_output])?);
        }
        if forward.wanted[0] {
            grads[0] = Some(graph.emit(MulChannels, &[grad_output, scale])?);
        }
        Ok(grads)
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let shape = &inputs[0].shape;
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Output(0)];
        vec![launch("forward", bindings, shape).linear(shape.numel().div_ceil(4).div_ceil(64))]
    }

    twin!();
}

/// `grad_scale[n, c] = Σ input[n, c, …] · grad_output[n, c, …]`; inputs `input, grad_output`.
#[derive(Clone, Copy, Debug)]
struct MulChannelsGradScale;

impl MulChannelsGradScale {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let inner = inner(&call.input_descs[0].shape);
        let (input, grad_output) = (call.input(0), call.input(1));
        let rows = input.chunks_exact(inner).zip(grad_output.chunks_exact(inner));
        for (d, (x, g)) in call.output(0).iter_mut().zip(rows) {
            *d = x.iter().zip(g).map(|(&x, &g)| x * g).sum();
        }
    }
}

impl Op for MulChannelsGradScale {
    fn name(&self) -> &'static str {
        "mul_channels.grad_scale"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("mul_channels.grad_scale", inputs, 2)?;
        Ok(vec![TensorDesc::f32(&inputs[0].shape[..2])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let bytes_moved = 2 * inputs[0].size_bytes() + outputs[0].size_bytes();
        Cost { flops: 2 * inputs[0].numel() as u64, bytes_moved }
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let inner = inner(&inputs[0].shape);
        let lanes = reduce::row_lanes(inner);
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Output(0)];
        let dispatch = launch("grad_scale", bindings, &inputs[0].shape).loops(inner.div_ceil(lanes) + 8);
        vec![reduce::over_rows(dispatch, outputs[0].numel(), lanes)]
    }

    twin!();
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    let case = |shape: &[usize]| {
        let descs = [TensorDesc::f32(shape), TensorDesc::f32(&shape[..2])];
        Case::new(activation::shape_name(shape), MulChannels, descs).reduction(shape[2..].iter().product())
    };
    vec![
        case(&[1, 1]),
        case(&[4, 7]),
        case(&[3, 8]),
        case(&[2, 5, 3]),
        case(&[2, 3, 4, 5]),
        case(&[3, 17, 1, 1]),
        case(&[2, 3, 2, 2]),
        case(&[2, 2, 3, 1, 3]),
        case(&[1031, 12]).large(),
        case(&[3, 67, 28, 28]).large(),
        case(&[2, 3, 173, 181]).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_does_not_fit() {
        let outputs = |input: &[usize], scale: &[usize]| {
            MulChannels.outputs(&[TensorDesc::f32(input), TensorDesc::f32(scale)]).map_err(|error| error.to_string())
        };
        assert!(outputs(&[2, 3, 4], &[2, 3]).is_ok());
        assert!(outputs(&[2, 3, 4], &[3]).is_err_and(|e| e.contains("`scale` must be of shape [2, 3]")));
        assert!(outputs(&[2], &[2]).is_err_and(|e| e.contains("`input` must be of shape [N, C, …]")));
        assert!(outputs(&[1, 1, 1 << 23], &[1, 1]).is_err_and(|e| e.contains("at most")));
    }
}
