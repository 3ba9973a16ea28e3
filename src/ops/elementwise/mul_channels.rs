//! One factor per channel of each sample.

use crate::error::OpError;
use crate::native::{Fast, Fold, Terms};
use crate::ops::elementwise::activation::shape_name;
use crate::ops::elementwise::mul::Mul;
use crate::ops::native::Repeated;
use crate::ops::onnx;
use crate::ops::reduce::reduction::{self, Axes};
use crate::ops::sums::sum;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Native, Op, Parts, Real, Resources, Slot, Source, expect_count,
    expect_dtype, expect_shape, native,
};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output[n, c, …] = input[n, c, …] · scale[n, c]`
///
/// | tensor | shape |
/// |---|---|
/// | input | `[N, C, …]` |
/// | scale | `[N, C]` |
/// | output | as input |
///
/// `grad_input = grad_output · scale` is the same op again, `grad_scale[n, c] = Σ grad_output[n, c, …] · input[n, c, …]`.
///
/// **Saved for backward:** scale where input wants a gradient, input where scale wants one. **In place:** yes, on the
/// input.
/// **Numerics:** the gradient of scale is a sum in f32, split as that of [`Sum`](crate::ops::reduce::sum::Sum).
///
/// # Errors
/// Where an input is not f32, the input has fewer than 2 dimensions, or scale is not `[N, C]`.
///
/// Source: <https://arxiv.org/abs/1709.01507>, section 3 (the scaling of squeeze and excitation)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulChannels;

params! {
    struct Params {
        vectors: u32,
        inner: u32,
    }
}

/// Elements of one channel of one sample.
fn inner(shape: &Shape) -> usize {
    shape[2..].iter().product()
}

impl Op for MulChannels {
    fn name(&self) -> &'static str {
        "mul_channels"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let [value, mut scale] = [0, 1].map(|i| call.input(i));
        if call.rank(0) > 2 {
            let axes = call.ints((2..call.rank(0) as i64).collect::<Vec<_>>());
            scale = call.apply("Unsqueeze", &[&scale, &axes]);
        }
        Some(vec![call.apply("Mul", &[&value, &scale])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("mul_channels", inputs, 2)?;
        expect_dtype("mul_channels", "input", &inputs[0], DType::F32)?;
        expect_dtype("mul_channels", "scale", &inputs[1], DType::F32)?;
        let &[samples, channels, ..] = &inputs[0].shape[..] else {
            let expected = "of at least 2 dimensions [N, C, …]".to_owned();
            return Err(OpError::Input { op: "mul_channels", input: "input", expected, found: inputs[0].clone() });
        };
        expect_shape("mul_channels", "scale", &inputs[1], [samples, channels])?;
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let (input, scale) = (forward.inputs[0], forward.inputs[1]);
        let mut grads = vec![None, None];
        if forward.wanted[0] {
            grads[0] = Some(graph.emit(MulChannels, &[grad_output, scale])?);
        }
        if forward.wanted[1] {
            grads[1] = Some(graph.emit(MulChannelsGradScale, &[input, grad_output])?);
        }
        Ok(grads)
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let vectors = inputs[0].numel().div_ceil(4);
        vec![
            Dispatch::new("mul_channels", "forward", [Slot::Input(0), Slot::Input(1), Slot::Output(0)])
                .params(&Params { vectors: vectors as u32, inner: inner(&inputs[0].shape) as u32 })
                .linear(vectors.div_ceil(64)),
        ]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for MulChannels {
    fn takes_half(&self, operand: Slot) -> bool {
        operand != Slot::Input(1)
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let scale = Repeated { numbers: call.input(1), inner: inner(&call.input_descs[0].shape) };
        native::elementwise(&Mul, vec![Source::of(&call.inputs[0]), Source::Made(&scale)], call, with);
    }
}

impl MulChannels {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let inner = inner(&call.input_descs[0].shape);
        let (input, scale) = (call.input(0), call.input(1));
        for (i, (y, &x)) in call.output(0).iter_mut().zip(input).enumerate() {
            *y = x * scale[i / inner];
        }
    }
}

/// `grad_scale[n, c] = Σ grad_output[n, c, …] · input[n, c, …]`; inputs `input, grad_output`.
#[derive(Clone, Copy, Debug)]
struct MulChannelsGradScale;

params! {
    struct SumParams {
        rows: u32,
        terms: u32,
        splits: u32,
    }
}

impl Op for MulChannelsGradScale {
    fn name(&self) -> &'static str {
        "mul_channels.grad_scale"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("mul_channels.grad_scale", inputs, 2)?;
        Ok(vec![TensorDesc::f32([inputs[0].shape[0], inputs[0].shape[1]])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let bytes_moved = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum();
        Cost { flops: 2 * inputs[0].numel() as u64, bytes_moved }
    }

    fn workspaces(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Vec<u64> {
        reduction::workspaces(outputs[0].numel(), inner(&inputs[0].shape))
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let (rows, terms) = (outputs[0].numel(), inner(&inputs[0].shape));
        let splits = reduction::splits(rows, terms);
        let result = if splits > 1 { Slot::Workspace(0) } else { Slot::Output(0) };
        let first = Dispatch::new("mul_channels", "grad_scale", [Slot::Input(0), Slot::Input(1), result])
            .params(&SumParams { rows: rows as u32, terms: terms as u32, splits: splits as u32 })
            .linear((rows * splits).div_ceil(64))
            .loops(terms.div_ceil(splits));
        let mut dispatches = vec![first];
        if splits > 1 {
            dispatches.push(reduction::combine(Slot::Workspace(0), Slot::Output(0), rows, splits, 1.0));
        }
        dispatches
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for MulChannelsGradScale {
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _threads: usize) -> Vec<u64> {
        over_channels(&inputs[0].shape).fold_workspaces()
    }

    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        Some(Parts::samples([true, true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let terms = Terms { data: call.input(0), pairs: call.input(1), results: &[] };
        over_channels(&call.input_descs[0].shape).fold(Products, terms, 1.0, call.output(0), with);
    }
}

/// The sums over the elements of each channel.
fn over_channels(shape: &Shape) -> Axes {
    Axes::new(shape, &(2..shape.len()).collect::<Vec<_>>())
}

/// The sum of products.
#[derive(Clone, Copy)]
struct Products;

impl Fold for Products {
    const HAS_PAIRS: bool = true;
    const START: f32 = 0.0;

    #[inline(always)]
    fn term(self, x: Fast, pair: Fast, _: Fast) -> Fast {
        x * pair
    }

    #[inline(always)]
    fn join(self, a: Fast, b: Fast) -> Fast {
        a + b
    }
}

impl MulChannelsGradScale {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let inner = inner(&call.input_descs[0].shape);
        let rows = call.input(0).chunks_exact(inner).zip(call.input(1).chunks_exact(inner));
        for (d, (input, grad_output)) in call.output(0).iter_mut().zip(rows) {
            *d = sum(input.iter().zip(grad_output).map(|(&x, &g)| x * g));
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |shape: &[usize]| {
        let descs = [TensorDesc::f32(shape), TensorDesc::f32([shape[0], shape[1]])];
        Case::new(shape_name(shape), MulChannels, descs).reduction(shape[2..].iter().product())
    };
    vec![
        case(&[1, 1]),
        case(&[4, 7]),
        case(&[3, 8]),
        case(&[2, 5, 3]),
        case(&[2, 3, 4, 5]),
        case(&[3, 17, 1, 1]),
        case(&[2, 3, 2, 2, 2]),
        case(&[5, 7, 23, 25]).large(),
        case(&[2, 3, 64, 64]).large(),
        case(&[1, 2, 257, 263]).large(),
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
        assert_eq!(outputs(&[2, 3, 4], &[2, 3]), Ok(vec![TensorDesc::f32([2, 3, 4])]));
        assert!(outputs(&[2, 3, 4], &[3]).is_err_and(|error| error.contains("of shape [2, 3]")));
        assert!(outputs(&[2], &[2]).is_err_and(|error| error.contains("at least 2 dimensions")));
    }
}
