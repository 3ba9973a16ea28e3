//! Sums over the micro-batches of a step.

use crate::error::OpError;
use crate::native::{Fast, Rule};
use crate::ops::elementwise::function;
use crate::ops::optim::update;
use crate::ops::{
    Call, Case, Dispatch, Flags, Native, Op, Real, Resources, Slot, expect_count, expect_dtype, expect_shape,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc};

/// `accumulator += input`, in place, in f32.
///
/// | tensor | shape |
/// |---|---|
/// | accumulator (changed), input | any, both alike |
///
/// It has no outputs and no gradient; it must run once.
///
/// # Errors
/// Where the shapes differ or an input is not f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accumulate;

impl Op for Accumulate {
    fn name(&self) -> &'static str {
        "accumulate"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("accumulate", inputs, 2)?;
        expect_dtype("accumulate", "accumulator", &inputs[0], DType::F32)?;
        expect_shape("accumulate", "input", &inputs[1], inputs[0].shape.clone())?;
        Ok(Vec::new())
    }

    fn flags(&self) -> Flags {
        Flags { once: true, ..Flags::default() }
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Input(1)];
        vec![function::launch("accumulate", "forward", bindings, inputs[0].numel(), 0.0)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Accumulate {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let input = call.input(1);
        update::changes(with.cores, *self, call.mutated::<1>(), [input]);
    }
}

impl Rule<1, 1> for Accumulate {
    #[inline(always)]
    fn change(self, [sum]: &mut [Fast; 1], [x]: [Fast; 1]) {
        *sum += x;
    }
}

impl Accumulate {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let input = call.input(1);
        let [accumulator] = call.mutated();
        for (sum, &x) in accumulator.iter_mut().zip(input) {
            *sum += x;
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    [1, 7, 257]
        .into_iter()
        .map(|n| Case::new(format!("{n}"), Accumulate, [TensorDesc::f32([n]), TensorDesc::f32([n])]).forward_only())
        .collect()
}
