//! Logarithm of the softmax along an axis.

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::reduce::softmax_rows::{self, Rows};
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Flags, Native, Op, Probabilities, Real, Resources, Slot,
    expect_count,
};
use crate::shader::Target;
use crate::tensor::{TensorDesc, ValueId};

/// `output = input − ln Σ exp(input)` along `axis`
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
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.LogSoftmax.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSoftmax {
    /// The axis that sums to 1.
    pub axis: usize,
}

impl Op for LogSoftmax {
    fn name(&self) -> &'static str {
        "log_softmax"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let value = call.input(0);
        Some(vec![call.node("LogSoftmax", &[&value], [("axis", (self.axis as i64).into())])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        softmax_rows::outputs("log_softmax", inputs, self.axis)
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        Ok(vec![Some(graph.emit(LogSoftmaxGradInput { axis: self.axis }, &[forward.outputs[0], grad_output])?)])
    }

    fn probabilities(&self) -> Option<Probabilities> {
        Some(Probabilities::LogSoftmax)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        softmax_rows::cost(20, inputs, outputs)
    }

    fn full_precision(&self, _output: usize) -> bool {
        true
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.axis != 0, ..Flags::default() }
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![Rows::new(&inputs[0].shape, self.axis).dispatch(
            "log_softmax",
            "forward",
            [Slot::Input(0), Slot::Output(0)],
        )]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for LogSoftmax {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        Rows::new(&call.input_descs[0].shape, self.axis).forward_native(call, with, true);
    }
}

impl LogSoftmax {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        Rows::new(&call.input_descs[0].shape, self.axis).forward(call, |difference, sum| difference - sum.ln());
    }
}

/// `grad_input = grad_output − exp(output) · Σ grad_output`; inputs `output, grad_output`.
#[derive(Clone, Copy, Debug)]
struct LogSoftmaxGradInput {
    axis: usize,
}

impl Op for LogSoftmaxGradInput {
    fn name(&self) -> &'static str {
        "log_softmax.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("log_softmax.grad_input", inputs, 2)?;
        Ok(vec![inputs[1].clone()])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        softmax_rows::cost(14, inputs, outputs)
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.axis != 0, ..Flags::default() }
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(1, 0), (0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Output(0)];
        vec![Rows::new(&inputs[0].shape, self.axis).dispatch("log_softmax", "grad_input", bindings)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for LogSoftmaxGradInput {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        Rows::new(&call.input_descs[0].shape, self.axis).grad_input_native(call, with, true);
    }
}

impl LogSoftmaxGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let rows = Rows::new(&call.input_descs[0].shape, self.axis);
        rows.grad_input(call, |g, _| g, |g, y, sum| g - y.exp() * sum);
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    softmax_rows::cases(|axis| LogSoftmax { axis })
}
