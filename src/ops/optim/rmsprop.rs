//! RMSprop.

use std::sync::Arc;

use crate::ops::optim::update::{self, ElementwiseUpdate, States, Update};
use crate::ops::{Case, HYPER_LEN, Op, Real, UpdateRule};
use crate::tensor::TensorDesc;

/// `g = gradient + weight_decay · parameter`, `v = alpha v + (1 − alpha) g²`, `d = g / (√v + eps)`; where centered
/// `a += (1 − alpha)(g − a)` and `d = g / (√(v − a²) + eps)`; with momentum `b = momentum · b + d` and `d = b`;
/// `parameter −= lr · d`
///
/// | tensor | shape |
/// |---|---|
/// | parameter (changed), gradient | any, both alike |
/// | v `square_avg` (changed) | as parameter |
/// | a `grad_avg` (changed), only where centered | as parameter |
/// | b `momentum_buffer` (changed), only with momentum | as parameter |
/// | hyper | `[4]`: lr |
/// | guard | `[1]` |
///
/// **State:** from zeros. **Numerics:** f32; a variance that rounding makes negative counts as 0; where the guard is not finite
/// nothing changes.
///
/// # Errors
/// Where shapes differ or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.optim.RMSprop.html>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsProp {
    /// Decay of the running means.
    pub alpha: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// L2 penalty.
    pub weight_decay: f64,
    /// Share of the last step's direction that is kept.
    pub momentum: f64,
    /// Whether gradients are divided by their standard deviation instead of their root mean square.
    pub centered: bool,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    alpha: f64,
    eps: f64,
    weight_decay: f64,
    momentum: f64,
    centered: bool,
}

impl RmsProp {
    fn step(&self) -> Step {
        let RmsProp { alpha, eps, weight_decay, momentum, centered, .. } = *self;
        Step { alpha, eps, weight_decay, momentum, centered }
    }
}

impl UpdateRule for RmsProp {
    fn op(&self, _parameter: &TensorDesc) -> Arc<dyn Op> {
        Arc::new(Update(self.step()))
    }

    fn states(&self, parameter: &TensorDesc) -> States {
        update::like(parameter, self.step().states())
    }

    fn hyper(&self, _step: u64, lr: f64) -> [f32; HYPER_LEN] {
        [lr as f32, 0.0, 0.0, 0.0]
    }
}

impl ElementwiseUpdate for Step {
    const NAME: &'static str = "rmsprop";
    const FLOPS: u64 = 18;

    fn states(&self) -> &'static [&'static str] {
        match (self.centered, self.momentum > 0.0) {
            (false, false) => &["square_avg"],
            (false, true) => &["square_avg", "momentum_buffer"],
            (true, false) => &["square_avg", "grad_avg"],
            (true, true) => &["square_avg", "grad_avg", "momentum_buffer"],
        }
    }

    fn consts(&self) -> Vec<(&'static str, u32)> {
        let flags = [("CENTERED", self.centered), ("MOMENTUM", self.momentum > 0.0)];
        flags.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| (name, 1)).collect()
    }

    fn settings(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("alpha", self.alpha),
            ("one_minus_alpha", 1.0 - self.alpha),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
            ("momentum", self.momentum),
        ]
    }

    #[inline(always)]
    fn step<T: Real>(&self, hyper: &[T], parameter: T, gradient: T, states: &mut [T]) -> T {
        let (alpha, one_minus_alpha) = (T::from_f64(self.alpha), T::from_f64(1.0 - self.alpha));
        let g = gradient + T::from_f64(self.weight_decay) * parameter;
        states[0] = alpha * states[0] + one_minus_alpha * g * g;
        let mut variance = states[0];
        if self.centered {
            states[1] += one_minus_alpha * (g - states[1]);
            variance = (variance - states[1] * states[1]).max(T::ZERO);
        }
        let mut d = g / (variance.sqrt() + T::from_f64(self.eps));
        if self.momentum > 0.0 {
            let buffer = states.last_mut().expect("bug: momentum has a state");
            *buffer = T::from_f64(self.momentum) * *buffer + d;
            d = *buffer;
        }
        parameter - hyper[0] * d
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let plain = RmsProp { alpha: 0.99, eps: 1e-8, weight_decay: 0.1, momentum: 0.0, centered: false };
    let mut cases = update::cases("plain", &plain, update::SHAPES);
    cases.extend(update::cases("momentum", &RmsProp { momentum: 0.9, ..plain }, update::SHAPES));
    // An eps that keeps away from 1 / 0 where the drawn states have a variance below 0.
    let centered = RmsProp { centered: true, eps: 0.5, ..plain };
    cases.extend(update::cases("centered", &centered, update::SHAPES));
    cases.extend(update::cases("centered_momentum", &RmsProp { momentum: 0.9, ..centered }, update::SHAPES));
    cases
}
