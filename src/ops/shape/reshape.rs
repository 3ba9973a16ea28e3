//! The same elements under another shape.

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::{Backward, Builder, Call, Case, Cost, Dispatch, Op, Real, expect_count, expect_dtype};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output = input` under another shape with as many elements
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | `shape` |
///
/// **Saved for backward:** nothing. The output is a view: no kernel runs and it takes no memory.
///
/// # Errors
/// Where the input is not f32 or has another number of elements.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.reshape.html>
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshape {
    /// Shape of the output.
    pub shape: Shape,
}

impl Op for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let (value, shape) = (call.input(0), call.output_shape(0)?);
        Some(vec![call.reshape(&value, shape)])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("reshape", inputs, 1)?;
        expect_dtype("reshape", "input", &inputs[0], DType::F32)?;
        if self.shape.is_empty() || self.shape.numel() != inputs[0].numel() {
            return Err(OpError::Setting {
                op: "reshape",
                setting: "shape",
                value: self.shape.to_string(),
                reason: format!("it must hold the {} elements of {}", inputs[0].numel(), inputs[0]),
            });
        }
        Ok(vec![TensorDesc::f32(self.shape.clone())])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let shape = graph.desc(forward.inputs[0]).shape.clone();
        Ok(vec![Some(graph.emit(Reshape { shape }, &[grad_output])?)])
    }

    fn cost(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        Cost::default()
    }

    fn is_view(&self) -> bool {
        true
    }

    fn dispatches(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        Vec::new()
    }

    twin!();
}

impl Reshape {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let input = call.input(0);
        call.output(0).copy_from_slice(input);
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, from: &[usize], to: &[usize]| {
        Case::new(name, Reshape { shape: to.into() }, [TensorDesc::f32(from)])
    };
    vec![
        case("2x6_to_3x4", &[2, 6], &[3, 4]),
        case("2x3x4_to_2x12", &[2, 3, 4], &[2, 12]),
        case("12_to_2x1x6", &[12], &[2, 1, 6]),
        case("1_to_1x1", &[1], &[1, 1]),
    ]
}
