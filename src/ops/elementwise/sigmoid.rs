//! Logistic sigmoid.

use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::onnx;
use crate::ops::{Case, Fill, Probabilities, Real};

/// `output = 1 / (1 + exp(−input))`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the output. **In place:** yes.
/// **Numerics:** computed from `exp(−|input|)`, which cannot overflow.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.Sigmoid.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sigmoid;

/// The function itself, for other ops' twins.
#[inline(always)]
pub(in crate::ops) fn sigmoid<T: Real>(x: T) -> T {
    let e = (-x.abs()).exp();
    (if x >= T::ZERO { T::ONE } else { e }) / (T::ONE + e)
}

impl Activation for Sigmoid {
    const NAME: &'static str = "sigmoid";
    const GRAD_INPUT: &'static str = "sigmoid.grad_input";
    const FLOPS: u64 = 12;
    const PROBABILITIES: Option<Probabilities> = Some(Probabilities::Sigmoid);

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        Some(call.apply("Sigmoid", &[&value]))
    }

    fn saves_output(&self) -> bool {
        true
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        sigmoid(x)
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        grad_output * saved * (T::ONE - saved)
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = activation::cases(Sigmoid, "", Fill::Normal);
    cases.push(activation::extreme(Sigmoid, ""));
    cases
}
