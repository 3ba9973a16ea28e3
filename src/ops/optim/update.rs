//! What the ops of optimizers share: the shape rule of update nodes, and the frame of those that are functions of single
//! elements.

use std::fmt::Debug;

use crate::error::OpError;
use crate::native::{Cores, Fast, Rule, change};
use crate::ops::{
    Call, Case, Cost, Dispatch, Fill, Flags, HYPER_LEN, KernelParams, Native, Op, Real, Resources, Slot, UpdateRule,
    expect_count, expect_dtype, expect_shape,
};
use crate::shader::Target;
use crate::tensor::TensorDesc;

/// Names of states with their shapes.
pub(in crate::ops) type States = Vec<(&'static str, TensorDesc)>;

/// States of the parameter's shape.
pub(in crate::ops) fn like(parameter: &TensorDesc, names: &[&'static str]) -> States {
    names.iter().map(|&name| (name, parameter.clone())).collect()
}

/// The shape rule of update nodes: `parameter, gradient, states…, hyper, guard`.
pub(in crate::ops) fn outputs(
    op: &'static str,
    inputs: &[TensorDesc],
    states: impl Fn(&TensorDesc) -> States,
) -> Result<Vec<TensorDesc>, OpError> {
    let Some(parameter) = inputs.first() else { return Err(OpError::InputCount { op, expected: 4, found: 0 }) };
    let states = states(parameter);
    expect_count(op, inputs, 4 + states.len())?;
    let hyper = [("hyper", TensorDesc::f32([HYPER_LEN])), ("guard", TensorDesc::f32([1]))];
    let expected = [("parameter", parameter.clone()), ("gradient", parameter.clone())].into_iter();
    for (found, (name, desc)) in inputs.iter().zip(expected.chain(states).chain(hyper)) {
        expect_dtype(op, name, found, desc.dtype)?;
        expect_shape(op, name, found, desc.shape)?;
    }
    Ok(Vec::new())
}

/// What an update changes: the parameter and its states.
pub(in crate::ops) fn mutates(states: usize) -> &'static [usize] {
    &[0, 2, 3, 4, 5][..1 + states]
}

/// The flags of every update.
pub(in crate::ops) const FLAGS: Flags = Flags { once: true, rng: false, batch_separable: true };

/// Bytes that are read and written: the gradient once, what changes twice.
pub(in crate::ops) fn bytes_moved(inputs: &[TensorDesc], states: usize) -> u64 {
    let changed: u64 = mutates(states).iter().map(|&i| inputs[i].size_bytes()).sum();
    2 * changed + inputs[1].size_bytes()
}

/// What every kernel of an update binds first; states follow.
pub(in crate::ops) fn bindings(states: usize) -> Vec<Slot> {
    let last = 2 + states;
    [0, 1, last, last + 1].into_iter().chain(2..last).map(Slot::Input).collect()
}

/// An update that changes each element by itself; its kernel is `forward` of `shaders/<NAME>.wgsl` (see
/// `shaders/shared/update.wgsl`).
pub(in crate::ops) trait ElementwiseUpdate: Copy + Debug + Send + Sync + 'static {
    /// Name of the op and of its files.
    const NAME: &'static str;
    /// Floating-point operations on one element, for the cost model.
    const FLOPS: u64;

    /// Names of the states, each of the parameter's shape.
    fn states(&self) -> &'static [&'static str];

    /// Constants of the kernel's prelude.
    fn consts(&self) -> Vec<(&'static str, u32)> {
        Vec::new()
    }

    /// The kernel's parameters behind `vectors`, by name.
    fn settings(&self) -> Vec<(&'static str, f64)>;

    /// The parameter after a step; the states are changed in place.
    fn step<T: Real>(&self, hyper: &[T], parameter: T, gradient: T, states: &mut [T]) -> T;
}

/// The op of an [`ElementwiseUpdate`]. What changes between steps is left to `hyper`: all steps of a training are one op.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Update<U>(pub(in crate::ops) U);

impl<U: ElementwiseUpdate> Op for Update<U> {
    fn name(&self) -> &'static str {
        U::NAME
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        outputs(U::NAME, inputs, |parameter| like(parameter, self.0.states()))
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        let flops = U::FLOPS * inputs[0].numel() as u64;
        Cost { flops, bytes_moved: bytes_moved(inputs, self.0.states().len()) }
    }

    fn flags(&self) -> Flags {
        FLAGS
    }

    fn mutates(&self) -> &'static [usize] {
        mutates(self.0.states().len())
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let vectors = inputs[0].numel().div_ceil(4);
        let mut params = KernelParams::default().with("vectors", vectors as u32);
        self.0.settings().into_iter().for_each(|(name, value)| params.push(name, value as f32));
        let mut dispatch = Dispatch::new(U::NAME, "forward", bindings(self.0.states().len()));
        dispatch.params = params;
        dispatch.consts = self.0.consts();
        vec![dispatch.linear(vectors.div_ceil(64))]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

/// Elements of a tensor that changes which are worth a task.
const LEAST_CHANGES: usize = 2048;

