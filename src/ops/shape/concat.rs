//! Two tensors, one after the other along an axis.

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::shape::slice::{self, Slice, run};
use crate::ops::{
    Backward, Builder, Call, Case, Dispatch, Flags, Native, Op, Parts, Real, Resources, Slot, expect_count,
    expect_dtype, expect_shape,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output = a, then b along axis`
///
/// | tensor | shape |
/// |---|---|
/// | a | `[…, n, …]` |
/// | b | `[…, m, …]`: as `a` but for the axis |
/// | output | `[…, n + m, …]` |
///
/// **Saved for backward:** nothing. **In place:** no.
/// **Numerics:** exact; each gradient is a [`Slice`] of that of the output.
///
/// # Errors
/// Where an input is not f32, the axis does not exist, or the shapes differ beside it.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.cat.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concat {
    /// The axis along which they follow each other.
    pub axis: usize,
}

impl Concat {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (a, b) = (call.input(0), call.input(1));
        let [first, second] = [0, 1].map(|i| run(&call.input_descs[i], self.axis));
        let rows = a.chunks_exact(first).zip(b.chunks_exact(second));
        for (y, (a, b)) in call.output(0).chunks_exact_mut(first + second).zip(rows) {
            y[..first].copy_from_slice(a);
            y[first..].copy_from_slice(b);
        }
    }
}

impl Op for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let [a, b] = [0, 1].map(|i| call.input(i));
        Some(vec![call.node("Concat", &[&a, &b], [("axis", (self.axis as i64).into())])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("concat", inputs, 2)?;
        expect_dtype("concat", "a", &inputs[0], DType::F32)?;
        expect_dtype("concat", "b", &inputs[1], DType::F32)?;
        let mut shape = inputs[0].shape.to_vec();
        if self.axis >= shape.len() {
            let reason = format!("`a` is {}, with {} axes", inputs[0], shape.len());
            return Err(OpError::Setting { op: "concat", setting: "axis", value: self.axis.to_string(), reason });
        }
        let added = inputs[1].shape.get(self.axis).copied().unwrap_or(0);
        let extent = shape[self.axis];
        shape[self.axis] = added;
        expect_shape("concat", "b", &inputs[1], shape.clone())?;
        shape[self.axis] = extent + added;
        Ok(vec![TensorDesc::f32(shape)])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let mut gradients = Vec::new();
        let mut start = 0;
        for (&input, wanted) in forward.inputs.iter().zip(forward.wanted) {
            let length = graph.desc(input).shape[self.axis];
            let op = Slice { axis: self.axis, start, length };
            gradients.push(if *wanted { Some(graph.emit(op, &[grad_output])?) } else { None });
            start += length;
        }
        Ok(gradients)
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.axis > 0, ..Flags::default() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Output(0)];
        let whole = run(&outputs[0], self.axis);
        let first = run(&inputs[0], self.axis);
        vec![slice::launch("concat", "forward", bindings, outputs[0].numel(), ["run", "first"], [whole, first])]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Concat {
    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        (self.axis != 0).then(|| Parts::samples([true, true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let (a, b) = (call.input(0), call.input(1));
        let [first, second] = [0, 1].map(|i| run(&call.input_descs[i], self.axis));
        with.cores.rows(call.output(0), first + second, |row, column, output| {
            let of_a = first.saturating_sub(column).min(output.len());
            let (from_a, from_b) = output.split_at_mut(of_a);
            if of_a > 0 {
                from_a.copy_from_slice(&a[row * first + column..][..of_a]);
            }
            let column = (column + of_a).saturating_sub(first);
            from_b.copy_from_slice(&b[row * second + column..][..from_b.len()]);
        });
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, axis: usize, a: &[usize], b: &[usize]| {
        Case::new(name, Concat { axis }, [TensorDesc::f32(a), TensorDesc::f32(b)])
    };
    vec![
        case("one_axis_3_4", 0, &[3], &[4]),
        case("axis0_2x3_1x3", 0, &[2, 3], &[1, 3]),
        case("axis1_2x3_2x5", 1, &[2, 3], &[2, 5]),
        case("channels_2x3x5x7_2x2x5x7", 1, &[2, 3, 5, 7], &[2, 2, 5, 7]),
        case("channels_vectors_2x3x4x6_2x1x4x6", 1, &[2, 3, 4, 6], &[2, 1, 4, 6]),
        case("last_axis_2x3x1_2x3x4", 2, &[2, 3, 1], &[2, 3, 4]),
        case("ones_1x1", 1, &[1, 1], &[1, 1]),
        case("channels_3x16x28x28_3x32x28x28", 1, &[3, 16, 28, 28], &[3, 32, 28, 28]).large(),
        case("channels_5x3x23x25_5x7x23x25", 1, &[5, 3, 23, 25], &[5, 7, 23, 25]).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_does_not_fit() {
        let outputs = |axis, a: &[usize], b: &[usize]| {
            Concat { axis }.outputs(&[TensorDesc::f32(a), TensorDesc::f32(b)]).map_err(|error| error.to_string())
        };
        assert_eq!(outputs(1, &[2, 3, 4], &[2, 5, 4]), Ok(vec![TensorDesc::f32([2, 8, 4])]));
        assert!(outputs(3, &[2, 3, 4], &[2, 5, 4]).is_err_and(|e| e.contains("axis = 3 is not possible")));
        assert!(outputs(1, &[2, 3, 4], &[2, 5, 3]).is_err_and(|e| e.contains("of shape [2, 5, 4]")));
        assert!(outputs(1, &[2, 3, 4], &[2]).is_err());
    }
}
