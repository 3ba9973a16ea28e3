//! Hard swish: SiLU in straight lines.

use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real};

/// `output = input · min(max(input + 3, 0), 6) / 6`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the input. **In place:** yes.
/// **Numerics:** the gradient is 0 at −3 and below, 1 at 3 and above.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.Hardswish.html>, <https://arxiv.org/abs/1905.02244> (5.2)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardSwish;

impl Activation for HardSwish {
    const NAME: &'static str = "hard_swish";
    const GRAD_INPUT: &'static str = "hard_swish.grad_input";
    const FLOPS: u64 = 5;

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        Some(call.apply("HardSwish", &[&value]))
    }

    fn saves_output(&self) -> bool {
        false
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        let six = T::from_f64(6.0);
        x * (x + T::from_f64(3.0)).max(T::ZERO).min(six) / six
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        let three = T::from_f64(3.0);
        let slope = if saved <= -three {
            T::ZERO
        } else if saved >= three {
            T::ONE
        } else {
            saved / three + T::from_f64(0.5)
        };
        grad_output * slope
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = activation::cases(HardSwish, "", Fill::Normal);
    cases.push(activation::extreme(HardSwish, ""));
    cases
}
