//! Adam and AdamW.

use std::sync::Arc;

use super::sgd::{update_cases, update_outputs};
use super::{Call, Case, Cost, Dispatch, Flags, HYPER_LEN, Op, Real, Slot, UpdateRule};
use crate::error::OpError;
use crate::shader::Target;
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
    /// Learning rate.
    pub lr: f64,
    /// Decay of the running moments.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// L2 penalty or decoupled decay.
    pub weight_decay: f64,
    /// AdamW's form of weight decay.
    pub decoupled: bool,
}

/// An update with everything that changes between steps left to `hyper`.
#[derive(Clone, Copy, Debug)]
struct Update {
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
}

impl UpdateRule for Adam {
    fn op(&self) -> Arc<dyn Op> {
        let weight_decay = if self.decoupled { 0.0 } else { self.weight_decay };
        Arc::new(Update { betas: self.betas, eps: self.eps, weight_decay })
    }

    fn states(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }

    fn hyper(&self, step: u64) -> [f32; HYPER_LEN] {
        let correction = |beta: f64| 1.0 - beta.powf(step as f64);
        let decay = if self.decoupled { 1.0 - self.lr * self.weight_decay } else { 1.0 };
        [(self.lr / correction(self.betas.0)) as f32, correction(self.betas.1).sqrt() as f32, decay as f32, 0.0]
    }
}

impl Op for Update {
    fn name(&self) -> &'static str {
        "adam"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        update_outputs("adam", inputs, 2)
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        Cost { flops: 14 * inputs[0].numel() as u64, bytes_moved: 7 * inputs[0].size_bytes() }
    }

    fn flags(&self) -> Flags {
        Flags { once: true, ..Flags::default() }
    }

    fn mutates(&self) -> &'static [usize] {
        &[0, 2, 3]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        #[repr(C)]
        #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
        struct Params {
            vectors: u32,
            one_minus_beta1: f32,
            beta2: f32,
            one_minus_beta2: f32,
            eps: f32,
            weight_decay: f32,
        }
        let vectors = inputs[0].numel().div_ceil(4);
        let params = Params {
            vectors: vectors as u32,
            one_minus_beta1: (1.0 - self.betas.0) as f32,
            beta2: self.betas.1 as f32,
            one_minus_beta2: (1.0 - self.betas.1) as f32,
            eps: self.eps as f32,
            weight_decay: self.weight_decay as f32,
        };
        let bindings: Vec<_> = (0..6).map(Slot::Input).collect();
        vec![Dispatch::new("adam", "forward", bindings).params(&params).linear(vectors.div_ceil(64))]
    }

    twin!();
}

impl Update {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (gradient, hyper, guard) = (call.input(1), call.input(4), call.input(5)[0]);
        if !guard.is_finite() {
            return;
        }
        let one_minus_beta1 = T::from_f64(1.0 - self.betas.0);
        let (beta2, one_minus_beta2) = (T::from_f64(self.betas.1), T::from_f64(1.0 - self.betas.1));
        let (eps, weight_decay) = (T::from_f64(self.eps), T::from_f64(self.weight_decay));
        let [parameter, exp_avg, exp_avg_sq] = call.mutated();
        for (((p, m), v), &g) in parameter.iter_mut().zip(exp_avg).zip(exp_avg_sq).zip(gradient) {
            let decayed = hyper[2] * *p;
            let g = g + weight_decay * decayed;
            *m += one_minus_beta1 * (g - *m);
            *v = beta2 * *v + one_minus_beta2 * g * g;
            *p = decayed - hyper[0] * (*m / (v.sqrt() / hyper[1] + eps));
        }
    }
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    let adam = Adam { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.1, decoupled: false };
    let mut cases = update_cases("l2", &adam);
    cases.extend(update_cases("decoupled", &Adam { decoupled: true, ..adam }));
    cases
}
