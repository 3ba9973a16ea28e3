//! Elementwise product.

use crate::error::OpError;
use crate::ops::elementwise::formula::{Formula, by_formula};
use crate::ops::elementwise::pairs;
use crate::ops::onnx;
use crate::ops::{Backward, Builder, Case, Elements, Elementwise, Fill, Op, Real};
use crate::tensor::{TensorDesc, ValueId};

/// `output = a · b`
///
/// | tensor | shape |
/// |---|---|
/// | a, b, output | any, all alike |
///
/// **Saved for backward:** `b` for the gradient of `a`, `a` for that of `b`. **In place:** over either input.
///
/// # Errors
/// Where the shapes differ or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.mul.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mul;

impl Op for Mul {
    fn name(&self) -> &'static str {
        "mul"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let [a, b] = [0, 1].map(|i| call.input(i));
        Some(vec![call.apply("Mul", &[&a, &b])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        pairs::outputs("mul", inputs)
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let mut times = |other: usize, wanted: bool| {
            wanted.then(|| graph.emit(Mul, &[grad_output, forward.inputs[other]])).transpose()
        };
        Ok(vec![times(1, forward.wanted[0])?, times(0, forward.wanted[1])?])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        pairs::IN_PLACE
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(Elementwise::new("mul", "forward", []))
    }

    fn elements(&self) -> Option<&dyn Elements> {
        Some(self)
    }

    twin!();
}

by_formula!(Mul, 2);

impl Formula<2> for Mul {
    #[inline(always)]
    fn value<T: Real>(self, [a, b]: [T; 2]) -> T {
        a * b
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    pairs::cases(Mul, "", Fill::Normal)
}
