//! Huber loss.

use crate::error::OpError;
use crate::ops::loss::elementwise_loss::{self, ElementwiseLoss, elementwise_loss};
use crate::ops::{Case, Fill, Real};

/// `loss = mean(h(input − target))` over all elements, where `h(d)` is `d²/2` up to `|d| = delta` and
/// `delta (|d| − delta/2)` beyond; where `sample_weights`, `Σ weight h(input − target) / n`
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
/// Where the shapes do not fit, an input is not f32, or delta is not above 0; backward, where a gradient for the weights is wanted.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.HuberLoss.html>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Huber {
    /// Where the square turns into a straight line.
    pub delta: f32,
    /// Whether there is an input `sample_weight`.
    pub sample_weights: bool,
}

impl ElementwiseLoss for Huber {
    const NAME: &'static str = "huber";
    const GRAD_INPUT: &'static str = "huber.grad_input";
    const FLOPS: u64 = 7;
    const OF_DIFFERENCE: bool = true;

    fn setting(&self) -> f32 {
        self.delta
    }

    fn sample_weights(&self) -> bool {
        self.sample_weights
    }

    fn check(&self) -> Result<(), OpError> {
        if self.delta.is_finite() && self.delta > 0.0 {
            return Ok(());
        }
        let (value, reason) = (self.delta.to_string(), "it must be above 0".to_owned());
        Err(OpError::Setting { op: "huber", setting: "delta", value, reason })
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T, t: T, _weight: T) -> T {
        let (delta, half) = (T::from_f64(f64::from(self.delta)), T::from_f64(0.5));
        let distance = (x - t).abs();
        if distance <= delta { half * distance * distance } else { delta * (distance - half * delta) }
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, x: T, t: T, _weight: T) -> T {
        let delta = T::from_f64(f64::from(self.delta));
        (x - t).max(-delta).min(delta)
    }
}

elementwise_loss!(Huber);

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let huber = Huber { delta: 1.0, sample_weights: false };
    let mut cases = elementwise_loss::cases(huber, "delta1_", Fill::Normal);
    let huber = Huber { delta: 0.25, ..huber };
    cases.extend(elementwise_loss::cases(huber, "delta0.25_", Fill::Normal));
    cases.extend(elementwise_loss::sample_cases(Huber { sample_weights: true, ..huber }, "delta0.25_", Fill::Normal));
    cases
}
