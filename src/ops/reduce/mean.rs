//! Mean over axes.

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::reduce::reduction::{self, Axes};
use crate::ops::reduce::sum::{self, SumGradInput};
use crate::ops::{Backward, Builder, Call, Case, Cost, Dispatch, Flags, Native, Op, Real, Resources, Slot};
use crate::shader::Target;
use crate::tensor::{TensorDesc, ValueId};

/// `output = Σ input / n` over `axes`, where n is the product of their extents
///
/// | tensor | shape |
/// |---|---|
/// | input | any, up to 6 axes |
/// | output | the input's without `axes`, or with 1 there (`keepdim`); `[1]` where every axis is averaged and `keepdim` is off |
///
/// **Saved for backward:** nothing. **In place:** no.
/// **Numerics:** as [`Sum`](crate::ops::reduce::sum::Sum), whose kernels run; the complete sum is multiplied by 1/n.
///
/// # Errors
/// As [`Sum`](crate::ops::reduce::sum::Sum).
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.mean.html>
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mean {
    /// Axes to average over, from 0.
    pub axes: Vec<usize>,
    /// Whether they stay, with extent 1.
    pub keepdim: bool,
}

impl Mean {
    fn layout(&self, input: &TensorDesc) -> (Axes, f64) {
        let sum = Axes::new(&input.shape, &self.axes);
        let scale = 1.0 / sum.terms as f64;
        (sum, scale)
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (sum, scale) = self.layout(&call.input_descs[0]);
        sum.sum_twin(call, T::from_f64(scale));
    }
}

impl Op for Mean {
    fn name(&self) -> &'static str {
        "mean"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        Some(vec![call.reduce("ReduceMean", &self.axes, self.keepdim)])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        sum::outputs("mean", inputs, &self.axes, self.keepdim)
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let (_, scale) = self.layout(graph.desc(forward.inputs[0]));
        let shape = graph.desc(forward.inputs[0]).shape.clone();
        let repeat = SumGradInput { name: "mean.grad_input", shape, axes: self.axes.clone(), scale };
        Ok(vec![Some(graph.emit(repeat, &[grad_output])?)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        sum::cost(inputs, outputs)
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        let (sum, _) = self.layout(&inputs[0]);
        reduction::workspaces(sum.outputs, sum.terms)
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: !self.axes.contains(&0), ..Flags::default() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let (sum, scale) = self.layout(&inputs[0]);
        sum.sum(Slot::Input(0), scale as f32)
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Mean {
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _threads: usize) -> Vec<u64> {
        self.layout(&inputs[0]).0.fold_workspaces()
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let (sum, scale) = self.layout(&call.input_descs[0]);
        sum.sum_on(call, scale as f32, with);
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    sum::axis_cases(|axes, keepdim| Mean { axes, keepdim })
}
