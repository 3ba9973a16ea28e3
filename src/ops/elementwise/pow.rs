//! Power with a constant exponent.

use crate::error::OpError;
use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real, expect_finite};
use crate::tensor::TensorDesc;

/// `output = input^exponent`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the input. **In place:** yes.
/// **Numerics:** an integer exponent of at most 2²⁰ multiplies (by squaring), for inputs of either sign; any other takes
/// `2^(exponent · log₂ input)`, NaN for a negative input. The error is about that of `exponent` multiplications. `0⁰` is 1,
/// and the gradient of exponent 0 is 0, as in PyTorch.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.pow.html>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pow {
    /// The exponent.
    pub exponent: f32,
}

impl Activation for Pow {
    const NAME: &'static str = "pow";
    const GRAD_INPUT: &'static str = "pow.grad_input";
    const FLOPS: u64 = 20;

    fn settings(&self) -> Vec<f32> {
        vec![self.exponent]
    }

    fn check(&self) -> Result<(), OpError> {
        expect_finite("pow", "exponent", self.exponent)
    }

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let (value, exponent) = (call.input(0), call.number(self.exponent));
        Some(call.apply("Pow", &[&value, &exponent]))
    }

    fn saves_output(&self) -> bool {
        false
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        x.powf(f64::from(self.exponent))
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        let exponent = f64::from(self.exponent);
        if exponent == 0.0 { T::ZERO } else { grad_output * T::from_f64(exponent) * saved.powf(exponent - 1.0) }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for exponent in [2.0, 3.0, 1.0, 0.0, -1.0, -2.0] {
        let fill = if exponent < 0.0 { Fill::AwayFromZero(0.5) } else { Fill::Normal };
        cases.extend(activation::cases(Pow { exponent }, &format!("exponent{exponent}_"), fill));
    }
    for exponent in [0.5, 1.7, -0.3] {
        cases.extend(activation::cases(Pow { exponent }, &format!("exponent{exponent}_"), Fill::Uniform(0.1, 4.0)));
    }
    for (name, exponent, base) in [
        ("zero_to_2_5", 2.0, 0.0),
        ("zero_to_0_5", 0.0, 0.0),
        ("zero_to_half_5", 0.5, 0.0),
        ("zero_to_minus_1_5", -1.0, 0.0),
        ("negative_to_half_5", 0.5, -2.0),
    ] {
        cases.push(Case::new(name, Pow { exponent }, [TensorDesc::f32([5])]).fill(0, Fill::Constant(base)).large());
    }
    cases
}
