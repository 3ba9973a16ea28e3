//! A smooth ramp.

use crate::error::OpError;
use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::elementwise::sigmoid::sigmoid;
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real, expect_finite};

/// `output = ln(1 + e^(beta · input)) / beta`, or the input where `beta · input > threshold`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the input. **In place:** yes.
/// **Numerics:** `max(z, 0) + ln(1 + e^−|z|)` for `z = beta · input`: nothing overflows, and small outputs keep their digits.
///
/// # Errors
/// Where the input is not f32, beta is 0, or a setting is not finite.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.Softplus.html>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Softplus {
    /// The larger, the nearer to `max(input, 0)` (PyTorch's default: 1).
    pub beta: f32,
    /// From `beta · input` above this on, the output is the input (PyTorch's default: 20).
    pub threshold: f32,
}

impl Default for Softplus {
    fn default() -> Self {
        Softplus { beta: 1.0, threshold: 20.0 }
    }
}

impl Activation for Softplus {
    const NAME: &'static str = "softplus";
    const GRAD_INPUT: &'static str = "softplus.grad_input";
    const FLOPS: u64 = 25;

    fn settings(&self) -> Vec<f32> {
        vec![self.beta, self.threshold]
    }

    fn check(&self) -> Result<(), OpError> {
        expect_finite("softplus", "threshold", self.threshold)?;
        if self.beta.is_finite() && (1.0 / self.beta).is_finite() {
            return Ok(());
        }
        let (value, reason) = (self.beta.to_string(), "it must be finite, and so must 1 / beta".to_owned());
        Err(OpError::Setting { op: "softplus", setting: "beta", value, reason })
    }

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        // Beyond the threshold the two differ by e^−threshold / beta.
        if self.threshold < 15.0 {
            return None;
        }
        let (mut value, beta) = (call.input(0), call.number(self.beta));
        if self.beta != 1.0 {
            value = call.apply("Mul", &[&value, &beta]);
        }
        let output = call.apply("Softplus", &[&value]);
        Some(if self.beta == 1.0 { output } else { call.apply("Div", &[&output, &beta]) })
    }

    fn saves_output(&self) -> bool {
        false
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        let beta = T::from_f64(f64::from(self.beta));
        let z = beta * x;
        if self.is_linear(z) { x } else { (z.max(T::ZERO) + (-z.abs()).exp().ln_1p()) / beta }
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        let z = T::from_f64(f64::from(self.beta)) * saved;
        if self.is_linear(z) { grad_output } else { grad_output * sigmoid(z) }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (prefix, op) in [("", Softplus::default()), ("beta0.5_threshold0.75_", Softplus { beta: 0.5, threshold: 0.75 })]
    {
        cases.extend(activation::cases(op, prefix, Fill::Normal));
        cases.push(activation::extreme(op, prefix));
    }
    cases.extend(activation::cases(Softplus { beta: -2.0, threshold: 20.0 }, "beta-2_", Fill::Normal));
    cases
}

impl Softplus {
    #[inline(always)]
    fn is_linear<T: Real>(&self, z: T) -> bool {
        z > T::from_f64(f64::from(self.threshold))
    }
}
