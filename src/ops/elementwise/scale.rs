//! Multiplication by a constant.

use crate::error::OpError;
use crate::ops::elementwise::formula::{Formula, by_formula};
use crate::ops::onnx;
use crate::ops::{Backward, Builder, Case, Elements, Elementwise, Op, Real, expect_count, expect_dtype, expect_finite};
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output = factor · input`
///
/// | tensor | shape |
/// |---|---|
/// | input, output | any, both alike |
///
/// **Saved for backward:** nothing. **In place:** yes.
///
/// # Errors
/// Where the input is not f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The constant.
    pub factor: f32,
}

impl Op for Scale {
    fn name(&self) -> &'static str {
        "scale"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let (value, factor) = (call.input(0), call.number(self.factor));
        Some(vec![call.apply("Mul", &[&value, &factor])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("scale", inputs, 1)?;
        expect_dtype("scale", "input", &inputs[0], DType::F32)?;
        expect_finite("scale", "factor", self.factor)?;
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        Ok(vec![Some(graph.emit(*self, &[grad_output])?)])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(Elementwise::new("scale", "forward", [self.factor]))
    }

    fn elements(&self) -> Option<&dyn Elements> {
        Some(self)
    }

    twin!();
}

by_formula!(Scale, 1);

impl Formula<1> for Scale {
    #[inline(always)]
    fn value<T: Real>(self, [x]: [T; 1]) -> T {
        T::from_f64(f64::from(self.factor)) * x
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    [1, 7, 257]
        .into_iter()
        .map(|n| Case::new(format!("{n}"), Scale { factor: -0.75 }, [TensorDesc::f32([n])]))
        .collect()
}
