//! Binary cross-entropy of logits.

use super::activation::shape_name;
use super::mse::{elementwise_loss, mean_dispatches};
use super::sigmoid::sigmoid;
use super::{Backward, Builder, Call, Case, Cost, Dispatch, Fill, Op, Real, Slot, elementwise, reduce};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::{TensorDesc, ValueId};

/// `loss = mean(max(x, 0) − x·t + ln(1 + exp(−|x|)))` over all elements: binary cross-entropy of `sigmoid(x)` and `t`
///
/// | tensor | shape |
/// |---|---|
/// | input x, target t in 0..1 | any, both alike |
/// | loss | `[1]` |
///
/// **Saved for backward:** input and target. **In place:** no.
/// **Numerics:** finite for every finite input; sums in f32, in two levels and always in the same order. The target
/// gets no gradient.
///
/// # Errors
/// Where the shapes differ or an input is not f32; backward, where a gradient for the target is wanted.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BceWithLogits;

impl Op for BceWithLogits {
    fn name(&self) -> &'static str {
        "bce_with_logits"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        elementwise_loss("bce_with_logits", inputs)
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        if forward.wanted[1] {
            return Err(OpError::NotDifferentiable { op: "bce_with_logits (for its target)" });
        }
        let Some(grad_loss) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let grad_input = graph.emit(BceWithLogitsGradInput, &[forward.inputs[0], forward.inputs[1], grad_loss])?;
        Ok(vec![Some(grad_input), None])
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        Cost { flops: 10 * inputs[0].numel() as u64, bytes_moved: 2 * inputs[0].size_bytes() }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        reduce::workspaces(1, inputs[0].numel())
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        mean_dispatches("bce_with_logits", inputs[0].numel())
    }

    twin!();
}

impl BceWithLogits {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, target) = (call.input(0), call.input(1));
        let loss = |(&x, &t): (&T, &T)| x.max(T::ZERO) - x * t + (-x.abs()).exp().ln_1p();
        let sum: T = input.iter().zip(target).map(loss).sum();
        call.output(0)[0] = sum / T::from_f64(input.len() as f64);
    }
}

/// `grad_input = grad_loss / n · (sigmoid(input) − target)`; inputs `input, target, grad_loss`.
#[derive(Clone, Copy, Debug)]
struct BceWithLogitsGradInput;

impl Op for BceWithLogitsGradInput {
    fn name(&self) -> &'static str {
        "bce_with_logits.grad_input"
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
        vec![elementwise::launch("bce_with_logits", "grad_input", bindings, numel, 1.0 / numel as f32)]
    }

    twin!();
}

impl BceWithLogitsGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, target, grad_loss) = (call.input(0), call.input(1), call.input(2)[0]);
        let factor = grad_loss / T::from_f64(input.len() as f64);
        for ((d, &x), &t) in call.output(0).iter_mut().zip(input).zip(target) {
            *d = factor * (sigmoid(x) - t);
        }
    }
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    let case = |name: String, shape: Vec<usize>| {
        let desc = TensorDesc::f32(shape);
        let numel = desc.numel();
        Case::new(name, BceWithLogits, [desc.clone(), desc]).fill(1, Fill::Uniform(0.0, 1.0)).no_grad(1).reduction(numel)
    };
    let mut cases: Vec<_> = [vec![1], vec![7], vec![4, 5], vec![257]]
        .into_iter()
        .map(|shape| case(shape_name(&shape), shape))
        .collect();
    cases.push(case("extreme".to_owned(), vec![13]).fill(0, Fill::Uniform(-100.0, 100.0)));
    cases.push(case("two_chunks".to_owned(), vec![4099]).large());
    cases
}
