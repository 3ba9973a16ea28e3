//! LAMB.

use std::sync::Arc;

use crate::error::OpError;
use crate::native::{Fast, Rule, change, dot};
use crate::ops::optim::adam::bias_correction;
use crate::ops::optim::update::{self, States};
use crate::ops::reduce::reduction;
use crate::ops::sums::sum;
use crate::ops::{Call, Case, Cost, Dispatch, Flags, HYPER_LEN, Native, Op, Real, Resources, Slot, UpdateRule};
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

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

/// Elements of which the squares are added up before they are added to a norm.
const BLOCK: usize = 4096;

impl Native for Step {
    /// Squared norms of the parameter and of the direction, for each block.
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _threads: usize) -> Vec<u64> {
        vec![8 * inputs[0].numel().div_ceil(BLOCK) as u64]
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let (gradient, hyper, guard) = (call.input(1), call.input(4), call.input(5)[0]);
        if !guard.is_finite() {
            return;
        }
        let [parameter, exp_avg, exp_avg_sq] = call.mutated();
        let step = Numbers::new(*self, [hyper[0], hyper[1], hyper[2]].map(Fast));
        let blocks = exp_avg.len().div_ceil(BLOCK);
        let norms = &mut with.workspaces[0][..2 * blocks];
        let moments = exp_avg.chunks_mut(BLOCK).zip(exp_avg_sq.chunks_mut(BLOCK)).zip(norms.chunks_mut(2));
        let mut tasks: Vec<_> = moments.enumerate().collect();
        let (level, before) = (with.cores.level(), &*parameter);
        with.cores.each(&mut tasks, |_, (block, ((m, v), norms))| {
            let range = *block * BLOCK..*block * BLOCK + m.len();
            let (p, g) = (&before[range.clone()], &gradient[range]);
            let mut room = [0.0; BLOCK];
            let direction = &mut room[..m.len()];
            change(level, Moments(step), [m, v, &mut *direction], [p, g]);
            norms.copy_from_slice(&[dot(level, p, p), dot(level, direction, direction)]);
        });
        let norm = |which: usize| sum(norms[which..].iter().step_by(2).copied()).sqrt();
        let norms = (norm(0), norm(1));
        let ratio = if norms.0 > 0.0 && norms.1 > 0.0 { norms.0 / norms.1 } else { 1.0 };
        let apply = Apply { step, rate: Fast(hyper[0]) * Fast(ratio) };
        update::changes(with.cores, apply, [parameter], [exp_avg, exp_avg_sq]);
    }
}

/// The numbers of a step.
#[derive(Clone, Copy)]
struct Numbers<T> {
    one_minus_beta1: T,
    beta2: T,
    one_minus_beta2: T,
    eps: T,
    weight_decay: T,
    /// Corrections of the moments.
    corrections: [T; 2],
}

impl<T: Real> Numbers<T> {
    fn new(step: Step, hyper: [T; 3]) -> Self {
        Numbers {
            one_minus_beta1: T::from_f64(1.0 - step.betas.0),
            beta2: T::from_f64(step.betas.1),
            one_minus_beta2: T::from_f64(1.0 - step.betas.1),
            eps: T::from_f64(step.eps),
            weight_decay: T::from_f64(step.weight_decay),
            corrections: [hyper[1], hyper[2]],
        }
    }

    /// Moves the moments.
    #[inline(always)]
    fn move_moments(&self, m: &mut T, v: &mut T, g: T) {
        *m += self.one_minus_beta1 * (g - *m);
        *v = self.beta2 * *v + self.one_minus_beta2 * g * g;
    }

    #[inline(always)]
    fn direction(&self, m: T, v: T, p: T) -> T {
        m / self.corrections[0] / (v.sqrt() / self.corrections[1] + self.eps) + self.weight_decay * p
    }
}

#[derive(Clone, Copy)]
struct Moments(Numbers<Fast>);

impl Rule<3, 2> for Moments {
    #[inline(always)]
    fn change(self, [m, v, direction]: &mut [Fast; 3], [p, g]: [Fast; 2]) {
        self.0.move_moments(m, v, g);
        *direction = self.0.direction(*m, *v, p);
    }
}

#[derive(Clone, Copy)]
struct Apply {
    step: Numbers<Fast>,
    rate: Fast,
}

impl Rule<1, 2> for Apply {
    #[inline(always)]
    fn change(self, [p]: &mut [Fast; 1], [m, v]: [Fast; 2]) {
        *p -= self.rate * self.step.direction(m, v, *p);
    }
}

impl Step {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (gradient, hyper, guard) = (call.input(1), call.input(4), call.input(5)[0]);
        if !guard.is_finite() {
            return;
        }
        let step = Numbers::new(*self, [hyper[0], hyper[1], hyper[2]]);
        let [parameter, exp_avg, exp_avg_sq] = call.mutated();
        let moments = exp_avg.iter_mut().zip(exp_avg_sq.iter_mut()).zip(gradient).zip(parameter.iter());
        let directions: Vec<T> = moments
            .map(|(((m, v), &g), &p)| {
                step.move_moments(m, v, g);
                step.direction(*m, *v, p)
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
