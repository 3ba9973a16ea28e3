//! Largest element over axes.

use crate::error::OpError;
use crate::native::{Fast, Fold, Terms};
use crate::ops::onnx;
use crate::ops::reduce::reduction::{self, Axes};
use crate::ops::reduce::{extremum, sum};
use crate::ops::{Backward, Builder, Call, Case, Cost, Dispatch, Flags, Native, Op, Real, Resources};
use crate::shader::Target;
use crate::tensor::{TensorDesc, ValueId};

/// `output = max input` over `axes`
///
/// | tensor | shape |
/// |---|---|
/// | input | any, up to 6 axes |
/// | output | the input's without `axes`, or with 1 there (`keepdim`); `[1]` where no axis is left and `keepdim` is off |
///
/// **Saved for backward:** the input and the output. **In place:** no.
/// **Numerics:** exact; NaN where an element is NaN. Elements that are equal to the output share its gradient in equal parts, as in
/// PyTorch. A long axis is gone over in parts, which need a workspace as those of [`Sum`](crate::ops::reduce::sum::Sum) do.
///
/// # Errors
/// As [`Sum`](crate::ops::reduce::sum::Sum).
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.amax.html>
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amax {
    /// Axes to go over, from 0.
    pub axes: Vec<usize>,
    /// Whether they stay, with extent 1.
    pub keepdim: bool,
}

impl Op for Amax {
    fn name(&self) -> &'static str {
        "amax"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        Some(vec![call.reduce("ReduceMax", &self.axes, self.keepdim)])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        sum::outputs("amax", inputs, &self.axes, self.keepdim)
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        extremum::backward(["amax.ties", "amax.grad_input"], "amax", &self.axes, graph, forward)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        sum::cost(inputs, outputs)
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        let axes = Axes::new(&inputs[0].shape, &self.axes);
        reduction::workspaces(axes.outputs, axes.terms)
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: !self.axes.contains(&0), ..Flags::default() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        extremum::dispatches("amax", &inputs[0], &self.axes)
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Amax {
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _threads: usize) -> Vec<u64> {
        Axes::new(&inputs[0].shape, &self.axes).fold_workspaces()
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let terms = Terms { data: call.input(0), pairs: &[], results: &[] };
        Axes::new(&call.input_descs[0].shape, &self.axes).fold(Largest, terms, 1.0, call.output(0), with);
    }
}

/// The largest element; NaN where there is one.
#[derive(Clone, Copy)]
struct Largest;

impl Fold for Largest {
    const START: f32 = f32::NEG_INFINITY;

    #[inline(always)]
    fn term(self, x: Fast, _: Fast, _: Fast) -> Fast {
        x
    }

    #[inline(always)]
    fn join(self, a: Fast, b: Fast) -> Fast {
        if b > a || b.is_nan() { b } else { a }
    }
}

impl Amax {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        extremum::twin(call, &self.axes, |x, extremum| x > extremum);
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    extremum::cases(|axes, keepdim| Amax { axes, keepdim })
}
