//! Mean squared error.

use crate::ops::loss::elementwise_loss::{self, ElementwiseLoss, elementwise_loss};
use crate::ops::{Case, Fill, Real};

/// `loss = mean((input − target)²)` over all elements; where `sample_weights`, `Σ weight (input − target)² / n`
///
/// | tensor | shape |
/// |---|---|
/// | input, target | any, both alike |
/// | sample_weight, only where `sample_weights` | `[W]`, see [`loss`](crate::ops::loss) |
/// | loss | `[1]` |
///
/// **Saved for backward:** input and target. **In place:** no.
/// **Numerics:** sums in f32, in two levels and always in the same order.
///
/// # Errors
/// Where the shapes do not fit or an input is not f32; backward, where a gradient for the weights is wanted.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.MSELoss.html>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mse {
    /// Whether there is an input `sample_weight`.
    pub sample_weights: bool,
}

impl ElementwiseLoss for Mse {
    const NAME: &'static str = "mse";
    const GRAD_INPUT: &'static str = "mse.grad_input";
    const FLOPS: u64 = 3;
    const OF_DIFFERENCE: bool = true;

    fn sample_weights(&self) -> bool {
        self.sample_weights
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T, t: T, _weight: T) -> T {
        (x - t) * (x - t)
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, x: T, t: T, _weight: T) -> T {
        (x - t) + (x - t)
    }
}

elementwise_loss!(Mse);

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = elementwise_loss::cases(Mse::default(), "", Fill::Normal);
    cases.extend(elementwise_loss::sample_cases(Mse { sample_weights: true }, "", Fill::Normal));
    cases
}
