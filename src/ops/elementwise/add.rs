//! Addition.

use crate::error::OpError;
use crate::ops::elementwise::formula::{Formula, by_formula};
use crate::ops::elementwise::pairs;
use crate::ops::onnx;
use crate::ops::{Backward, Builder, Case, Elements, Elementwise, Fill, Op, Real};
use crate::tensor::{TensorDesc, ValueId};

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

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let [a, b] = [0, 1].map(|i| call.input(i));
        Some(vec![call.apply("Add", &[&a, &b])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        pairs::outputs("add", inputs)
    }

    fn backward(&self, _graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        Ok(vec![forward.grad_outputs[0]; 2])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        pairs::IN_PLACE
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(Elementwise::new("add", "forward", []))
    }

    fn elements(&self) -> Option<&dyn Elements> {
        Some(self)
    }

    twin!();
}

by_formula!(Add, 2);

impl Formula<2> for Add {
    #[inline(always)]
    fn value<T: Real>(self, [a, b]: [T; 2]) -> T {
        a + b
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    pairs::cases(Add, "", Fill::Normal)
}
