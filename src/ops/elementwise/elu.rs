//! Exponential linear unit.

use crate::error::OpError;
use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real, expect_finite};

/// `output = input where input > 0, else alpha · (e^input − 1)`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the output, from which the derivative `output + alpha` follows; with a negative alpha the sign of the
/// input is lost in it, and the input is saved. **In place:** yes.
/// **Numerics:** `e^input − 1` keeps its digits near 0.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.ELU.html>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Elu {
    /// What large negative inputs go to, with the other sign (PyTorch's default: 1).
    pub alpha: f32,
}

impl Activation for Elu {
    const NAME: &'static str = "elu";
    const GRAD_INPUT: &'static str = "elu.grad_input";
    const FLOPS: u64 = 12;

    fn settings(&self) -> Vec<f32> {
        vec![self.alpha]
    }

    fn entries(&self) -> [&'static str; 2] {
        ["forward", if self.saves_output() { "grad_input_from_output" } else { "grad_input" }]
    }

    fn check(&self) -> Result<(), OpError> {
        expect_finite("elu", "alpha", self.alpha)
    }

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        Some(call.node("Elu", &[&value], [("alpha", self.alpha.into())]))
    }

    fn saves_output(&self) -> bool {
        self.alpha >= 0.0
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        if x > T::ZERO { x } else { T::from_f64(f64::from(self.alpha)) * x.exp_m1() }
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        let alpha = T::from_f64(f64::from(self.alpha));
        if saved > T::ZERO {
            grad_output
        } else if self.saves_output() {
            grad_output * (saved + alpha)
        } else {
            grad_output * alpha * saved.exp()
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for alpha in [1.0, 0.3, -0.5] {
        cases.extend(activation::cases(Elu { alpha }, &format!("alpha{alpha}_"), Fill::AwayFromZero(0.01)));
        cases.push(activation::extreme(Elu { alpha }, &format!("alpha{alpha}_")));
    }
    cases
}
