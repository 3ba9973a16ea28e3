//! Natural logarithm.

use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real};
use crate::tensor::TensorDesc;

/// `output = ln(input)`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the input. **In place:** yes.
/// **Numerics:** that of the device's `log`. Negative inputs give NaN, 0 gives −∞ and there the gradient is infinite.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.log.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log;

impl Activation for Log {
    const NAME: &'static str = "log";
    const GRAD_INPUT: &'static str = "log.grad_input";
    const FLOPS: u64 = 10;

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        Some(call.apply("Log", &[&value]))
    }

    fn saves_output(&self) -> bool {
        false
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        x.ln()
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        grad_output / saved
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = activation::cases(Log, "", Fill::Uniform(0.1, 5.0));
    for (case, x) in [("zeros_5", 0.0), ("negative_5", -2.0)] {
        cases.push(Case::new(case, Log, [TensorDesc::f32([5])]).fill(0, Fill::Constant(x)).large());
    }
    cases
}
