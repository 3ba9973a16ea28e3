//! A sigmoid of straight lines.

use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::elementwise::clamp::hold;
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real};
use crate::tensor::TensorDesc;

/// `output = min(max(input + 3, 0), 6) / 6`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the input. **In place:** yes.
/// **Numerics:** the gradient at −3 and 3 is 0, as in PyTorch.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.Hardsigmoid.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardSigmoid;

impl Activation for HardSigmoid {
    const NAME: &'static str = "hard_sigmoid";
    const GRAD_INPUT: &'static str = "hard_sigmoid.grad_input";
    const FLOPS: u64 = 4;

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        let line = [("alpha", (1.0f32 / 6.0).into()), ("beta", 0.5f32.into())];
        Some(call.node("HardSigmoid", &[&value], line))
    }

    fn saves_output(&self) -> bool {
        false
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        hold(x + T::from_f64(3.0), 0.0, 6.0) / T::from_f64(6.0)
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        if saved.abs() < T::from_f64(3.0) { grad_output / T::from_f64(6.0) } else { T::ZERO }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = activation::cases(HardSigmoid, "", Fill::Normal);
    cases.push(activation::extreme(HardSigmoid, ""));
    for (name, end) in [("at_3", 3.0), ("at_minus_3", -3.0)] {
        cases.push(Case::new(name, HardSigmoid, [TensorDesc::f32([5])]).fill(0, Fill::Constant(end)).large());
    }
    cases
}
