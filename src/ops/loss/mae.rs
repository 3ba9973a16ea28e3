//! Mean absolute error.

use crate::ops::loss::elementwise_loss::{self, ElementwiseLoss, elementwise_loss};
use crate::ops::{Case, Fill, Real};

/// `loss = mean(|input − target|)` over all elements
///
/// | tensor | shape |
/// |---|---|
/// | input, target | any, both alike |
/// | loss | `[1]` |
///
/// **Saved for backward:** input and target. **In place:** no.
/// **Numerics:** sums in f32, in two levels and always in the same order. Where input and target are equal, the gradient
/// is 0.
///
/// # Errors
/// Where the shapes differ or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.L1Loss.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mae;

impl ElementwiseLoss for Mae {
    const NAME: &'static str = "mae";
    const GRAD_INPUT: &'static str = "mae.grad_input";
    const FLOPS: u64 = 3;
    const OF_DIFFERENCE: bool = true;

    fn value<T: Real>(&self, x: T, t: T, _weight: T) -> T {
        (x - t).abs()
    }

    fn gradient<T: Real>(&self, x: T, t: T, _weight: T) -> T {
        sign(x - t)
    }
}

/// −1, 0 or 1.
pub(in crate::ops) fn sign<T: Real>(x: T) -> T {
    if x > T::ZERO {
        T::ONE
    } else if x < T::ZERO {
        -T::ONE
    } else {
        T::ZERO
    }
}

elementwise_loss!(Mae);

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = elementwise_loss::cases(Mae, "", Fill::Normal);
    let equal = elementwise_loss::case(Mae, "equal", &[5], Fill::Constant(0.5));
    cases.push(equal.fill(0, Fill::Constant(0.5)).large());
    cases
}
