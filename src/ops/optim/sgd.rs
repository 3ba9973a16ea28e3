//! Stochastic gradient descent.

use std::sync::Arc;

use crate::ops::optim::update::{self, ElementwiseUpdate, States, Update};
use crate::ops::{Case, HYPER_LEN, Op, Real, UpdateRule};
use crate::tensor::TensorDesc;

/// `d = gradient + weight_decay · parameter`; with momentum `buffer = momentum · buffer + d`, and
/// `d = d + momentum · buffer` (Nesterov) or `d = buffer`; `parameter −= lr · d`
///
/// | tensor | shape |
/// |---|---|
/// | parameter (changed), gradient | any, both alike |
/// | `momentum_buffer` (changed), only with momentum | as parameter |
/// | hyper | `[4]`: lr |
/// | guard | `[1]` |
///
/// **State:** the momentum buffer, from zeros (so that the first step's buffer is its gradient, as in PyTorch).
/// **Numerics:** f32; where the guard is not finite nothing changes.
///
/// # Errors
/// Where shapes differ or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.optim.SGD.html>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Share of the last step's direction that is kept.
    pub momentum: f64,
    /// Nesterov's form of momentum.
    pub nesterov: bool,
    /// L2 penalty.
    pub weight_decay: f64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    momentum: f64,
    nesterov: bool,
    weight_decay: f64,
}

impl Sgd {
    fn step(&self) -> Step {
        Step { momentum: self.momentum, nesterov: self.nesterov, weight_decay: self.weight_decay }
    }
}

impl UpdateRule for Sgd {
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
    const NAME: &'static str = "sgd";
    const FLOPS: u64 = 6;

    fn states(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &["momentum_buffer"] }
    }

    fn consts(&self) -> Vec<(&'static str, u32)> {
        if self.momentum == 0.0 { Vec::new() } else { vec![("MOMENTUM", 1), ("NESTEROV", u32::from(self.nesterov))] }
    }

    fn settings(&self) -> Vec<(&'static str, f64)> {
        vec![("momentum", self.momentum), ("weight_decay", self.weight_decay)]
    }

    #[inline(always)]
    fn step<T: Real>(&self, hyper: &[T], parameter: T, gradient: T, states: &mut [T]) -> T {
        let (momentum, weight_decay) = (T::from_f64(self.momentum), T::from_f64(self.weight_decay));
        let d = gradient + weight_decay * parameter;
        let Some(buffer) = states.first_mut() else { return parameter - hyper[0] * d };
        *buffer = momentum * *buffer + d;
        parameter - hyper[0] * if self.nesterov { d + momentum * *buffer } else { *buffer }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let plain = Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.01 };
    let mut cases = update::cases("plain", &plain, update::SHAPES);
    cases.extend(update::cases("momentum", &Sgd { momentum: 0.9, ..plain }, update::SHAPES));
    cases.extend(update::cases("nesterov", &Sgd { momentum: 0.9, nesterov: true, ..plain }, update::SHAPES));
    cases
}
