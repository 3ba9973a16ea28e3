//! A copy.

use crate::error::OpError;
use crate::ops::elementwise::function;
use crate::ops::onnx;
use crate::ops::{
    Backward, Builder, Call, Case, Dispatch, Native, Op, Real, Resources, Slot, expect_count, expect_dtype,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output = input`, in memory of its own.
///
/// | tensor | shape |
/// |---|---|
/// | input, output | any, both alike |
///
/// For a value that needs two places: one that an op would bind twice, or a gradient that is a view.
/// **Saved for backward:** nothing. **In place:** no.
///
/// # Errors
/// Where the input is not f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy;

impl Op for Copy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        Some(vec![call.input(0)])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("copy", inputs, 1)?;
        expect_dtype("copy", "input", &inputs[0], DType::F32)?;
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, _graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        Ok(vec![forward.grad_outputs[0]])
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![function::launch("copy", "forward", [Slot::Input(0), Slot::Output(0)], inputs[0].numel(), 0.0)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Copy {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let input = call.input(0);
        with.cores.pieces(call.output(0), |start, output| output.copy_from_slice(&input[start..][..output.len()]));
    }
}

impl Copy {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let input = call.input(0);
        call.output(0).copy_from_slice(input);
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    [1, 7, 257].into_iter().map(|n| Case::new(format!("{n}"), Copy, [TensorDesc::f32([n])])).collect()
}
