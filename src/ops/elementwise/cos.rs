//! Cosine.

use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real};

/// `output = cos(input)`, of an angle in radians
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the input. **In place:** yes.
/// **Numerics:** wrong by at most 2e-7 up to 10,000 radians, by more beyond: there f32 holds few digits of the angle.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.cos.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cos;

impl Activation for Cos {
    const NAME: &'static str = "cos";
    const GRAD_INPUT: &'static str = "cos.grad_input";
    const FLOPS: u64 = 20;

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        Some(call.apply("Cos", &[&value]))
    }

    fn saves_output(&self) -> bool {
        false
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        x.cos()
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        -grad_output * saved.sin()
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = activation::cases(Cos, "", Fill::Normal);
    cases.push(activation::extreme(Cos, ""));
    cases.extend(activation::cases(Cos, "far_", Fill::Uniform(-9000.0, 9000.0)).into_iter().map(Case::large));
    cases
}
