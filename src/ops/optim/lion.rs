//! Lion.

use std::sync::Arc;

use crate::ops::loss::mae::sign;
use crate::ops::optim::update::{self, ElementwiseUpdate, States, Update};
use crate::ops::{Case, HYPER_LEN, Op, Real, UpdateRule};
use crate::tensor::TensorDesc;

/// `c = β₁ m + (1 − β₁) gradient`, `parameter = (1 − lr · weight_decay) parameter − lr · sign(c)`,
/// `m = β₂ m + (1 − β₂) gradient`
///
/// | tensor | shape |
/// |---|---|
/// | parameter (changed), gradient | any, both alike |
/// | m `exp_avg` (changed) | as parameter |
/// | hyper | `[4]`: lr, `1 − lr · weight_decay` |
/// | guard | `[1]` |
///
/// **State:** m, from zeros: half of Adam's. **Numerics:** f32; the sign of 0 is 0; where the guard is not finite nothing
/// changes.
///
/// # Errors
/// Where shapes differ or an input is not f32.
///
/// Source: algorithm 2 of <https://arxiv.org/abs/2302.06675>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// Share of m in the direction, and decay of m.
    pub betas: (f64, f64),
    /// Share of a parameter that is taken away each step, times the learning rate.
    pub weight_decay: f64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    betas: (f64, f64),
}

impl UpdateRule for Lion {
    fn op(&self, _parameter: &TensorDesc) -> Arc<dyn Op> {
        Arc::new(Update(Step { betas: self.betas }))
    }

    fn states(&self, parameter: &TensorDesc) -> States {
        update::like(parameter, &["exp_avg"])
    }

    fn hyper(&self, _step: u64, lr: f64) -> [f32; HYPER_LEN] {
        [lr as f32, (1.0 - lr * self.weight_decay) as f32, 0.0, 0.0]
    }
}

impl ElementwiseUpdate for Step {
    const NAME: &'static str = "lion";
    const FLOPS: u64 = 10;

    fn states(&self) -> &'static [&'static str] {
        &["exp_avg"]
    }

    fn settings(&self) -> Vec<(&'static str, f64)> {
        vec![("one_minus_beta1", 1.0 - self.betas.0), ("one_minus_beta2", 1.0 - self.betas.1)]
    }

    #[inline(always)]
    fn step<T: Real>(&self, hyper: &[T], parameter: T, gradient: T, states: &mut [T]) -> T {
        let toward = |beta: f64, m: T| m + T::from_f64(1.0 - beta) * (gradient - m);
        let direction = sign(toward(self.betas.0, states[0]));
        states[0] = toward(self.betas.1, states[0]);
        hyper[1] * parameter - hyper[0] * direction
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    update::cases("lion", &Lion { betas: (0.9, 0.99), weight_decay: 0.1 }, update::SHAPES)
}
