//! Gradient clipping by global norm, in three ops: the squared norm of one gradient, the coefficient for all, and its
//! application. Between the first two, the sums of all gradients are added. Where the loss is scaled, the first op says at once
//! whether a gradient is finite, and the last takes the scale away.
//!
//! Source: <https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html>

use crate::error::OpError;
use crate::native::{Fast, Fold, Terms};
use crate::ops::elementwise::mul::Mul;
use crate::ops::native::Repeated;
use crate::ops::reduce::reduction::{self, Axes};
use crate::ops::sums::sum;
use crate::ops::{
    Call, Case, Cost, Dispatch, Fill, Native, Op, Real, Resources, Slot, Source, expect_count, expect_dtype,
    expect_shape, native,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc};

params! {
    struct Params {
        vectors: u32,
        max_norm: f32,
    }
}

/// `output = Σ (factor · input)²`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | factor, which may be left out: then it is 1 | `[1]` |
/// | output | `[1]` |
///
/// It has no gradient. **Numerics:** f32, in two levels and always in the same order. What is scaled is multiplied before it is
/// squared, so that the output is finite where `factor · input` is, up to a norm of 1.8e19.
///
/// # Errors
/// Where an input is not f32, or the factor is not one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SquaredNorm;

impl Op for SquaredNorm {
    fn name(&self) -> &'static str {
        "clip.squared_norm"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("clip.squared_norm", inputs, inputs.len().clamp(1, 2))?;
        expect_dtype("clip.squared_norm", "input", &inputs[0], DType::F32)?;
        if let Some(factor) = inputs.get(1) {
            expect_dtype("clip.squared_norm", "factor", factor, DType::F32)?;
            expect_shape("clip.squared_norm", "factor", factor, [1])?;
        }
        Ok(vec![TensorDesc::f32([1])])
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        Cost { flops: 2 * inputs[0].numel() as u64, bytes_moved: inputs[0].size_bytes() }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        reduction::workspaces(1, inputs[0].numel())
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let slots: Vec<_> = (0..inputs.len()).map(Slot::Input).collect();
        let mut dispatches = reduction::total("clip", "squared_norm", &slots, inputs[0].numel(), 1.0);
        if inputs.len() > 1 {
            // Only the first launch reads it: others add up what that makes.
            dispatches[0].consts.push(("SCALED", 1));
        }
        dispatches
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for SquaredNorm {
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _threads: usize) -> Vec<u64> {
        all_of(&inputs[0]).fold_workspaces()
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let terms = Terms { data: call.input(0), pairs: &[], results: &[] };
        let squares = Squares { factor: Fast(factor(call)) };
        all_of(&call.input_descs[0]).fold(squares, terms, 1.0, call.output(0), with);
    }
}

/// The sum over all elements.
fn all_of(input: &TensorDesc) -> Axes {
    Axes::new(&[input.numel()].into(), &[0])
}

/// What the input is multiplied by.
fn factor<T: Real>(call: &Call<'_, T>) -> T {
    if call.input_descs.len() > 1 { call.input(1)[0] } else { T::ONE }
}

/// The sum of squares of multiples.
#[derive(Clone, Copy)]
struct Squares {
    factor: Fast,
}

impl Fold for Squares {
    const START: f32 = 0.0;

    #[inline(always)]
    fn term(self, x: Fast, _: Fast, _: Fast) -> Fast {
        let x = self.factor * x;
        x * x
    }

    #[inline(always)]
    fn join(self, a: Fast, b: Fast) -> Fast {
        a + b
    }
}

impl SquaredNorm {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let factor = factor(call);
        let sum = sum(call.input(0).iter().map(|&x| (factor * x) * (factor * x)));
        call.output(0)[0] = sum;
    }
}

/// `output = min(1, max_norm / (√input + 1e-6))`, of the sum of all squared norms
///
/// | tensor | shape |
/// |---|---|
/// | input, output | `[1]` |
///
/// It has no gradient.
///
/// # Errors
/// Where the input is not one f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClipCoefficient {
    /// The norm that gradients are scaled down to.
    pub max_norm: f32,
}

impl Op for ClipCoefficient {
    fn name(&self) -> &'static str {
        "clip.coefficient"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("clip.coefficient", inputs, 1)?;
        expect_dtype("clip.coefficient", "input", &inputs[0], DType::F32)?;
        expect_shape("clip.coefficient", "input", &inputs[0], [1])?;
        Ok(vec![TensorDesc::f32([1])])
    }

    fn dispatches(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![
            Dispatch::new("clip", "coefficient", [Slot::Input(0), Slot::Output(0)])
                .params(&Params { vectors: 1, max_norm: self.max_norm }),
        ]
    }

    twin!();
}

impl ClipCoefficient {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let norm = call.input(0)[0].sqrt();
        let coefficient = T::from_f64(f64::from(self.max_norm)) / (norm + T::from_f64(1e-6));
        call.output(0)[0] = coefficient.min(T::ONE);
    }
}

/// `output = coefficient · input`, which also takes the loss scale away
///
/// | tensor | shape |
/// |---|---|
/// | input, output | any, both alike |
/// | coefficient | `[1]` |
///
/// It has no gradient. **In place:** yes.
///
/// # Errors
/// Where an input is not f32 or the coefficient is not one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClipApply;

impl Op for ClipApply {
    fn name(&self) -> &'static str {
        "clip.apply"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("clip.apply", inputs, 2)?;
        expect_dtype("clip.apply", "input", &inputs[0], DType::F32)?;
        expect_dtype("clip.apply", "coefficient", &inputs[1], DType::F32)?;
        expect_shape("clip.apply", "coefficient", &inputs[1], [1])?;
        Ok(vec![inputs[0].clone()])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Output(0)];
        let vectors = inputs[0].numel().div_ceil(4);
        // The limit is in the coefficient by now.
        let params = Params { vectors: vectors as u32, max_norm: 0.0 };
        vec![Dispatch::new("clip", "apply", bindings).params(&params).linear(vectors.div_ceil(64))]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for ClipApply {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let coefficient = Repeated { numbers: call.input(1), inner: call.input_descs[0].numel() };
        native::elementwise(&Mul, vec![Source::of(&call.inputs[0]), Source::Made(&coefficient)], call, with);
    }
}

impl ClipApply {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, coefficient) = (call.input(0), call.input(1)[0]);
        for (y, &x) in call.output(0).iter_mut().zip(input) {
            *y = coefficient * x;
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for n in [1, 7, 257, 8195] {
        let desc = TensorDesc::f32([n]);
        cases.push(Case::new(format!("squared_norm_{n}"), SquaredNorm, [desc.clone()]).forward_only().reduction(n));
        let pair = [desc, TensorDesc::f32([1])];
        cases.push(Case::new(format!("apply_{n}"), ClipApply, pair.clone()).forward_only());
        let scaled = Case::new(format!("squared_norm_scaled_{n}"), SquaredNorm, pair).forward_only().reduction(n);
        cases.push(scaled.fill(1, Fill::Constant(0.375)));
    }
    for sum in [0.0, 0.25, 9.0] {
        let case = Case::new(format!("coefficient_{sum}"), ClipCoefficient { max_norm: 1.0 }, [TensorDesc::f32([1])]);
        cases.push(case.fill(0, Fill::Constant(sum)).forward_only());
    }
    cases
}
