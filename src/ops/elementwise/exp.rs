//! Exponential function.

use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real};

/// `output = e^input`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the output, which is the derivative. **In place:** yes.
/// **Numerics:** the relative error grows with the size of the input: that of the device's `exp`.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.exp.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exp;

impl Activation for Exp {
    const NAME: &'static str = "exp";
    const GRAD_INPUT: &'static str = "exp.grad_input";
    const FLOPS: u64 = 10;

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        Some(call.apply("Exp", &[&value]))
    }

    fn saves_output(&self) -> bool {
        true
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        x.exp()
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        grad_output * saved
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    activation::cases(Exp, "", Fill::Normal)
}
