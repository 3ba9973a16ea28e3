//! A tensor in parts along an axis.

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::shape::concat::Concat;
use crate::ops::shape::fill::Fill;
use crate::ops::shape::slice;
use crate::ops::shape::slice::Slice;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Flags, Native, Op, Parts, Real, Resources, Slot, expect_count,
    expect_dtype,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output[i] = input`, the next `lengths[i]` along an axis
///
/// | tensor | shape |
/// |---|---|
/// | input | `[…, n, …]`, n the sum of the lengths |
/// | output i | `[…, lengths[i], …]` |
///
/// It runs the kernel of [`Slice`]; the gradient is one [`Concat`] of those of the parts, where slices would each have a
/// padded gradient of the whole, to be added.
///
/// **Saved for backward:** nothing. **In place:** no.
/// **Numerics:** exact. Along axis 0 a batch cannot be split into micro-batches.
///
/// # Errors
/// Where the input is not f32, the axis does not exist, there is no length or one is 0, or they do not sum to the axis.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.split.html>
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The axis that is cut.
    pub axis: usize,
    /// Extents of the parts.
    pub lengths: Vec<usize>,
}

impl Split {
    /// The parts, one after the other.
    fn parts(&self) -> impl Iterator<Item = Slice> {
        let mut next = 0;
        self.lengths.iter().map(move |&length| {
            let start = next;
            next += length;
            Slice { axis: self.axis, start, length }
        })
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, whole) = (call.input(0), &call.input_descs[0]);
        for (i, part) in self.parts().enumerate() {
            let places = slice::places(whole, &call.output_descs[i], &part);
            slice::copy(input, call.output(i), places);
        }
    }
}

impl Op for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let lengths = call.ints(self.lengths.iter().map(|&length| length as i64).collect::<Vec<_>>());
        let value = call.input(0);
        let axis = ("axis", (self.axis as i64).into());
        Some(call.node_of("Split", &[&value, &lengths], [axis], &vec![true; self.lengths.len()]))
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("split", inputs, 1)?;
        expect_dtype("split", "input", &inputs[0], DType::F32)?;
        let refuse = |setting, value, reason| Err(OpError::Setting { op: "split", setting, value, reason });
        let Some(&extent) = inputs[0].shape.get(self.axis) else {
            let reason = format!("the input {} has {} axes", inputs[0], inputs[0].shape.len());
            return refuse("axis", self.axis.to_string(), reason);
        };
        let sum = self.lengths.iter().try_fold(0usize, |sum, &length| sum.checked_add(length));
        if sum != Some(extent) || self.lengths.contains(&0) {
            let reason = format!("they must be above 0 and sum to axis {} of {}", self.axis, inputs[0]);
            return refuse("lengths", format!("{:?}", self.lengths), reason);
        }
        self.parts().map(|part| Ok(part.outputs(inputs)?.remove(0))).collect()
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let mut whole = None;
        for (&grad_output, &output) in forward.grad_outputs.iter().zip(forward.outputs) {
            let part = match grad_output {
                Some(part) => part,
                None => {
                    let shape = graph.desc(output).shape.clone();
                    graph.emit(Fill { value: 0.0, shape }, &[])?
                }
            };
            whole = Some(match whole {
                None => part,
                Some(whole) => graph.emit(Concat { axis: self.axis }, &[whole, part])?,
            });
        }
        Ok(vec![whole])
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        Cost { flops: 0, bytes_moved: 2 * inputs[0].size_bytes() }
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.axis > 0, ..Flags::default() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let launch = |(i, part): (usize, Slice)| {
            let places = slice::places(&inputs[0], &outputs[i], &part);
            slice::launch(
                "slice",
                "forward",
                [Slot::Input(0), Slot::Output(i)],
                outputs[i].numel(),
                slice::PLACES,
                places,
            )
        };
        self.parts().enumerate().map(launch).collect()
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Split {
    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        (self.axis != 0).then(|| Parts::samples([true], self.lengths.len()))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let (input, whole) = (call.input(0), &call.input_descs[0]);
        for (i, part) in self.parts().enumerate() {
            let places = slice::places(whole, &call.output_descs[i], &part);
            slice::copy_on(with.cores, input, call.output(i), places);
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, axis: usize, lengths: &[usize], shape: &[usize]| {
        Case::new(name, Split { axis, lengths: lengths.to_vec() }, [TensorDesc::f32(shape)])
    };
    vec![
        case("one_axis_7_in_2_5", 0, &[2, 5], &[7]),
        case("axis1_2x6x4_in_thirds", 1, &[2, 2, 2], &[2, 6, 4]),
        case("last_axis_3x7_in_1_4_2", 1, &[1, 4, 2], &[3, 7]),
        case("whole_2x3", 1, &[3], &[2, 3]),
        case("axis1_5x3x23x25", 1, &[1, 1, 1], &[5, 3, 23, 25]).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_does_not_fit() {
        let outputs = |axis, lengths: &[usize]| {
            let split = Split { axis, lengths: lengths.to_vec() };
            split.outputs(&[TensorDesc::f32([2, 6])]).map_err(|error| error.to_string())
        };
        assert_eq!(outputs(1, &[2, 4]), Ok(vec![TensorDesc::f32([2, 2]), TensorDesc::f32([2, 4])]));
        assert!(outputs(2, &[2, 4]).is_err_and(|e| e.contains("axis = 2 is not possible")));
        for lengths in [&[2, 3][..], &[6, 0], &[], &[usize::MAX, 7]] {
            assert!(outputs(1, lengths).is_err_and(|e| e.contains("sum to axis 1")), "{lengths:?}");
        }
    }
}