/// Changes tensors by a rule, on all cores.
pub(in crate::ops) fn changes<const CHANGED: usize, const READ: usize>(
    cores: &Cores,
    rule: impl Rule<CHANGED, READ> + Sync,
    changed: [&mut [f32]; CHANGED],
    read: [&[f32]; READ],
) {
    cores.pieces_together(changed, LEAST_CHANGES, |start, changed| {
        let length = changed[0].len();
        change(cores.level(), rule, changed, read.map(|data| &data[start..start + length]));
    });
}

impl<U: ElementwiseUpdate> Native for Update<U> {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        match self.0.states().len() {
            0 => self.run_with::<1>(call, with),
            1 => self.run_with::<2>(call, with),
            2 => self.run_with::<3>(call, with),
            _ => self.run_with::<4>(call, with),
        }
    }
}

/// An update with the numbers of this step.
#[derive(Clone, Copy)]
struct OfStep<U> {
    rule: U,
    hyper: [Fast; HYPER_LEN],
}

impl<U: ElementwiseUpdate, const CHANGED: usize> Rule<CHANGED, 1> for OfStep<U> {
    #[inline(always)]
    fn change(self, changed: &mut [Fast; CHANGED], [gradient]: [Fast; 1]) {
        let [parameter, states @ ..] = &mut changed[..] else { return };
        *parameter = self.rule.step(&self.hyper, *parameter, gradient, states);
    }
}

impl<U: ElementwiseUpdate> Update<U> {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        match self.0.states().len() {
            0 => self.twin_with::<T, 1>(call),
            1 => self.twin_with::<T, 2>(call),
            2 => self.twin_with::<T, 3>(call),
            _ => self.twin_with::<T, 4>(call),
        }
    }

    /// With as many tensors that change.
    fn run_with<const CHANGED: usize>(&self, call: &mut Call<'_, f32>, with: &Resources<'_>) {
        let (gradient, hyper, guard) = (call.input(1), call.input(1 + CHANGED), call.input(2 + CHANGED)[0]);
        if !guard.is_finite() {
            return;
        }
        let step = OfStep { rule: self.0, hyper: std::array::from_fn(|i| Fast(hyper[i])) };
        changes(with.cores, step, call.mutated::<CHANGED>(), [gradient]);
    }

    /// With as many tensors that change.
    fn twin_with<T: Real, const CHANGED: usize>(&self, call: &mut Call<'_, T>) {
        let (gradient, hyper, guard) = (call.input(1), call.input(1 + CHANGED), call.input(2 + CHANGED)[0]);
        if !guard.is_finite() {
            return;
        }
        let mut changed: [&mut [T]; CHANGED] = call.mutated();
        for (i, &g) in gradient.iter().enumerate() {
            let mut values: [T; CHANGED] = std::array::from_fn(|k| changed[k][i]);
            let (parameter, states) = values.split_first_mut().expect("bug: an update changes its parameter");
            *parameter = self.0.step(hyper, *parameter, g, states);
            for (data, value) in changed.iter_mut().zip(values) {
                data[i] = value;
            }
        }
    }
}

/// Test cases of an update rule for parameters of these shapes: random tensors, hyper as of step 3, and some that the guard holds
/// back.
pub(in crate::ops) fn cases(name: &str, rule: &dyn UpdateRule, shapes: &[&[usize]]) -> Vec<Case> {
    let hyper = rule.hyper(3, 0.01);
    let case = |name: String, shape: &[usize], guard: f32| {
        let desc = TensorDesc::f32(shape);
        let mut inputs = vec![(desc.clone(), Fill::Normal), (desc.clone(), Fill::Normal)];
        inputs.extend(rule.states(&desc).into_iter().map(|(_, state)| (state, Fill::Uniform(0.1, 1.0))));
        // Only the first number of `hyper` matters where all are alike, so cases take it for every one.
        inputs.push((TensorDesc::f32([HYPER_LEN]), Fill::Uniform(hyper[0], 1.0)));
        inputs.push((TensorDesc::f32([1]), Fill::Constant(guard)));
        let wanted = vec![false; inputs.len()];
        Case { name, op: rule.op(&desc), inputs, wanted, reduction: desc.numel(), finite_differences: false }
    };
    let named = |shape: &[usize]| format!("{name}_{}", crate::ops::elementwise::activation::shape_name(shape));
    let mut cases: Vec<_> = shapes.iter().map(|shape| case(named(shape), shape, 0.5)).collect();
    let last = shapes.last().expect("bug: a rule without test shapes");
    cases.push(case(format!("{name}_guarded_nan"), last, f32::NAN));
    cases.push(case(format!("{name}_guarded_infinity"), last, f32::NEG_INFINITY));
    cases
}

/// Shapes for updates of single elements.
pub(in crate::ops) const SHAPES: &[&[usize]] = &[&[1], &[257], &[7]];

/// In how many partial sums the squares of so many vectors are added, for updates that need norms.
pub(in crate::ops) fn splits(vectors: usize) -> usize {
    (vectors / 8).clamp(1, 1 << 14).max(vectors.div_ceil(1 << 14))
}
