//! A part of a tensor along an axis.

use crate::error::OpError;
use crate::native::Cores;
use crate::ops::onnx;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Flags, KernelParams, Native, Op, Parts, Real, Resources, Slot,
    expect_count, expect_dtype, expect_shape,
};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output = input from start to start + length along axis`
///
/// | tensor | shape |
/// |---|---|
/// | input | `[…, n, …]`, n ≥ start + length |
/// | output | `[…, length, …]` |
///
/// For all parts of a tensor, see [`Split`](crate::ops::shape::split::Split).
///
/// **Saved for backward:** nothing. **In place:** no.
/// **Numerics:** exact; the gradient is that of the output, with zeros beside it. Along axis 0 it is a part of the batch,
/// and a batch cannot be split over it.
///
/// # Errors
/// Where the input is not f32, the axis does not exist, the slice is empty or reaches past the end.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.narrow.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The axis that is cut.
    pub axis: usize,
    /// The first index that is kept.
    pub start: usize,
    /// How many are kept.
    pub length: usize,
}

/// Elements that lie together in memory: those of one index of the axes before `axis`.
pub(in crate::ops) fn run(desc: &TensorDesc, axis: usize) -> usize {
    desc.shape[axis..].iter().product()
}

/// A launch that copies runs of elements: the kernel's parameters are `elements`, how many it writes, and `places` under their
/// names, all in elements, or with the constant VEC in vectors of four, where every run and place is a multiple of four.
pub(in crate::ops) fn launch<const N: usize>(
    file: &'static str,
    entry: &'static str,
    bindings: impl Into<Vec<Slot>>,
    elements: usize,
    names: [&'static str; N],
    places: [usize; N],
) -> Dispatch {
    let is_aligned = places.iter().all(|place| place.is_multiple_of(4));
    let unit = if is_aligned { 4 } else { 1 };
    let count = elements / unit;
    let mut params = KernelParams::default().with("elements", count as u32);
    params.push_all(names, places.map(|place| (place / unit) as u32));
    let dispatch = Dispatch::new(file, entry, bindings).params(params).linear(count.div_ceil(64));
    if is_aligned { dispatch.constant("VEC", 1) } else { dispatch }
}

/// What the kernels of `slice.wgsl` call the [`places`].
pub(in crate::ops) const PLACES: [&str; 3] = ["whole", "part", "before"];

/// Elements that lie together in the whole and in the part, and of those in the whole how many lie before the part.
pub(in crate::ops) fn places(whole: &TensorDesc, part: &TensorDesc, slice: &Slice) -> [usize; 3] {
    [run(whole, slice.axis), run(part, slice.axis), slice.start * run(whole, slice.axis + 1)]
}

/// What the kernel `forward` does.
pub(in crate::ops) fn copy<T: Real>(input: &[T], output: &mut [T], [whole, part, before]: [usize; 3]) {
    for (y, x) in output.chunks_exact_mut(part).zip(input.chunks_exact(whole)) {
        y.copy_from_slice(&x[before..][..part]);
    }
}

impl Slice {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let places = places(&call.input_descs[0], &call.output_descs[0], self);
        copy(call.input(0), call.output(0), places);
    }
}

impl Op for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        // What is all of the batch would be cut to a number of samples.
        call.extents(0)[self.axis]?;
        let end = (self.start + self.length) as i64;
        let [start, end, axis] = [self.start as i64, end, self.axis as i64].map(|number| call.ints([number]));
        let value = call.input(0);
        Some(vec![call.apply("Slice", &[&value, &start, &end, &axis])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("slice", inputs, 1)?;
        expect_dtype("slice", "input", &inputs[0], DType::F32)?;
        let mut shape = inputs[0].shape.to_vec();
        let refuse = |setting, value: usize, reason| {
            Err(OpError::Setting { op: "slice", setting, value: value.to_string(), reason })
        };
        let Some(&extent) = shape.get(self.axis) else {
            return refuse("axis", self.axis, format!("the input {} has {} axes", inputs[0], shape.len()));
        };
        if self.length == 0 {
            return refuse("length", 0, "a slice has at least one element".to_owned());
        }
        if self.start.checked_add(self.length).is_none_or(|end| end > extent) {
            let reason =
                format!("with start = {} it reaches past the end of axis {} of {}", self.start, self.axis, inputs[0]);
            return refuse("length", self.length, reason);
        }
        shape[self.axis] = self.length;
        Ok(vec![TensorDesc::f32(shape)])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let shape = graph.desc(forward.inputs[0]).shape.clone();
        Ok(vec![Some(graph.emit(SliceGradInput { slice: *self, shape }, &[grad_output])?)])
    }

    fn cost(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // Of the input, only the slice is read.
        Cost { flops: 0, bytes_moved: 2 * outputs[0].size_bytes() }
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.axis > 0, ..Flags::default() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let places = places(&inputs[0], &outputs[0], self);
        vec![launch("slice", "forward", [Slot::Input(0), Slot::Output(0)], outputs[0].numel(), PLACES, places)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Slice {
    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        (self.axis != 0).then(|| Parts::samples([true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let places = places(&call.input_descs[0], &call.output_descs[0], self);
        copy_on(with.cores, call.input(0), call.output(0), places);
    }
}

/// As [`copy`], on all cores.
pub(in crate::ops) fn copy_on(cores: &Cores, input: &[f32], output: &mut [f32], [whole, part, before]: [usize; 3]) {
    cores.rows(output, part, |row, column, output| {
        output.copy_from_slice(&input[row * whole + before + column..][..output.len()]);
    });
}

/// `grad_input = grad_output` where the slice is, 0 beside it; input `grad_output`.
#[derive(Clone, Debug)]
struct SliceGradInput {
    slice: Slice,
    /// Shape of the input of the slice.
    shape: Shape,
}

impl SliceGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let [whole, part, before] = places(&call.output_descs[0], &call.input_descs[0], &self.slice);
        let grad_output = call.input(0);
        for (d, g) in call.output(0).chunks_exact_mut(whole).zip(grad_output.chunks_exact(part)) {
            d.fill(T::ZERO);
            d[before..][..part].copy_from_slice(g);
        }
    }
}

impl Op for SliceGradInput {
    fn name(&self) -> &'static str {
        "slice.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("slice.grad_input", inputs, 1)?;
        let mut expected = self.shape.to_vec();
        expected[self.slice.axis] = self.slice.length;
        expect_shape("slice.grad_input", "grad_output", &inputs[0], expected)?;
        Ok(vec![TensorDesc::f32(self.shape.clone())])
    }

    fn flags(&self) -> Flags {
        self.slice.flags()
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let places = places(&outputs[0], &inputs[0], &self.slice);
        vec![launch("slice", "grad_input", [Slot::Input(0), Slot::Output(0)], outputs[0].numel(), PLACES, places)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for SliceGradInput {
    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        (self.slice.axis != 0).then(|| Parts::samples([true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let [whole, part, before] = places(&call.output_descs[0], &call.input_descs[0], &self.slice);
        let grad_output = call.input(0);
        with.cores.rows(call.output(0), whole, |row, column, output| {
            bordered(&grad_output[row * part..][..part], before, column, 0.0, output);
        });
    }
}

/// Writes a part of a row, from `column` on: some elements that lie behind so many others, which have one value, as those behind.
pub(in crate::ops) fn bordered(inside: &[f32], before: usize, column: usize, value: f32, output: &mut [f32]) {
    let end = (before + inside.len()).saturating_sub(column).min(output.len());
    let start = before.saturating_sub(column).min(end);
    output[..start].fill(value);
    if start < end {
        output[start..end].copy_from_slice(&inside[column + start - before..][..end - start]);
    }
    output[end..].fill(value);
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, axis: usize, start: usize, length: usize, shape: &[usize]| {
        Case::new(name, Slice { axis, start, length }, [TensorDesc::f32(shape)])
    };
    vec![
        case("one_axis_7_from_2_to_5", 0, 2, 3, &[7]),
        case("whole_2x3", 1, 0, 3, &[2, 3]),
        case("first_of_axis0_5x3", 0, 0, 1, &[5, 3]),
        case("last_axis_2x3x5_from_4_to_5", 2, 4, 1, &[2, 3, 5]),
        case("last_axis_vectors_3x12_from_4_to_12", 1, 4, 8, &[3, 12]),
        case("channels_2x5x3x7_from_1_to_4", 1, 1, 3, &[2, 5, 3, 7]),
        case("channels_vectors_2x3x4x6_from_2_to_3", 1, 2, 1, &[2, 3, 4, 6]),
        case("one_1x1", 1, 0, 1, &[1, 1]),
        case("seven_axes_2x1x3x2x1x2x5", 6, 1, 3, &[2, 1, 3, 2, 1, 2, 5]),
        case("channels_3x48x28x28_from_16_to_48", 1, 16, 32, &[3, 48, 28, 28]).large(),
        case("channels_5x10x23x25_from_3_to_10", 1, 3, 7, &[5, 10, 23, 25]).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_does_not_fit() {
        let outputs = |axis, start, length| {
            Slice { axis, start, length }.outputs(&[TensorDesc::f32([2, 3, 4])]).map_err(|error| error.to_string())
        };
        assert_eq!(outputs(1, 1, 2), Ok(vec![TensorDesc::f32([2, 2, 4])]));
        assert!(outputs(3, 0, 1).is_err_and(|e| e.contains("axis = 3 is not possible")));
        assert!(outputs(1, 2, 2).is_err_and(|e| e.contains("length = 2 is not possible: with start = 2")));
        assert!(outputs(1, usize::MAX, 2).is_err());
        assert!(outputs(1, 1, 0).is_err_and(|e| e.contains("at least one element")));
    }
}
