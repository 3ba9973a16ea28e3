//! Elements repeated along axes of extent 1.

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::reduce::reduction::Axes;
use crate::ops::reduce::sum::Sum;
use crate::ops::shape::strided::MAX_RANK;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Native, Op, Real, Resources, expect_count, expect_dtype,
};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output[…, i, …] = input[…, 0, …]` along each axis of which the input has extent 1 and the output any other
///
/// | tensor | shape |
/// |---|---|
/// | input | as `shape`, or 1, for each axis; up to 6 axes |
/// | output | `shape` |
///
/// **Saved for backward:** nothing. **In place:** no. The output is no view: it takes memory for every repetition.
/// **Numerics:** exact; the gradient is a [`Sum`] over the repeated axes.
///
/// # Errors
/// Where the input is not f32, has more than 6 axes or another number of them than `shape`, or an extent is neither 1 nor that of
/// `shape`.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.Tensor.expand.html>
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expand {
    /// Shape of the output.
    pub shape: Shape,
}

impl Expand {
    /// The axes that are repeated.
    fn axes(&self, input: &Shape) -> Vec<usize> {
        (0..input.len()).filter(|&axis| input[axis] != self.shape[axis]).collect()
    }

    /// The sum whose output is the input and whose terms are the output.
    fn layout(&self, input: &Shape) -> Axes {
        Axes::new(&self.shape, &self.axes(input))
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        self.layout(&call.input_descs[0].shape).repeat_twin(call, T::ONE);
    }
}

impl Op for Expand {
    fn name(&self) -> &'static str {
        "expand"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let (from, to) = (call.extents(0), call.output_extents(0));
        let shape = if from.iter().zip(&to).any(|(from, to)| to.is_none() && from.is_some()) {
            call.extents_of_output(0)?
        } else {
            // Where the batch is there already, 1 leaves it as it is.
            call.ints(to.iter().map(|extent| extent.map_or(1, |extent| extent as i64)).collect::<Vec<_>>())
        };
        let value = call.input(0);
        Some(vec![call.apply("Expand", &[&value, &shape])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("expand", inputs, 1)?;
        expect_dtype("expand", "input", &inputs[0], DType::F32)?;
        let (from, to) = (&inputs[0].shape, &self.shape);
        let fits = from.len() == to.len() && from.iter().zip(to.iter()).all(|(&from, &to)| from == to || from == 1);
        let reason = if from.len() > MAX_RANK {
            format!("the input {} has more than {MAX_RANK} axes", inputs[0])
        } else if !fits || to.contains(&0) {
            format!("the input {} has other axes than it, and only those of extent 1 are repeated", inputs[0])
        } else {
            return Ok(vec![TensorDesc::f32(to.clone())]);
        };
        Err(OpError::Setting { op: "expand", setting: "shape", value: to.to_string(), reason })
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let axes = self.axes(&graph.desc(forward.inputs[0]).shape);
        if axes.is_empty() {
            return Ok(vec![Some(grad_output)]);
        }
        Ok(vec![Some(graph.emit(Sum { axes, keepdim: true }, &[grad_output])?)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost { flops: 0, bytes_moved: inputs[0].size_bytes() + outputs[0].size_bytes() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        self.layout(&inputs[0].shape).repeat(1.0)
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Expand {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        self.layout(&call.input_descs[0].shape).repeat_on(with.cores, call.input(0), call.output(0), 1.0);
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, from: &[usize], to: &[usize]| {
        let repeats = to.iter().product::<usize>() / from.iter().product::<usize>();
        Case::new(name, Expand { shape: to.into() }, [TensorDesc::f32(from)]).reduction(repeats)
    };
    vec![
        case("1_to_7", &[1], &[7]),
        case("1x5_to_4x5", &[1, 5], &[4, 5]),
        case("4x1_to_4x5", &[4, 1], &[4, 5]),
        case("1x1_to_3x2", &[1, 1], &[3, 2]),
        case("same_2x3", &[2, 3], &[2, 3]),
        case("one_1x1", &[1, 1], &[1, 1]),
        case("2x1x4_to_2x3x4", &[2, 1, 4], &[2, 3, 4]),
        case("1x3x1x5_to_2x3x4x5", &[1, 3, 1, 5], &[2, 3, 4, 5]),
        case("alternating_2x1x2x1x2x1_to_2x3x2x3x2x3", &[2, 1, 2, 1, 2, 1], &[2, 3, 2, 3, 2, 3]),
        case("1x257_to_300x257", &[1, 257], &[300, 257]).large(),
        case("3x1_to_3x1031", &[3, 1], &[3, 1031]).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_does_not_fit() {
        let outputs = |from: &[usize], to: &[usize]| {
            Expand { shape: to.into() }.outputs(&[TensorDesc::f32(from)]).map_err(|error| error.to_string())
        };
        assert_eq!(outputs(&[2, 1], &[2, 3]), Ok(vec![TensorDesc::f32([2, 3])]));
        assert!(outputs(&[2, 2], &[2, 3]).is_err_and(|e| e.contains("shape = [2, 3] is not possible")));
        assert!(outputs(&[3], &[2, 3]).is_err() && outputs(&[1, 3], &[0, 3]).is_err());
        assert!(outputs(&[1; 7], &[2; 7]).is_err_and(|e| e.contains("more than 6 axes")));
    }
}
