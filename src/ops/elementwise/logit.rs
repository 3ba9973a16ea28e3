//! The score of a probability, the inverse of sigmoid.

use crate::error::OpError;
use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::elementwise::clamp::hold;
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real};

/// `output = ln(p / (1 − p))` with `p = min(max(input, eps), 1 − eps)`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the input. **In place:** yes.
/// **Numerics:** that of the device's `log`; the gradient is 0 where the input is outside of `eps..1 − eps`, as in PyTorch.
///
/// # Errors
/// Where the input is not f32, or eps is not above 0 and below 0.5.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.logit.html>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logit {
    /// How near to 0 and 1 a probability counts.
    pub eps: f32,
}

impl Activation for Logit {
    const NAME: &'static str = "logit";
    const GRAD_INPUT: &'static str = "logit.grad_input";
    const FLOPS: u64 = 20;

    fn settings(&self) -> Vec<f32> {
        vec![self.eps, 1.0 - self.eps]
    }

    fn check(&self) -> Result<(), OpError> {
        if self.eps > 0.0 && self.eps < 0.5 && 1.0 - self.eps < 1.0 {
            return Ok(());
        }
        let (value, reason) =
            (self.eps.to_string(), "it must be above 0 and below 0.5, in single precision".to_owned());
        Err(OpError::Setting { op: "logit", setting: "eps", value, reason })
    }

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let (value, one) = (call.input(0), call.number(1.0));
        let bounds = [self.eps, 1.0 - self.eps].map(|bound| call.number(bound));
        let inside = call.apply("Clip", &[&value, &bounds[0], &bounds[1]]);
        let rest = call.apply("Sub", &[&one, &inside]);
        let odds = call.apply("Div", &[&inside, &rest]);
        Some(call.apply("Log", &[&odds]))
    }

    fn saves_output(&self) -> bool {
        false
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        let p = hold(x, self.eps, 1.0 - self.eps);
        p.ln() - (T::ONE - p).ln()
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        let limits = [self.eps, 1.0 - self.eps].map(|limit| T::from_f64(f64::from(limit)));
        let is_outside = saved < limits[0] || saved > limits[1];
        if is_outside { T::ZERO } else { grad_output / (saved * (T::ONE - saved)) }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let logit = Logit { eps: 1e-3 };
    let mut cases = activation::cases(logit, "", Fill::Uniform(0.01, 0.99));
    cases.extend(activation::cases(logit, "outside_", Fill::Uniform(1.01, 3.0)));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigmoid_undoes_it() {
        let logit = Logit { eps: 1e-7 };
        for p in [1e-6, 0.25, 0.5, 0.875f64] {
            assert!((crate::ops::elementwise::sigmoid::sigmoid(logit.value(p)) / p - 1.0).abs() < 1e-12, "{p}");
        }
        assert!(logit.value(0.0f32).is_finite() && logit.value(1.0f32).is_finite());
        assert_eq!(logit.gradient(0.0f32, 1.0), 0.0);
    }
}
