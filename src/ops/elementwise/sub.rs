//! Subtraction.

use crate::error::OpError;
use crate::ops::elementwise::pairs;
use crate::ops::elementwise::scale::Scale;
use crate::ops::{Backward, Builder, Call, Case, Elementwise, Fill, Op, Real};
use crate::tensor::{TensorDesc, ValueId};

/// `output = a − b`
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
/// Source: <https://pytorch.org/docs/stable/generated/torch.sub.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sub;

impl Op for Sub {
    fn name(&self) -> &'static str {
        "sub"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        pairs::outputs("sub", inputs)
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let negative = forward.wanted[1].then(|| graph.emit(Scale { factor: -1.0 }, &[grad_output])).transpose()?;
        Ok(vec![Some(grad_output), negative])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        pairs::IN_PLACE
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(Elementwise::new("sub", "forward", []))
    }

    twin!();
}

impl Sub {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        pairs::twin(call, |a, b| a - b);
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    pairs::cases(Sub, "", Fill::Normal)
}
