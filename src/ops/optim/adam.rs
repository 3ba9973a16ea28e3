//! Adam and AdamW.

use std::sync::Arc;

use crate::ops::optim::update::{self, ElementwiseUpdate, States, Update};
use crate::ops::{Case, HYPER_LEN, Op, Real, UpdateRule};
use crate::tensor::TensorDesc;

/// Adam: `m += (1−β₁)(g − m)`, `v = β₂ v + (1−β₂) g²`,
/// `parameter −= lr/(1−β₁ᵗ) · m / (√v/√(1−β₂ᵗ) + eps)` at step t
///
/// Weight decay is an L2 penalty (`g = gradient + weight_decay · parameter`), or where `decoupled` (AdamW) a factor
/// `1 − lr · weight_decay` on the parameter before the step.
///
/// | tensor | shape |
/// |---|---|
/// | parameter (changed), gradient | any, both alike |
/// | m `exp_avg`, v `exp_avg_sq` (changed) | as parameter |
/// | hyper | `[4]`: `lr/(1−β₁ᵗ)`, `√(1−β₂ᵗ)`, factor of the parameter |
/// | guard | `[1]` |
///
/// **State:** m and v, from zeros. **Numerics:** f32; `hyper` is computed in f64; where the guard is not finite nothing
/// changes.
///
/// # Errors
/// Where shapes differ or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.optim.Adam.html>, <https://arxiv.org/abs/1412.6980>,
/// <https://arxiv.org/abs/1711.05101>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Decay of the running moments.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// L2 penalty or decoupled decay.
    pub weight_decay: f64,
    /// AdamW's form of weight decay.
    pub decoupled: bool,
}

/// What of an [`Adam`] changes single elements.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Step {
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
}

impl Adam {
    pub(in crate::ops) fn step(&self) -> Step {
        let weight_decay = if self.decoupled { 0.0 } else { self.weight_decay };
        Step { betas: self.betas, eps: self.eps, weight_decay }
    }
}

/// `1 − betaᵗ`, which takes away that a running mean begins at 0.
pub(in crate::ops) fn bias_correction(beta: f64, step: u64) -> f64 {
    1.0 - beta.powf(step as f64)
}

impl UpdateRule for Adam {
    fn op(&self, _parameter: &TensorDesc) -> Arc<dyn Op> {
        Arc::new(Update(self.step()))
    }

    fn states(&self, parameter: &TensorDesc) -> States {
        update::like(parameter, self.step().states())
    }

    fn hyper(&self, step: u64, lr: f64) -> [f32; HYPER_LEN] {
        let corrections = (bias_correction(self.betas.0, step), bias_correction(self.betas.1, step));
        let decay = if self.decoupled { 1.0 - lr * self.weight_decay } else { 1.0 };
        [(lr / corrections.0) as f32, corrections.1.sqrt() as f32, decay as f32, 0.0]
    }
}

impl ElementwiseUpdate for Step {
    const NAME: &'static str = "adam";
    const FLOPS: u64 = 14;

    fn states(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }

    fn settings(&self) -> Vec<(&'static str, f64)> {
        let (beta1, beta2) = self.betas;
        vec![
            ("one_minus_beta1", 1.0 - beta1),
            ("beta2", beta2),
            ("one_minus_beta2", 1.0 - beta2),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
        ]
    }

    #[inline(always)]
    fn step<T: Real>(&self, hyper: &[T], parameter: T, gradient: T, states: &mut [T]) -> T {
        let one_minus_beta1 = T::from_f64(1.0 - self.betas.0);
        let (beta2, one_minus_beta2) = (T::from_f64(self.betas.1), T::from_f64(1.0 - self.betas.1));
        let (eps, weight_decay) = (T::from_f64(self.eps), T::from_f64(self.weight_decay));
        let decayed = hyper[2] * parameter;
        let g = gradient + weight_decay * decayed;
        let m = states[0] + one_minus_beta1 * (g - states[0]);
        let v = beta2 * states[1] + one_minus_beta2 * g * g;
        states.copy_from_slice(&[m, v]);
        // Divisions take longest, and this one is the same for all elements.
        let correction = T::ONE / hyper[1];
        decayed - hyper[0] * (m / (v.sqrt() * correction + eps))
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let adam = Adam { betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.1, decoupled: false };
    let mut cases = update::cases("l2", &adam, update::SHAPES);
    cases.extend(update::cases("decoupled", &Adam { decoupled: true, ..adam }, update::SHAPES));
    cases
}
