//! Adagrad.

use std::sync::Arc;

use crate::ops::optim::update::{self, ElementwiseUpdate, States, Update};
use crate::ops::{Case, HYPER_LEN, Op, Real, UpdateRule};
use crate::tensor::TensorDesc;

/// `g = gradient + weight_decay · parameter`, `sum += g²`,
/// `parameter −= lr / (1 + (t − 1) lr_decay) · g / (√(sum + initial_accumulator_value) + eps)` at step t
///
/// | tensor | shape |
/// |---|---|
/// | parameter (changed), gradient | any, both alike |
/// | `sum` (changed) | as parameter |
/// | hyper | `[4]`: `lr / (1 + (t − 1) lr_decay)` |
/// | guard | `[1]` |
///
/// **State:** `sum`, from zeros: PyTorch's holds the initial value too. **Numerics:** f32; `hyper` is computed in f64; where the
/// guard is not finite nothing changes.
///
/// # Errors
/// Where shapes differ or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.optim.Adagrad.html>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adagrad {
    /// How fast it shrinks.
    pub lr_decay: f64,
    /// L2 penalty.
    pub weight_decay: f64,
    /// What sums of squares begin with.
    pub initial_accumulator_value: f64,
    /// Added to the denominator.
    pub eps: f64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    weight_decay: f64,
    initial_accumulator_value: f64,
    eps: f64,
}

impl UpdateRule for Adagrad {
    fn op(&self, _parameter: &TensorDesc) -> Arc<dyn Op> {
        let Adagrad { weight_decay, initial_accumulator_value, eps, .. } = *self;
        Arc::new(Update(Step { weight_decay, initial_accumulator_value, eps }))
    }

    fn states(&self, parameter: &TensorDesc) -> States {
        update::like(parameter, &["sum"])
    }

    fn hyper(&self, step: u64, lr: f64) -> [f32; HYPER_LEN] {
        [(lr / (1.0 + (step - 1) as f64 * self.lr_decay)) as f32, 0.0, 0.0, 0.0]
    }
}

impl ElementwiseUpdate for Step {
    const NAME: &'static str = "adagrad";
    const FLOPS: u64 = 10;

    fn states(&self) -> &'static [&'static str] {
        &["sum"]
    }

    fn settings(&self) -> Vec<(&'static str, f64)> {
        vec![("initial", self.initial_accumulator_value), ("eps", self.eps), ("weight_decay", self.weight_decay)]
    }

    #[inline(always)]
    fn step<T: Real>(&self, hyper: &[T], parameter: T, gradient: T, states: &mut [T]) -> T {
        let g = gradient + T::from_f64(self.weight_decay) * parameter;
        states[0] += g * g;
        let sum = states[0] + T::from_f64(self.initial_accumulator_value);
        parameter - hyper[0] * (g / (sum.sqrt() + T::from_f64(self.eps)))
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let plain = Adagrad { lr_decay: 0.0, weight_decay: 0.0, initial_accumulator_value: 0.0, eps: 1e-10 };
    let all = Adagrad { lr_decay: 0.1, weight_decay: 0.1, initial_accumulator_value: 0.5, ..plain };
    let mut cases = update::cases("plain", &plain, update::SHAPES);
    cases.extend(update::cases("all", &all, update::SHAPES));
    cases
}
