//! Absolute value.

use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real};
use crate::tensor::TensorDesc;

/// `output = |input|`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the input. **In place:** yes.
/// **Numerics:** exact; the gradient at 0 is 0, as in PyTorch.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.abs.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abs;

impl Activation for Abs {
    const NAME: &'static str = "abs";
    const GRAD_INPUT: &'static str = "abs.grad_input";
    const FLOPS: u64 = 1;

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        Some(call.apply("Abs", &[&value]))
    }

    fn saves_output(&self) -> bool {
        false
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        x.abs()
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        if saved > T::ZERO {
            grad_output
        } else if saved < T::ZERO {
            -grad_output
        } else {
            T::ZERO
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = activation::cases(Abs, "", Fill::AwayFromZero(0.05));
    cases.push(Case::new("zeros_5", Abs, [TensorDesc::f32([5])]).fill(0, Fill::Constant(0.0)).large());
    cases
}
