//! Leaky rectified linear unit.

use crate::error::OpError;
use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real, expect_finite};

/// `output = input where input > 0, else slope · input`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the output, whose sign is that of the input; with a negative slope it is not, and the input is
/// saved. Compressed, a bit for each element unless all of it is kept anyway. **In place:** yes.
/// **Numerics:** the gradient at 0 is `slope`, as in PyTorch.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.LeakyReLU.html>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeakyRelu {
    /// Factor of negative elements (PyTorch's default: 0.01).
    pub slope: f32,
}

impl Activation for LeakyRelu {
    const NAME: &'static str = "leaky_relu";
    const GRAD_INPUT: &'static str = "leaky_relu.grad_input";
    const FLOPS: u64 = 1;
    const MASK: Option<[&'static str; 2]> = Some(["leaky_relu.mask", "leaky_relu.grad_input_mask"]);

    fn settings(&self) -> Vec<f32> {
        vec![self.slope]
    }

    fn check(&self) -> Result<(), OpError> {
        expect_finite("leaky_relu", "slope", self.slope)
    }

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        Some(call.node("LeakyRelu", &[&value], [("alpha", self.slope.into())]))
    }

    fn saves_output(&self) -> bool {
        self.slope >= 0.0
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        if x > T::ZERO { x } else { T::from_f64(f64::from(self.slope)) * x }
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        if saved > T::ZERO { grad_output } else { T::from_f64(f64::from(self.slope)) * grad_output }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    [0.01, 0.2, 0.0, -0.5]
        .into_iter()
        .flat_map(|slope| activation::cases(LeakyRelu { slope }, &format!("slope{slope}_"), Fill::AwayFromZero(0.05)))
        .collect()
}
