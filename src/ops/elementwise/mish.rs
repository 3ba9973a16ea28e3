//! Self-regularized unit between SiLU and a ramp.

use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::elementwise::sigmoid::sigmoid;
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real};

/// `output = input · tanh(ln(1 + exp(input)))`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the input. **In place:** yes.
/// **Numerics:** of `u = exp(−|input|)`, which never overflows: `tanh(ln(1 + eˣ))` is `(1 + 2u) / (1 + 2u + 2u²)` where the
/// input is positive and `(u² + 2u) / (u² + 2u + 2)` where not, so small outputs keep their digits.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.Mish.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mish;

/// `tanh(ln(1 + eˣ))`
#[inline(always)]
fn gate<T: Real>(x: T) -> T {
    let two = T::from_f64(2.0);
    if x > T::ZERO {
        let u = (-x).exp();
        (T::ONE + two * u) / (T::ONE + two * u + two * u * u)
    } else {
        let u = x.exp();
        (u * u + two * u) / (u * u + two * u + two)
    }
}

impl Activation for Mish {
    const NAME: &'static str = "mish";
    const GRAD_INPUT: &'static str = "mish.grad_input";
    const FLOPS: u64 = 25;

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        if call.opset() >= 18 {
            return Some(call.apply("Mish", &[&value]));
        }
        let above = call.apply("Softplus", &[&value]);
        let gate = call.apply("Tanh", &[&above]);
        Some(call.apply("Mul", &[&value, &gate]))
    }

    fn saves_output(&self) -> bool {
        false
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        x * gate(x)
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        let gate = gate(saved);
        grad_output * (gate + saved * sigmoid(saved) * (T::ONE - gate * gate))
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = activation::cases(Mish, "", Fill::Normal);
    cases.push(activation::extreme(Mish, ""));
    cases
}
