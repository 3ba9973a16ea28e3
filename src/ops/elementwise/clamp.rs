//! Numbers held between two limits: clamp, hard tanh and ReLU6.

use crate::error::OpError;
use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real};
use crate::tensor::{TensorDesc, format_number};

/// `output = min(max(input, min), max)`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// A limit may be infinite, which leaves that side open.
///
/// **Saved for backward:** the output, which is strictly between the limits where the input is. **In place:** yes.
/// **Numerics:** exact; the gradient on the limits is 0, as in PyTorch.
///
/// # Errors
/// Where the input is not f32, or `min ≤ max` does not hold.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.clamp.html>,
/// <https://pytorch.org/docs/stable/generated/torch.nn.Hardtanh.html>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clamp {
    /// What is smaller becomes this.
    pub min: f32,
    /// What is larger becomes this.
    pub max: f32,
}

impl Clamp {
    /// `min(max(input, 0), 6)`
    ///
    /// Source: <https://pytorch.org/docs/stable/generated/torch.nn.ReLU6.html>
    pub const RELU6: Clamp = Clamp { min: 0.0, max: 6.0 };
}

impl Activation for Clamp {
    const NAME: &'static str = "clamp";
    const GRAD_INPUT: &'static str = "clamp.grad_input";
    const FLOPS: u64 = 2;

    fn settings(&self) -> Vec<f32> {
        vec![self.min, self.max]
    }

    fn check(&self) -> Result<(), OpError> {
        if self.min <= self.max {
            return Ok(());
        }
        let reason = format!("it is below min = {}", format_number(self.min));
        Err(OpError::Setting { op: "clamp", setting: "max", value: format_number(self.max), reason })
    }

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        let mut bound = |bound: f32| if bound.is_finite() { call.number(bound) } else { String::new() };
        let (min, max) = (bound(self.min), bound(self.max));
        Some(call.apply("Clip", &[&value, &min, &max]))
    }

    fn saves_output(&self) -> bool {
        true
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        hold(x, self.min, self.max)
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        let is_inside = saved > T::from_f64(f64::from(self.min)) && saved < T::from_f64(f64::from(self.max));
        if is_inside { grad_output } else { T::ZERO }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let symmetric = Clamp { min: -1.0, max: 1.0 };
    let mut cases = activation::cases(symmetric, "", Fill::Normal);
    cases.extend(activation::cases(Clamp { min: 0.25, max: f32::INFINITY }, "below_", Fill::Normal));
    cases.extend(activation::cases(Clamp::RELU6, "relu6_", Fill::Uniform(-3.0, 9.0)));
    for (prefix, op, limits) in [("", symmetric, [-1.0, 1.0]), ("relu6_", Clamp::RELU6, [0.0, 6.0])] {
        cases.extend(limits.map(|limit| {
            let case = Case::new(format!("{prefix}at_{limit}"), op, [TensorDesc::f32([5])]);
            case.fill(0, Fill::Constant(limit)).large()
        }));
    }
    cases
}

/// `x` held between two limits; NaN stays NaN.
#[inline(always)]
pub(in crate::ops) fn hold<T: Real>(x: T, low: f32, high: f32) -> T {
    let [low, high] = [low, high].map(|limit| T::from_f64(f64::from(limit)));
    if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Op;

    #[test]
    fn refuses_an_empty_range() {
        let outputs = |min, max| Clamp { min, max }.outputs(&[TensorDesc::f32([2])]).map_err(|error| error.to_string());
        assert!(outputs(1.0, 1.0).is_ok());
        assert!(outputs(1.0, 0.5).is_err_and(|e| e.contains("max = 0.5 is not possible: it is below min = 1")));
        assert!(outputs(f32::NAN, 0.5).is_err());
    }
}
