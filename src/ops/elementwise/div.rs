//! Elementwise quotient.

use crate::error::OpError;
use crate::ops::elementwise::formula::{Formula, by_formula};
use crate::ops::elementwise::pairs::{self, PairGrad, PairGradient};
use crate::ops::onnx;
use crate::ops::{Backward, Builder, Case, Elements, Elementwise, Fill, Op, Real};
use crate::tensor::{TensorDesc, ValueId};

/// `output = a / b`
///
/// | tensor | shape |
/// |---|---|
/// | a, b, output | any, all alike |
///
/// **Saved for backward:** `b`, and for the gradient of `b` also `a`. **In place:** over either input.
/// **Numerics:** the quotient of the device, within 2.5 units in the last place; `a / 0` is infinite or NaN.
///
/// # Errors
/// Where the shapes differ or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.div.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Div;

impl Op for Div {
    fn name(&self) -> &'static str {
        "div"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let [a, b] = [0, 1].map(|i| call.input(i));
        Some(vec![call.apply("Div", &[&a, &b])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        pairs::outputs("div", inputs)
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let (a, b) = (forward.inputs[0], forward.inputs[1]);
        let grad_a = forward.wanted[0].then(|| graph.emit(Div, &[grad_output, b])).transpose()?;
        let grad_b = forward.wanted[1].then(|| graph.emit(PairGrad(Div), &[a, b, grad_output])).transpose()?;
        Ok(vec![grad_a, grad_b])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        pairs::IN_PLACE
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(Elementwise::new("div", "forward", []))
    }

    fn elements(&self) -> Option<&dyn Elements> {
        Some(self)
    }

    twin!();
}

by_formula!(Div, 2);

impl Formula<2> for Div {
    #[inline(always)]
    fn value<T: Real>(self, [a, b]: [T; 2]) -> T {
        a / b
    }
}

impl PairGradient for Div {
    const NAME: &'static str = "div.grad_b";
    const FILE: &'static str = "div";
    const ENTRY: &'static str = "grad_b";

    #[inline(always)]
    fn gradient<T: Real>(a: T, b: T, grad_output: T) -> T {
        -grad_output * (a / b / b)
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = pairs::cases(Div, "", Fill::AwayFromZero(0.5));
    let by_zero = Case::new("by_zero_5", Div, [TensorDesc::f32([5]), TensorDesc::f32([5])]);
    cases.push(by_zero.fill(0, Fill::Constant(-1.5)).fill(1, Fill::Constant(0.0)).forward_only());
    cases
}
