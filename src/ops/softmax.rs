//! Softmax along an axis.

use super::softmax_rows::{self, Rows};
use super::{Backward, Builder, Call, Case, Cost, Dispatch, Flags, Op, Real, Slot, expect_count};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::{TensorDesc, ValueId};

/// `output = exp(input) / Σ exp(input)` along `axis`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the output. **In place:** yes.
/// **Numerics:** the largest input of a row is subtracted first, so nothing overflows. Sums in f32; their order depends on the shape only.
///
/// # Errors
/// Where the input is not f32, has no such axis, or is longer than 1.39 million there.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.Softmax.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// The axis that sums to 1.
    pub axis: usize,
}

impl Op for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        softmax_rows::outputs("softmax", inputs, self.axis)
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        Ok(vec![Some(graph.emit(SoftmaxGradInput { axis: self.axis }, &[forward.outputs[0], grad_output])?)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        softmax_rows::cost(20, inputs, outputs)
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.axis != 0, ..Flags::default() }
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![Rows::new(&inputs[0].shape, self.axis).dispatch("softmax", "forward", [Slot::Input(0), Slot::Output(0)])]
    }

    twin!();
}

impl Softmax {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        Rows::new(&call.input_descs[0].shape, self.axis).forward(call, |difference, sum| difference.exp() / sum);
    }
}

/// `grad_input = output · (grad_output − Σ grad_output · output)`; inputs `output, grad_output`.
#[derive(Clone, Copy, Debug)]
struct SoftmaxGradInput {
    axis: usize,
}

impl Op for SoftmaxGradInput {
    fn name(&self) -> &'static str {
        "softmax.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("softmax.grad_input", inputs, 2)?;
        Ok(vec![inputs[1].clone()])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        softmax_rows::cost(4, inputs, outputs)
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.axis != 0, ..Flags::default() }
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(1, 0), (0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Output(0)];
        vec![Rows::new(&inputs[0].shape, self.axis).dispatch("softmax", "grad_input", bindings)]
    }

    twin!();
}

impl SoftmaxGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let rows = Rows::new(&call.input_descs[0].shape, self.axis);
        rows.grad_input(call, |g, y| g * y, |g, y, sum| y * (g - sum));
    }
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    softmax_rows::cases(|axis| Softmax { axis })
}
