//! Mean squared error.

use super::activation::shape_name;
use super::{
    Backward, Builder, Call, Case, Cost, Dispatch, Op, Real, Slot, elementwise, expect_count, expect_dtype,
    expect_shape, reduce,
};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// `loss = mean((input − target)²)` over all elements
///
/// | tensor | shape |
/// |---|---|
/// | input, target | any, both alike |
/// | loss | `[1]` |
///
/// **Saved for backward:** input and target. **In place:** no.
/// **Numerics:** sums in f32, in two levels and always in the same order.
///
/// # Errors
/// Where the shapes differ or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.MSELoss.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mse;

/// The shape rule of losses that compare element by element.
pub(super) fn elementwise_loss(op: &'static str, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
    expect_count(op, inputs, 2)?;
    expect_dtype(op, "input", &inputs[0], DType::F32)?;
    expect_dtype(op, "target", &inputs[1], DType::F32)?;
    expect_shape(op, "target", &inputs[1], inputs[0].shape.clone())?;
    Ok(vec![TensorDesc::f32([1])])
}

/// The mean of a function of input and target.
pub(super) fn mean_dispatches(file: &'static str, numel: usize) -> Vec<Dispatch> {
    reduce::total(file, "forward", &[Slot::Input(0), Slot::Input(1)], numel, 1.0 / numel as f32)
}

impl Op for Mse {
    fn name(&self) -> &'static str {
        "mse"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        elementwise_loss("mse", inputs)
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_loss) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let inputs = [forward.inputs[0], forward.inputs[1], grad_loss];
        let mut gradients = Vec::new();
        for (wanted, sign) in forward.wanted.iter().zip([1.0, -1.0]) {
            gradients.push(if *wanted { Some(graph.emit(MseGradInput { sign }, &inputs)?) } else { None });
        }
        Ok(gradients)
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        Cost { flops: 3 * inputs[0].numel() as u64, bytes_moved: 2 * inputs[0].size_bytes() }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        reduce::workspaces(1, inputs[0].numel())
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        mean_dispatches("mse", inputs[0].numel())
    }

    twin!();
}

impl Mse {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, target) = (call.input(0), call.input(1));
        let sum: T = input.iter().zip(target).map(|(&x, &t)| (x - t) * (x - t)).sum();
        call.output(0)[0] = sum / T::from_f64(input.len() as f64);
    }
}

/// `grad_input = sign · 2/n · grad_loss · (input − target)`; inputs `input, target, grad_loss`.
#[derive(Clone, Copy, Debug)]
struct MseGradInput {
    sign: f32,
}

impl Op for MseGradInput {
    fn name(&self) -> &'static str {
        "mse.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(vec![inputs[0].clone()])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (1, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let numel = inputs[0].numel();
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Input(2), Slot::Output(0)];
        vec![elementwise::launch("mse", "grad_input", bindings, numel, self.sign * 2.0 / numel as f32)]
    }

    twin!();
}

impl MseGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, target, grad_loss) = (call.input(0), call.input(1), call.input(2)[0]);
        let factor = T::from_f64(f64::from(self.sign) * 2.0) / T::from_f64(input.len() as f64) * grad_loss;
        for ((d, &x), &t) in call.output(0).iter_mut().zip(input).zip(target) {
            *d = factor * (x - t);
        }
    }
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    let mut cases: Vec<_> = [vec![1], vec![7], vec![4, 5], vec![257]]
        .into_iter()
        .map(|shape| {
            let name = shape_name(&shape);
            let desc = TensorDesc::f32(shape);
            let numel = desc.numel();
            Case::new(name, Mse, [desc.clone(), desc]).reduction(numel)
        })
        .collect();
    let long = TensorDesc::f32([2, 4099]);
    cases.push(Case::new("two_chunks", Mse, [long.clone(), long]).reduction(8198).large());
    cases
}
