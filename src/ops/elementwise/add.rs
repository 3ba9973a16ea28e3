//! Addition.

use crate::error::OpError;
use crate::ops::elementwise::activation::shape_name;
use crate::ops::{Backward, Builder, Call, Case, Elementwise, Op, Real, expect_count, expect_dtype, expect_shape};
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output = a + b`
///
/// | tensor | shape |
/// |---|---|
/// | a, b, output | any, all alike |
///
/// **Saved for backward:** nothing. **In place:** over either input.
///
/// # Errors
/// Where the shapes differ or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.add.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Add;

impl Op for Add {
    fn name(&self) -> &'static str {
        "add"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("add", inputs, 2)?;
        expect_dtype("add", "a", &inputs[0], DType::F32)?;
        expect_dtype("add", "b", &inputs[1], DType::F32)?;
        expect_shape("add", "b", &inputs[1], inputs[0].shape.clone())?;
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, _graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        Ok(vec![forward.grad_outputs[0]; 2])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (1, 0)]
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(Elementwise::new("add", "forward", []))
    }

    twin!();
}

impl Add {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (a, b) = (call.input(0), call.input(1));
        for ((y, &a), &b) in call.output(0).iter_mut().zip(a).zip(b) {
            *y = a + b;
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    [vec![1], vec![7], vec![2, 3, 5], vec![257]]
        .into_iter()
        .map(|shape| {
            let name = shape_name(&shape);
            Case::new(name, Add, [TensorDesc::f32(shape.clone()), TensorDesc::f32(shape)])
        })
        .collect()
}
