//! Stochastic gradient descent.

use std::sync::Arc;

use super::{
    Call, Case, Cost, Dispatch, Fill, Flags, HYPER_LEN, Op, Real, Slot, UpdateRule, expect_count, expect_dtype,
    expect_shape,
};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc};

/// `d = gradient + weight_decay · parameter`; with momentum `buffer = momentum · buffer + d`, and
/// `d = d + momentum · buffer` (Nesterov) or `d = buffer`; `parameter −= lr · d`
///
/// | tensor | shape |
/// |---|---|
/// | parameter (changed), gradient | any, both alike |
/// | momentum buffer (changed), only with momentum | as parameter |
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
    /// Learning rate.
    pub lr: f64,
    /// Share of the last step's direction that is kept.
    pub momentum: f64,
    /// Nesterov's form of momentum.
    pub nesterov: bool,
    /// L2 penalty.
    pub weight_decay: f64,
}

/// The shape rule of updates with this many states.
pub(super) fn update_outputs(op: &'static str, inputs: &[TensorDesc], states: usize) -> Result<Vec<TensorDesc>, OpError> {
    const NAMES: [&str; 3] = ["gradient", "state 1", "state 2"];
    expect_count(op, inputs, 4 + states)?;
    expect_dtype(op, "parameter", &inputs[0], DType::F32)?;
    for (input, name) in inputs[1..].iter().zip(NAMES).take(1 + states) {
        expect_dtype(op, name, input, DType::F32)?;
        expect_shape(op, name, input, inputs[0].shape.clone())?;
    }
    expect_shape(op, "hyper", &inputs[2 + states], [HYPER_LEN])?;
    expect_shape(op, "guard", &inputs[3 + states], [1])?;
    Ok(Vec::new())
}

/// An update with its learning rate left to `hyper`: two steps of one training are the same op.
#[derive(Clone, Copy, Debug)]
struct Update {
    momentum: f64,
    nesterov: bool,
    weight_decay: f64,
}

impl UpdateRule for Sgd {
    fn op(&self) -> Arc<dyn Op> {
        Arc::new(Update { momentum: self.momentum, nesterov: self.nesterov, weight_decay: self.weight_decay })
    }

    fn states(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &["momentum"] }
    }

    fn hyper(&self, _step: u64) -> [f32; HYPER_LEN] {
        [self.lr as f32, 0.0, 0.0, 0.0]
    }
}

impl Update {
    fn states(self) -> usize {
        usize::from(self.momentum != 0.0)
    }
}

impl Op for Update {
    fn name(&self) -> &'static str {
        "sgd"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        update_outputs("sgd", inputs, self.states())
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        let tensors = 3 + 2 * self.states() as u64;
        Cost { flops: 6 * inputs[0].numel() as u64, bytes_moved: tensors * inputs[0].size_bytes() }
    }

    fn flags(&self) -> Flags {
        Flags { once: true, ..Flags::default() }
    }

    fn mutates(&self) -> &'static [usize] {
        if self.states() == 0 { &[0] } else { &[0, 2] }
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        #[repr(C)]
        #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
        struct Params {
            vectors: u32,
            momentum: f32,
            nesterov: u32,
            weight_decay: f32,
        }
        let vectors = inputs[0].numel().div_ceil(4);
        let entry = if self.states() == 0 { "plain" } else { "with_momentum" };
        let bindings: Vec<_> = (0..inputs.len()).map(Slot::Input).collect();
        let params = Params {
            vectors: vectors as u32,
            momentum: self.momentum as f32,
            nesterov: u32::from(self.nesterov),
            weight_decay: self.weight_decay as f32,
        };
        vec![Dispatch::new("sgd", entry, bindings).params(&params).linear(vectors.div_ceil(64))]
    }

    twin!();
}

impl Update {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let states = self.states();
        let (gradient, lr, guard) = (call.input(1), call.input(2 + states)[0], call.input(3 + states)[0]);
        if !guard.is_finite() {
            return;
        }
        let (momentum, weight_decay) = (T::from_f64(self.momentum), T::from_f64(self.weight_decay));
        if states == 0 {
            let [parameter] = call.mutated();
            for (p, &g) in parameter.iter_mut().zip(gradient) {
                *p -= lr * (g + weight_decay * *p);
            }
            return;
        }
        let [parameter, buffer] = call.mutated();
        for ((p, b), &g) in parameter.iter_mut().zip(buffer).zip(gradient) {
            let d = g + weight_decay * *p;
            *b = momentum * *b + d;
            *p -= lr * if self.nesterov { d + momentum * *b } else { *b };
        }
    }
}

/// Test cases of an update rule: random tensors, hyper as of step 3, and one that the guard holds back.
pub(super) fn update_cases(name: &str, rule: &dyn UpdateRule) -> Vec<Case> {
    let hyper = rule.hyper(3);
    let case = |name: String, n: usize, guard: f32| {
        let states = rule.states().len();
        let desc = TensorDesc::f32([n]);
        let mut inputs = vec![(desc.clone(), Fill::Normal), (desc.clone(), Fill::Normal)];
        inputs.extend(vec![(desc, Fill::Uniform(0.1, 1.0)); states]);
        // Only the first number of `hyper` matters where all are alike, so cases take it for every one.
        inputs.push((TensorDesc::f32([HYPER_LEN]), Fill::Uniform(hyper[0], 1.0)));
        inputs.push((TensorDesc::f32([1]), Fill::Constant(guard)));
        let wanted = vec![false; inputs.len()];
        Case { name, op: rule.op(), inputs, wanted, reduction: 1, finite_differences: false }
    };
    let mut cases: Vec<_> = [1, 7, 257].into_iter().map(|n| case(format!("{name}_{n}"), n, 0.5)).collect();
    cases.push(case(format!("{name}_guarded_nan"), 7, f32::NAN));
    cases.push(case(format!("{name}_guarded_infinity"), 7, f32::NEG_INFINITY));
    cases
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    let plain = Sgd { lr: 0.1, momentum: 0.0, nesterov: false, weight_decay: 0.01 };
    let mut cases = update_cases("plain", &plain);
    cases.extend(update_cases("momentum", &Sgd { momentum: 0.9, ..plain }));
    cases.extend(update_cases("nesterov", &Sgd { momentum: 0.9, nesterov: true, ..plain }));
    cases
}
