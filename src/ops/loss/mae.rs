//! Mean absolute error.

use crate::ops::loss::elementwise_loss::{self, ElementwiseLoss, elementwise_loss};
use crate::ops::{Case, Fill, Real};

/// `loss = mean(|input − target|)` over all elements; where `sample_weights`, `Σ weight |input − target| / n`
///
/// | tensor | shape |
/// |---|---|
/// | input, target | any, both alike |
/// | sample_weight, only where `sample_weights` | `[W]`, see [`loss`](crate::ops::loss) |
/// | loss | `[1]` |
///
/// **Saved for backward:** input and target. **In place:** no.
/// **Numerics:** sums in f32, in two levels and always in the same order. Where input and target are equal, the gradient
/// is 0.
///
/// # Errors
/// Where the shapes do not fit or an input is not f32; backward, where a gradient for the weights is wanted.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.L1Loss.html>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mae {
    /// Whether there is an input `sample_weight`.
    pub sample_weights: bool,
}

impl ElementwiseLoss for Mae {
    const NAME: &'static str = "mae";
    const GRAD_INPUT: &'static str = "mae.grad_input";
    const FLOPS: u64 = 3;
    const OF_DIFFERENCE: bool = true;

    fn sample_weights(&self) -> bool {
        self.sample_weights
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T, t: T, _weight: T) -> T {
        (x - t).abs()
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, x: T, t: T, _weight: T) -> T {
        sign(x - t)
    }
}

/// −1, 0 or 1.
#[inline(always)]
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
    let mut cases = elementwise_loss::cases(Mae::default(), "", Fill::Normal);
    cases.extend(elementwise_loss::sample_cases(Mae { sample_weights: true }, "", Fill::Normal));
    let equal = elementwise_loss::case(Mae::default(), "equal", &[5], Fill::Constant(0.5));
    cases.push(equal.fill(0, Fill::Constant(0.5)).large());
    cases
}
