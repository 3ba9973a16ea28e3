//! Square root.

use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real};
use crate::tensor::TensorDesc;

/// `output = √input`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the output. **In place:** yes.
/// **Numerics:** negative inputs give NaN; at 0 the gradient is infinite, as in PyTorch.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.sqrt.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sqrt;

impl Activation for Sqrt {
    const NAME: &'static str = "sqrt";
    const GRAD_INPUT: &'static str = "sqrt.grad_input";
    const FLOPS: u64 = 3;

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        Some(call.apply("Sqrt", &[&value]))
    }

    fn saves_output(&self) -> bool {
        true
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        x.sqrt()
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        grad_output / (saved + saved)
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = activation::cases(Sqrt, "", Fill::Uniform(0.1, 5.0));
    for (case, x) in [("zeros_5", 0.0), ("negative_5", -2.0)] {
        cases.push(Case::new(case, Sqrt, [TensorDesc::f32([5])]).fill(0, Fill::Constant(x)).large());
    }
    cases
}
