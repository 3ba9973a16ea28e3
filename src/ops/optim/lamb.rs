//! LAMB.

use std::sync::Arc;

use crate::error::OpError;
use crate::ops::optim::adam::bias_correction;
use crate::ops::optim::update::{self, States};
use crate::ops::reduce::reduction;
use crate::ops::sums::sum;
use crate::ops::{Call, Case, Cost, Dispatch, Flags, HYPER_LEN, Op, Real, Slot, UpdateRule};
use crate::shader::Target;
use crate::tensor::TensorDesc;

/// Adam's direction with a step as long as the parameter: with m and v as [`Adam`](crate::ops::optim::adam::Adam),
/// `r = m/(1−β₁ᵗ) / (√v/√(1−β₂ᵗ) + eps) + weight_decay · parameter` and `parameter −= lr · ‖parameter‖/‖r‖ · r` at step t,
/// where a ratio of which either norm is 0 counts as 1
///
/// | tensor | shape |
/// |---|---|
/// | parameter (changed), gradient | any, both alike |
/// | m `exp_avg`, v `exp_avg_sq` (changed) | as parameter |
/// | hyper | `[4]`: lr, `1 − β₁ᵗ`, `√(1 − β₂ᵗ)` |
/// | guard | `[1]` |
///
/// **State:** m and v, from zeros. **Numerics:** f32; norms are sums in two levels and always in the same order; `hyper` is
/// computed in f64; where the guard is not finite nothing changes.
///
/// # Errors
/// Where shapes differ or an input is not f32.
///
/// Source: algorithm 2 of <https://arxiv.org/abs/1904.00962>, with φ(z) = z
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lamb {
    /// Decay of the running moments.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// Share of the parameter that is added to the direction.
    pub weight_decay: f64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
}

const STATES: &[&str] = &["exp_avg", "exp_avg_sq"];

params! {
    struct Params {
        elements: u32,
        splits: u32,
        one_minus_beta1: f32,
        beta2: f32,
        one_minus_beta2: f32,
        eps: f32,
        weight_decay: f32,
    }
}

impl UpdateRule for Lamb {
    fn op(&self, _parameter: &TensorDesc) -> Arc<dyn Op> {
        Arc::new(Step { betas: self.betas, eps: self.eps, weight_decay: self.weight_decay })
    }

    fn states(&self, parameter: &TensorDesc) -> States {
        update::like(parameter, STATES)
    }

    fn hyper(&self, step: u64, lr: f64) -> [f32; HYPER_LEN] {
        let corrections = (bias_correction(self.betas.0, step), bias_correction(self.betas.1, step));
        [lr as f32, corrections.0 as f32, corrections.1.sqrt() as f32, 0.0]
    }
}

impl Op for Step {
    fn name(&self) -> &'static str {
        "lamb"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        update::outputs("lamb", inputs, |parameter| update::like(parameter, STATES))
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        // The second pass reads parameter and states again.
        let bytes_moved = update::bytes_moved(inputs, 2) + 3 * inputs[0].size_bytes();
        Cost { flops: 32 * inputs[0].numel() as u64, bytes_moved }
    }

    /// Partial sums of the two squared norms, and the sums.
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        vec![8 * update::splits(inputs[0].numel().div_ceil(4)) as u64, 8]
    }

    fn flags(&self) -> Flags {
        update::FLAGS
    }

    fn mutates(&self) -> &'static [usize] {
        update::mutates(2)
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let vectors = inputs[0].numel().div_ceil(4);
        let splits = update::splits(vectors);
        let params = Params {
            elements: inputs[0].numel() as u32,
            splits: splits as u32,
            one_minus_beta1: (1.0 - self.betas.0) as f32,
            beta2: self.betas.1 as f32,
            one_minus_beta2: (1.0 - self.betas.1) as f32,
            eps: self.eps as f32,
            weight_decay: self.weight_decay as f32,
        };
        let [partials, sums] = [0, 1].map(Slot::Workspace);
        let launch = |entry: &'static str, bindings: Vec<Slot>| Dispatch::new("lamb", entry, bindings).params(&params);
        let apply = [0, 4, 5, 2, 3].map(Slot::Input).into_iter().chain([sums]).collect();
        vec![
            launch("moments", [update::bindings(2), vec![partials]].concat())
                .linear(splits.div_ceil(64))
                .loops(vectors.div_ceil(splits)),
            reduction::combine(partials, sums, 2, splits, 1.0),
            launch("apply", apply).linear(vectors.div_ceil(64)),
        ]
    }

    twin!();
}

impl Step {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (gradient, hyper, guard) = (call.input(1), call.input(4), call.input(5)[0]);
        if !guard.is_finite() {
            return;
        }
        let one_minus_beta1 = T::from_f64(1.0 - self.betas.0);
        let (beta2, one_minus_beta2) = (T::from_f64(self.betas.1), T::from_f64(1.0 - self.betas.1));
        let (eps, weight_decay) = (T::from_f64(self.eps), T::from_f64(self.weight_decay));
        let [parameter, exp_avg, exp_avg_sq] = call.mutated();
        let moments = exp_avg.iter_mut().zip(exp_avg_sq.iter_mut()).zip(gradient).zip(parameter.iter());
        let directions: Vec<T> = moments
            .map(|(((m, v), &g), &p)| {
                *m += one_minus_beta1 * (g - *m);
                *v = beta2 * *v + one_minus_beta2 * g * g;
                *m / hyper[1] / (v.sqrt() / hyper[2] + eps) + weight_decay * p
            })
            .collect();
        let norm = |values: &[T]| sum(values.iter().map(|&x| x * x)).sqrt();
        let norms = (norm(parameter), norm(&directions));
        let ratio = if norms.0 > T::ZERO && norms.1 > T::ZERO { norms.0 / norms.1 } else { T::ONE };
        for (p, r) in parameter.iter_mut().zip(directions) {
            *p -= hyper[0] * ratio * r;
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let lamb = Lamb { betas: (0.9, 0.999), eps: 1e-6, weight_decay: 0.1 };
    let shapes: &[&[usize]] = &[&[1], &[257], &[3, 5, 7], &[1031, 67], &[7]];
    let mut cases = update::cases("lamb", &lamb, shapes);
    let mut zero = update::cases("zero", &Lamb { weight_decay: 0.0, ..lamb }, &[&[7]]).swap_remove(0);
    zero.inputs[0].1 = crate::ops::Fill::Constant(0.0);
    cases.push(zero);
    cases
}
