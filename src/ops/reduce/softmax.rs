//! Softmax along an axis.

use crate::error::OpError;
use crate::ops::elementwise::activation::shape_name;
use crate::ops::onnx;
use crate::ops::reduce::softmax_rows::{self, Rows};
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Flags, Native, Op, Parts, Probabilities, Real, Resources, Slot,
    expect_count,
};
use crate::shader::Target;
use crate::tensor::{Shape, TensorDesc, ValueId};

/// `output = exp(input) / Σ exp(input)` along `axis`
///
/// | tensor | shape |
/// |---|---|
/// | input | any; with `causal` `[…, queries, keys]` with an axis before them, and queries ≤ keys |
/// | output | as input |
///
/// With `causal`, query i sees the keys up to `i + keys − queries`: the others take no part in the sum and their output is 0.
///
/// **Saved for backward:** the output. **In place:** yes.
/// **Numerics:** the largest input of a row is subtracted first, so nothing overflows. Sums in f32; their order depends on the shape only.
///
/// # Errors
/// Where the input is not f32, has no such axis, or is longer than 1.39 million there; with `causal` also where the axis is not
/// the last of at least three, or there are more queries than keys.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.Softmax.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// The axis that sums to 1.
    pub axis: usize,
    /// Whether elements after the diagonal that ends in the last corner are left out, as in causal attention.
    pub causal: bool,
}

impl Softmax {
    fn rows(&self, shape: &Shape) -> Rows {
        if self.causal { Rows::causal(shape) } else { Rows::new(shape, self.axis) }
    }
}

impl Op for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let mut value = call.input(0);
        if self.causal {
            // Row i sees the columns up to i + columns − rows: less infinity for all others.
            let extents = call.extents(0);
            let (rows, columns) = (extents[self.axis - 1]?, extents[self.axis]?);
            let is_seen = |row: usize, column: usize| column + rows <= row + columns;
            let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
            let mask = places.map(|(row, column)| if is_seen(row, column) { 0.0 } else { f32::NEG_INFINITY }).collect();
            let mut shape = vec![rows, columns];
            shape.resize(2 + extents.len() - self.axis - 1, 1);
            let mask = call.floats(shape, mask);
            value = call.apply("Add", &[&value, &mask]);
        }
        Some(vec![call.node("Softmax", &[&value], [("axis", (self.axis as i64).into())])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let outputs = softmax_rows::outputs("softmax", inputs, self.axis)?;
        let shape = &inputs[0].shape;
        let fits = || self.axis >= 2 && self.axis == shape.len() - 1 && shape[self.axis - 1] <= shape[self.axis];
        if self.causal && !fits() {
            let reason = format!(
                "it is along the last axis of [batch, …, queries ≤ keys], not axis {} of {}",
                self.axis, inputs[0]
            );
            return Err(OpError::Setting { op: "softmax", setting: "causal", value: "true".to_owned(), reason });
        }
        Ok(outputs)
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        Ok(vec![Some(graph.emit(SoftmaxGradInput { axis: self.axis }, &[forward.outputs[0], grad_output])?)])
    }

    fn probabilities(&self) -> Option<Probabilities> {
        Some(Probabilities::Softmax)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        softmax_rows::cost(20, inputs, outputs)
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.axis != 0, ..Flags::default() }
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![self.rows(&inputs[0].shape).dispatch("softmax", "forward", [Slot::Input(0), Slot::Output(0)])]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Softmax {
    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        (self.axis != 0).then(|| Parts::samples([true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        self.rows(&call.input_descs[0].shape).forward_native(call, with, false);
    }
}

impl Softmax {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        self.rows(&call.input_descs[0].shape).forward(call, |difference, sum| difference.exp() / sum);
    }
}

/// `grad_input = output · (grad_output − Σ grad_output · output)`; inputs `output, grad_output`.
#[derive(Clone, Copy, Debug)]
struct SoftmaxGradInput {
    axis: usize,
}

impl Op for SoftmaxGradInput {
    fn name(&self) -> &'static str {
        "softmax.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("softmax.grad_input", inputs, 2)?;
        Ok(vec![inputs[1].clone()])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        softmax_rows::cost(4, inputs, outputs)
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.axis != 0, ..Flags::default() }
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(1, 0), (0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Output(0)];
        vec![Rows::new(&inputs[0].shape, self.axis).dispatch("softmax", "grad_input", bindings)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for SoftmaxGradInput {
    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        (self.axis != 0).then(|| Parts::samples([true, true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        Rows::new(&call.input_descs[0].shape, self.axis).grad_input_native(call, with, false);
    }
}

impl SoftmaxGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let rows = Rows::new(&call.input_descs[0].shape, self.axis);
        rows.grad_input(call, |g, y| g * y, |g, y, sum| y * (g - sum));
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = softmax_rows::cases(|axis| Softmax { axis, causal: false });
    let shapes: [&[usize]; 6] = [&[1, 1, 1], &[2, 5, 5], &[2, 3, 7], &[3, 2, 4, 9], &[2, 131, 131], &[1, 3, 5, 515]];
    cases.extend(shapes.map(|shape| {
        let op = Softmax { axis: shape.len() - 1, causal: true };
        let case = Case::new(format!("causal_{}", shape_name(shape)), op, [TensorDesc::f32(shape)]);
        let case = case.reduction(shape[shape.len() - 1]);
        if shape.iter().product::<usize>() > 1000 { case.large() } else { case }
    }));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_causal_softmax_that_makes_no_sense() {
        let outputs = |axis, shape: &[usize]| {
            Softmax { axis, causal: true }.outputs(&[TensorDesc::f32(shape)]).map_err(|error| error.to_string())
        };
        assert!(outputs(2, &[2, 3, 4]).is_ok());
        assert!(outputs(1, &[2, 3, 4]).is_err_and(|e| e.contains("causal = true is not possible")));
        assert!(outputs(1, &[3, 4]).is_err());
        assert!(outputs(2, &[2, 5, 4]).is_err());
    }
}
