//! Mean squared error.

use crate::ops::loss::elementwise_loss::{self, ElementwiseLoss, elementwise_loss};
use crate::ops::{Case, Fill, Real};

/// `loss = mean((input − target)²)` over all elements
///
/// | tensor | shape |
/// |---|---|
/// | input, target | any, both alike |
/// | loss | `[1]` |
///
/// **Saved for backward:** input and target. **In place:** no.
/// **Numerics:** sums in f32, in two levels and always in the same order.
///
/// # Errors
/// Where the shapes differ or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.MSELoss.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mse;

impl ElementwiseLoss for Mse {
    const NAME: &'static str = "mse";
    const GRAD_INPUT: &'static str = "mse.grad_input";
    const FLOPS: u64 = 3;
    const OF_DIFFERENCE: bool = true;

    fn value<T: Real>(&self, x: T, t: T, _weight: T) -> T {
        (x - t) * (x - t)
    }

    fn gradient<T: Real>(&self, x: T, t: T, _weight: T) -> T {
        (x - t) + (x - t)
    }
}

elementwise_loss!(Mse);

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    elementwise_loss::cases(Mse, "", Fill::Normal)
}
