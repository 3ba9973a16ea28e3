//! Hyperbolic tangent.

use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real};

/// `output = tanh(input)`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the output. **In place:** yes.
/// **Numerics:** a series near 0, `exp(−2 |input|)` beyond: drivers' own `tanh` may overflow far out.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.Tanh.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tanh;

impl Activation for Tanh {
    const NAME: &'static str = "tanh";
    const GRAD_INPUT: &'static str = "tanh.grad_input";
    const FLOPS: u64 = 20;

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        Some(call.apply("Tanh", &[&value]))
    }

    fn saves_output(&self) -> bool {
        true
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        x.tanh()
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        grad_output * (T::ONE - saved * saved)
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = activation::cases(Tanh, "", Fill::Normal);
    cases.push(activation::extreme(Tanh, ""));
    cases
}
