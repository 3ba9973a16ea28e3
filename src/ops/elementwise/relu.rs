//! Rectified linear unit.

use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::onnx;
use crate::ops::{BuiltInActivation, Case, Fill, Real};
use crate::tensor::TensorDesc;

/// `output = max(input, 0)`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the output; compressed, a bit for each of its elements unless the output is kept anyway.
/// **In place:** yes.
/// **Numerics:** the gradient at 0 is 0, as in PyTorch. NaN stays NaN.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.ReLU.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relu;

impl Activation for Relu {
    const NAME: &'static str = "relu";
    const GRAD_INPUT: &'static str = "relu.grad_input";
    const FLOPS: u64 = 1;
    const BUILT_IN: Option<BuiltInActivation> = Some(BuiltInActivation::Relu);
    const MASK: Option<[&'static str; 2]> = Some(["relu.mask", "relu.grad_input_mask"]);

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        Some(call.apply("Relu", &[&value]))
    }

    fn saves_output(&self) -> bool {
        true
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        if x < T::ZERO { T::ZERO } else { x }
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        if saved > T::ZERO { grad_output } else { T::ZERO }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = activation::cases(Relu, "", Fill::AwayFromZero(0.05));
    // A loss that went wrong must show, so NaN passes; the gradient at 0 is 0.
    for (name, value) in [("nan", f32::NAN), ("zero", 0.0)] {
        cases.push(Case::new(name, Relu, [TensorDesc::f32([5])]).fill(0, Fill::Constant(value)).large());
    }
    cases
}
