//! A value as if it were given: no gradient goes through it.

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::{Backward, Builder, Call, Case, Cost, Dispatch, Op, Real, expect_count, expect_dtype};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output = input`, through which no gradient goes
///
/// | tensor | shape |
/// |---|---|
/// | input, output | any, both alike |
///
/// For the states at which backpropagation through time is cut.
/// **Saved for backward:** nothing. The output is a view: no kernel runs and it takes no memory.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.Tensor.detach.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detach;

impl Op for Detach {
    fn name(&self) -> &'static str {
        "detach"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        Some(vec![call.input(0)])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("detach", inputs, 1)?;
        expect_dtype("detach", "input", &inputs[0], DType::F32)?;
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, _graph: &mut dyn Builder, _forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        Ok(vec![None])
    }

    fn cost(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        Cost::default()
    }

    fn is_view(&self) -> bool {
        true
    }

    fn stops_gradients(&self) -> bool {
        true
    }

    fn dispatches(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        Vec::new()
    }

    twin!();
}

impl Detach {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let input = call.input(0);
        call.output(0).copy_from_slice(input);
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    [vec![1], vec![7], vec![3, 5]]
        .into_iter()
        .map(|shape| {
            Case::new(format!("{}d_{}", shape.len(), shape[0]), Detach, [TensorDesc::f32(shape)]).forward_only()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::graph::Graph;
    use crate::ops::SavedActivations;

    #[test]
    fn stops_gradients() {
        let mut graph = Graph::new();
        let [input, grad] = ["input", "grad"].map(|name| graph.input(name, TensorDesc::f32([3])));
        let output = graph.apply(Detach, &[input]).expect("it fits");
        assert_eq!(graph.storage_root(output), input);
        let forward = Backward {
            inputs: &[input],
            outputs: &[output],
            grad_outputs: &[Some(grad)],
            wanted: &[true],
            saved: SavedActivations::Full,
            kept: &BTreeSet::new(),
        };
        assert_eq!(Detach.backward(&mut graph, &forward), Ok(vec![None]));
    }
}
