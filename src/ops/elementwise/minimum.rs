//! The smaller of two.

use crate::error::OpError;
use crate::ops::elementwise::formula::{Formula, by_formula};
use crate::ops::elementwise::pairs::{self, PairGrad, PairGradient};
use crate::ops::onnx;
use crate::ops::{Backward, Builder, Case, Elements, Elementwise, Fill, Op, Real};
use crate::tensor::{TensorDesc, ValueId};

/// `output = min(a, b)`
///
/// | tensor | shape |
/// |---|---|
/// | a, b, output | any, all alike |
///
/// **Saved for backward:** both inputs. **In place:** over either input.
/// **Numerics:** exact; NaN where either is NaN. Where both are equal, each has half of the gradient, as in PyTorch.
///
/// # Errors
/// Where the shapes differ or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.minimum.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minimum;

impl Op for Minimum {
    fn name(&self) -> &'static str {
        "minimum"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let [a, b] = [0, 1].map(|i| call.input(i));
        Some(vec![call.apply("Min", &[&a, &b])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        pairs::outputs("minimum", inputs)
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let mut gradient = |own: usize, other: usize| {
            let inputs = [forward.inputs[own], forward.inputs[other], grad_output];
            forward.wanted[own].then(|| graph.emit(PairGrad(Minimum), &inputs)).transpose()
        };
        Ok(vec![gradient(0, 1)?, gradient(1, 0)?])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        pairs::IN_PLACE
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(Elementwise::new("minimum", "forward", []))
    }

    fn elements(&self) -> Option<&dyn Elements> {
        Some(self)
    }

    twin!();
}

by_formula!(Minimum, 2);

impl Formula<2> for Minimum {
    #[inline(always)]
    fn value<T: Real>(self, [a, b]: [T; 2]) -> T {
        if b < a || b.is_nan() { b } else { a }
    }
}

impl PairGradient for Minimum {
    const NAME: &'static str = "minimum.grad_input";
    const FILE: &'static str = "minimum";
    const ENTRY: &'static str = "grad_input";

    #[inline(always)]
    fn gradient<T: Real>(own: T, other: T, grad_output: T) -> T {
        if own == other {
            T::from_f64(0.5) * grad_output
        } else if own > other {
            T::ZERO
        } else {
            grad_output
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = pairs::cases(Minimum, "", Fill::Normal);
    cases.extend(pairs::cases(Minimum, "ties_", Fill::Labels(3)).into_iter().map(Case::large));
    let nan = Case::new("nan_5", Minimum, [TensorDesc::f32([5]), TensorDesc::f32([5])]).forward_only();
    cases.push(nan.fill(1, Fill::Constant(f32::NAN)));
    cases
}
