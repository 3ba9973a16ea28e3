//! Sigmoid linear unit (swish).

use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::elementwise::sigmoid::sigmoid;
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real};

/// `output = input · sigmoid(input)`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the input. **In place:** yes.
/// **Numerics:** as [`Sigmoid`](crate::ops::elementwise::sigmoid::Sigmoid).
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.SiLU.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silu;

impl Activation for Silu {
    const NAME: &'static str = "silu";
    const GRAD_INPUT: &'static str = "silu.grad_input";
    const FLOPS: u64 = 15;

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        let gate = call.apply("Sigmoid", &[&value]);
        Some(call.apply("Mul", &[&value, &gate]))
    }

    fn saves_output(&self) -> bool {
        false
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        x * sigmoid(x)
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        let s = sigmoid(saved);
        grad_output * s * (T::ONE + saved * (T::ONE - s))
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = activation::cases(Silu, "", Fill::Normal);
    cases.push(activation::extreme(Silu, ""));
    cases
}
