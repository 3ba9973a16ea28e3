//! A tensor read backwards along an axis.

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::{
    Backward, Builder, Call, Case, Dispatch, Fill, Flags, Native, Op, Real, Resources, Slot, expect_count,
    expect_dtype, expect_shape,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output[…, i, …] = input[…, n - 1 - i, …]` along an axis of extent n
///
/// | tensor | shape |
/// |---|---|
/// | input, output | any, both alike |
/// | lengths, where `has_lengths` | `[B]`, u32: one for each index of axis 0 |
///
/// With lengths, sample b is turned round within its first `lengths[b]` steps (n at most) and stays as it is beyond: what a
/// recurrent layer of the other direction reads, and what it makes, turned back.
///
/// **Saved for backward:** the lengths; the gradient is turned round in the same way. **In place:** no. **Numerics:** exact.
///
/// # Errors
/// Where the input is not f32, the axis does not exist or has lengths and is axis 0, or the lengths do not fit.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.flip.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flip {
    /// The axis.
    pub axis: usize,
    /// Whether samples have lengths along it.
    pub has_lengths: bool,
}

params! {
    struct Params {
        elements: u32,
        inner: u32,
        extent: u32,
        sample: u32,
    }
}

impl Flip {
    /// Elements that lie together at one index of the axis.
    fn inner(&self, desc: &TensorDesc) -> usize {
        desc.shape[self.axis + 1..].iter().product()
    }
}

impl Op for Flip {
    fn name(&self) -> &'static str {
        "flip"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let value = call.input(0);
        if self.has_lengths {
            let lengths = call.input(1);
            let axes = [("time_axis", (self.axis as i64).into()), ("batch_axis", 0.into())];
            return Some(vec![call.node("ReverseSequence", &[&value, &lengths], axes)]);
        }
        let [start, end, axis, step] = [-1, i64::MIN, self.axis as i64, -1].map(|number| call.ints([number]));
        Some(vec![call.apply("Slice", &[&value, &start, &end, &axis, &step])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("flip", inputs, 1 + usize::from(self.has_lengths))?;
        expect_dtype("flip", "input", &inputs[0], DType::F32)?;
        let axes = inputs[0].shape.len();
        if self.axis >= axes || (self.axis == 0 && self.has_lengths) {
            let first = if self.has_lengths { "samples lie along axis 0, and " } else { "" };
            let reason = format!("{first}`input` is {}, with {axes} axes", inputs[0]);
            return Err(OpError::Setting { op: "flip", setting: "axis", value: self.axis.to_string(), reason });
        }
        if self.has_lengths {
            expect_dtype("flip", "lengths", &inputs[1], DType::U32)?;
            expect_shape("flip", "lengths", &inputs[1], [inputs[0].shape[0]])?;
        }
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let mut gradients = vec![None; forward.inputs.len()];
        if let Some(grad_output) = forward.grad_outputs[0] {
            let mut inputs = vec![grad_output];
            inputs.extend(&forward.inputs[1..]);
            gradients[0] = Some(graph.emit(*self, &inputs)?);
        }
        Ok(gradients)
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.axis > 0, ..Flags::default() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let (inner, shape) = (self.inner(&inputs[0]), &inputs[0].shape);
        let unit = if inner.is_multiple_of(4) { 4 } else { 1 };
        let elements = inputs[0].numel() / unit;
        let sample = elements / shape[0].max(1);
        let params = [elements, inner / unit, shape[self.axis], sample].map(|x| x as u32);
        let [elements, inner, extent, sample] = params;
        let mut bindings = vec![Slot::Input(0), Slot::Output(0)];
        bindings.extend(self.has_lengths.then_some(Slot::Input(1)));
        let dispatch = Dispatch::new("flip", "forward", bindings)
            .params(&Params { elements, inner, extent, sample })
            .linear((elements as usize).div_ceil(64));
        let flags = [("VEC", unit == 4), ("LENGTHS", self.has_lengths)];
        vec![dispatch.flags(flags)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Flip {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let input = call.input(0);
        let lengths = self.has_lengths.then(|| call.ints(1));
        let (inner, shape) = (self.inner(&call.input_descs[0]), call.shape(0));
        let extent = shape[self.axis];
        let per_sample: usize = shape[..self.axis].iter().skip(1).product();
        let line = extent * inner;
        with.cores.rows(call.output(0), line, |outer, column, output| {
            let length = lengths.map_or(extent, |lengths| (lengths[outer / per_sample] as usize).min(extent));
            let input = &input[outer * line..][..line];
            let (mut at, mut rest) = (column, output);
            while !rest.is_empty() {
                let (i, within) = (at / inner, at % inner);
                let from = if i < length { length - 1 - i } else { i };
                let (part, after) = rest.split_at_mut((inner - within).min(rest.len()));
                part.copy_from_slice(&input[from * inner + within..][..part.len()]);
                at += part.len();
                rest = after;
            }
        });
    }
}

impl Flip {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let input = call.input(0);
        let lengths = self.has_lengths.then(|| call.ints(1));
        let (inner, shape) = (self.inner(&call.input_descs[0]), call.shape(0));
        let extent = shape[self.axis];
        let per_sample: usize = shape[..self.axis].iter().skip(1).product();
        for (row, output) in call.output(0).chunks_mut(inner).enumerate() {
            let (outer, i) = (row / extent, row % extent);
            let length = lengths.map_or(extent, |lengths| (lengths[outer / per_sample] as usize).min(extent));
            let from = if i < length { length - 1 - i } else { i };
            output.copy_from_slice(&input[(outer * extent + from) * inner..][..inner]);
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let all = |name: &str, axis: usize, shape: &[usize]| {
        Case::new(name, Flip { axis, has_lengths: false }, [TensorDesc::f32(shape)])
    };
    let lengths = |name: &str, axis: usize, shape: &[usize]| {
        let inputs = [TensorDesc::f32(shape), TensorDesc::u32([shape[0]])];
        // From none to more than there are.
        Case::new(name, Flip { axis, has_lengths: true }, inputs).fill(1, Fill::Labels(shape[axis] as u32 + 2))
    };
    vec![
        all("axis0_7", 0, &[7]),
        all("axis1_3x5x2", 1, &[3, 5, 2]),
        all("axis2_2x3x5", 2, &[2, 3, 5]),
        all("one", 0, &[1]),
        lengths("lengths_5x7x3", 1, &[5, 7, 3]),
        lengths("lengths_4x5x8", 1, &[4, 5, 8]),
        lengths("lengths_axis2_7x2x5", 2, &[7, 2, 5]),
        lengths("lengths_one", 1, &[1, 1]),
        all("axis1_17x65x4", 1, &[17, 65, 4]).large(),
        lengths("lengths_17x65x5", 1, &[17, 65, 5]).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_does_not_fit() {
        let outputs = |axis, inputs: &[TensorDesc]| {
            let has_lengths = inputs.len() == 2;
            Flip { axis, has_lengths }.outputs(inputs).map_err(|error| error.to_string())
        };
        let input = TensorDesc::f32([2, 3]);
        assert_eq!(outputs(1, &[input.clone(), TensorDesc::u32([2])]), Ok(vec![input.clone()]));
        assert!(outputs(2, std::slice::from_ref(&input)).is_err_and(|e| e.contains("axis = 2 is not possible")));
        assert!(outputs(0, &[input.clone(), TensorDesc::u32([2])]).is_err_and(|e| e.contains("axis 0")));
        assert!(outputs(1, &[input.clone(), TensorDesc::u32([3])]).is_err());
        assert!(outputs(1, &[input, TensorDesc::f32([2])]).is_err());
    }
}
