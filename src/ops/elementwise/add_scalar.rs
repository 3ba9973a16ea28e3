//! Addition of a constant.

use crate::error::OpError;
use crate::ops::elementwise::formula::{Formula, by_formula};
use crate::ops::onnx;
use crate::ops::{Backward, Builder, Case, Elements, Elementwise, Op, Real, expect_count, expect_dtype, expect_finite};
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output = input + value`
///
/// | tensor | shape |
/// |---|---|
/// | input, output | any, both alike |
///
/// **Saved for backward:** nothing. **In place:** yes.
///
/// # Errors
/// Where the input is not f32 or the value is not finite.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.add.html>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddScalar {
    /// The constant.
    pub value: f32,
}

impl Op for AddScalar {
    fn name(&self) -> &'static str {
        "add_scalar"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let (value, number) = (call.input(0), call.number(self.value));
        Some(vec![call.apply("Add", &[&value, &number])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("add_scalar", inputs, 1)?;
        expect_dtype("add_scalar", "input", &inputs[0], DType::F32)?;
        expect_finite("add_scalar", "value", self.value)?;
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, _graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        Ok(vec![forward.grad_outputs[0]])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(Elementwise::new("add_scalar", "forward", [self.value]))
    }

    fn elements(&self) -> Option<&dyn Elements> {
        Some(self)
    }

    twin!();
}

by_formula!(AddScalar, 1);

impl Formula<1> for AddScalar {
    #[inline(always)]
    fn value<T: Real>(self, [x]: [T; 1]) -> T {
        x + T::from_f64(f64::from(self.value))
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    [1, 7, 257]
        .into_iter()
        .map(|n| Case::new(format!("{n}"), AddScalar { value: -0.75 }, [TensorDesc::f32([n])]))
        .collect()
}
