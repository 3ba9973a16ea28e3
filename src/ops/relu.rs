//! Rectified linear unit.

use super::{Backward, Builder, Call, Case, Dispatch, Fill, Op, Real, Slot, expect_count, expect_dtype};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};
use crate::twin;

/// `output = max(input, 0)`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the output. **In place:** yes.
/// **Numerics:** the gradient at 0 is 0, as in PyTorch.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.ReLU.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relu;

impl Op for Relu {
    fn name(&self) -> &'static str {
        "relu"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("relu", inputs, 1)?;
        expect_dtype("relu", "input", &inputs[0], DType::F32)?;
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        Ok(vec![Some(graph.emit(ReluGradInput, &[forward.outputs[0], grad_output])?)])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let vectors = inputs[0].numel().div_ceil(4);
        vec![
            Dispatch::new("relu", "forward", [Slot::Input(0), Slot::Output(0)])
                .params(&(vectors as u32))
                .linear(vectors.div_ceil(64)),
        ]
    }

    twin!();
}

impl Relu {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let input = call.input(0);
        for (y, &x) in call.output(0).iter_mut().zip(input) {
            *y = x.max(T::ZERO);
        }
    }
}

/// `grad_input = grad_output where output > 0, else 0`; inputs `output, grad_output`.
#[derive(Clone, Copy, Debug)]
struct ReluGradInput;

impl Op for ReluGradInput {
    fn name(&self) -> &'static str {
        "relu.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(vec![inputs[1].clone()])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(1, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let vectors = inputs[0].numel().div_ceil(4);
        vec![
            Dispatch::new("relu", "grad_input", [Slot::Input(0), Slot::Input(1), Slot::Output(0)])
                .params(&(vectors as u32))
                .linear(vectors.div_ceil(64)),
        ]
    }

    twin!();
}

impl ReluGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (output, grad_output) = (call.input(0), call.input(1));
        for ((d, &y), &g) in call.output(0).iter_mut().zip(output).zip(grad_output) {
            *d = if y > T::ZERO { g } else { T::ZERO };
        }
    }
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    [vec![1], vec![7], vec![2, 3, 5], vec![257], vec![4, 64]]
        .into_iter()
        .map(|shape| {
            let name = shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
            Case::new(name, Relu, [TensorDesc::f32(shape)]).fill(0, Fill::AwayFromZero(0.05))
        })
        .collect()
}
