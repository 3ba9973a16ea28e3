//! Huber loss.

use crate::error::OpError;
use crate::ops::loss::elementwise_loss::{self, ElementwiseLoss, elementwise_loss};
use crate::ops::{Case, Fill, Real};

/// `loss = mean(h(input − target))` over all elements, where `h(d)` is `d²/2` up to `|d| = delta` and
/// `delta (|d| − delta/2)` beyond
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
/// Where the shapes differ, an input is not f32, or delta is not above 0.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.HuberLoss.html>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Huber {
    /// Where the square turns into a straight line.
    pub delta: f32,
}

impl ElementwiseLoss for Huber {
    const NAME: &'static str = "huber";
    const GRAD_INPUT: &'static str = "huber.grad_input";
    const FLOPS: u64 = 7;
    const OF_DIFFERENCE: bool = true;

    fn setting(&self) -> f32 {
        self.delta
    }

    fn check(&self) -> Result<(), OpError> {
        if self.delta.is_finite() && self.delta > 0.0 {
            return Ok(());
        }
        let (value, reason) = (self.delta.to_string(), "it must be above 0".to_owned());
        Err(OpError::Setting { op: "huber", setting: "delta", value, reason })
    }

    fn value<T: Real>(&self, x: T, t: T, _weight: T) -> T {
        let (delta, half) = (T::from_f64(f64::from(self.delta)), T::from_f64(0.5));
        let distance = (x - t).abs();
        if distance <= delta { half * distance * distance } else { delta * (distance - half * delta) }
    }

    fn gradient<T: Real>(&self, x: T, t: T, _weight: T) -> T {
        let delta = T::from_f64(f64::from(self.delta));
        (x - t).max(-delta).min(delta)
    }
}

elementwise_loss!(Huber);

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = elementwise_loss::cases(Huber { delta: 1.0 }, "delta1_", Fill::Normal);
    cases.extend(elementwise_loss::cases(Huber { delta: 0.25 }, "delta0.25_", Fill::Normal));
    cases
}
