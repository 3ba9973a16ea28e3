//! Two tensors, one after the other along an axis.

use super::{Backward, Builder, Call, Case, Cost, Dispatch, Flags, Op, Real, Slot, expect_count, expect_dtype, expect_shape};
use crate::error::OpError;
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
/// **Numerics:** exact; each gradient is a slice of that of the output.
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

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    elements: u32,
    run: u32,
    first: u32,
    before: u32,
}

/// Elements that lie together in memory: those of one index of the axes before `axis`.
fn run(desc: &TensorDesc, axis: usize) -> usize {
    desc.shape[axis..].iter().product()
}

/// A launch that writes `elements` elements, in vectors of four where every run and place is a multiple of four.
fn launch(entry: &'static str, bindings: impl Into<Vec<Slot>>, elements: usize, places: [usize; 3]) -> Dispatch {
    let is_aligned = places.iter().all(|place| place.is_multiple_of(4));
    let unit = if is_aligned { 4 } else { 1 };
    let [run, first, before] = places.map(|place| (place / unit) as u32);
    let count = elements / unit;
    let dispatch = Dispatch::new("concat", entry, bindings)
        .params(&Params { elements: count as u32, run, first, before })
        .linear(count.div_ceil(64));
    if is_aligned { dispatch.constant("VEC", 1) } else { dispatch }
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
            let extent = graph.desc(input).shape[self.axis];
            let op = ConcatGradInput { axis: self.axis, start, extent };
            gradients.push(if *wanted { Some(graph.emit(op, &[grad_output])?) } else { None });
            start += extent;
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
        vec![launch("forward", bindings, outputs[0].numel(), [whole, first, 0])]
    }

    twin!();
}

/// `grad_input = grad_output from start to start + extent along axis`
#[derive(Clone, Copy, Debug)]
struct ConcatGradInput {
    axis: usize,
    start: usize,
    extent: usize,
}

impl ConcatGradInput {
    /// Elements that lie together in the gradient of the output and of the input, and of those in the first how many lie
    /// before the slice.
    fn places(&self, grad_output: &TensorDesc) -> [usize; 3] {
        let inner: usize = grad_output.shape[self.axis + 1..].iter().product();
        [run(grad_output, self.axis), self.extent * inner, self.start * inner]
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let [whole, slice, before] = self.places(&call.input_descs[0]);
        let grad_output = call.input(0);
        for (d, g) in call.output(0).chunks_exact_mut(slice).zip(grad_output.chunks_exact(whole)) {
            d.copy_from_slice(&g[before..][..slice]);
        }
    }
}

impl Op for ConcatGradInput {
    fn name(&self) -> &'static str {
        "concat.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("concat.grad_input", inputs, 1)?;
        let mut shape = inputs[0].shape.to_vec();
        shape[self.axis] = self.extent;
        Ok(vec![TensorDesc::f32(shape)])
    }

    fn cost(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // Of the gradient of the output, only the slice is read.
        Cost { flops: 0, bytes_moved: 2 * outputs[0].size_bytes() }
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.axis > 0, ..Flags::default() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Output(0)];
        vec![launch("grad_input", bindings, outputs[0].numel(), self.places(&inputs[0]))]
    }

    twin!();
}

/// Test cases.
pub fn cases() -> Vec<Case> {
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
