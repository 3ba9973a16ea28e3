//! A tensor with a border of one value.

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::shape::slice::bordered;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Flags, KernelParams, Native, Op, Real, Resources, Slot,
    expect_count, expect_dtype,
};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output[i₀, i₁, …] = input[i₀ − before₀, i₁ − before₁, …]` where the input has such an element, else `value`
///
/// | tensor | shape |
/// |---|---|
/// | input | up to 6 axes |
/// | output | each extent larger by what is added before and after |
///
/// To take away, see [`Slice`](crate::ops::shape::slice::Slice).
///
/// **Saved for backward:** nothing. **In place:** no.
/// **Numerics:** exact; the gradient is that part of the output's that lies over the input. Where the batch axis gets a
/// border, a batch cannot be split.
///
/// # Errors
/// Where the input is not f32, there is not one pair of numbers for each of up to 6 axes, or the output would have more
/// elements than can be counted in 32 bits.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.functional.pad.html> (`mode="constant"`)
#[derive(Clone, Debug, PartialEq)]
pub struct Pad {
    /// For each axis, how many elements are added before and after; `(0, 0)` for the batch axis.
    pub pads: Vec<(usize, usize)>,
    /// What the added elements are.
    pub value: f32,
}

/// Most axes.
const MAX_RANK: usize = 6;

/// One axis, or several without a border that lie together in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    input: usize,
    before: usize,
    output: usize,
}

/// Axes from the innermost on; those without a border are one with the axis outside of them.
fn merged(input: &[usize], pads: &[(usize, usize)]) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    for (&extent, &(before, after)) in input.iter().zip(pads).rev() {
        let axis = Axis { input: extent, before, output: before + extent + after };
        match axes.last_mut() {
            // An index of the outer axis is `inner.input` elements in both tensors, so the border of the outer axis is one
            // of so many times the elements.
            Some(inner) if inner.input == inner.output => {
                let run = inner.input;
                *inner = Axis { input: axis.input * run, before: axis.before * run, output: axis.output * run };
            }
            _ => axes.push(axis),
        }
    }
    axes
}

/// For each element of the output in order, its place in the input, if it has one.
fn sources(axes: &[Axis], elements: usize) -> impl Iterator<Item = Option<usize>> + '_ {
    (0..elements).map(|i| source(axes, i))
}

/// The place in the input of element `i` of the output, if it has one.
fn source(axes: &[Axis], i: usize) -> Option<usize> {
    let (mut rest, mut at, mut stride) = (i, 0, 1);
    for axis in axes {
        let place = (rest % axis.output).checked_sub(axis.before).filter(|&place| place < axis.input)?;
        at += place * stride;
        rest /= axis.output;
        stride *= axis.input;
    }
    Some(at)
}

/// A launch that writes `elements` elements; in vectors of four where every run is a multiple of four.
fn launch(entry: &'static str, axes: &[Axis], elements: usize, value: f32) -> Dispatch {
    let inner = axes[0];
    let is_aligned = [inner.input, inner.before, inner.output].iter().all(|n| n.is_multiple_of(4));
    let unit = if is_aligned { 4 } else { 1 };
    let mut params = KernelParams::default().with("elements", (elements / unit) as u32).with("value", value);
    for (d, axis) in axes.iter().enumerate() {
        let unit = if d == 0 { unit } else { 1 };
        for (name, n) in [("input", axis.input), ("before", axis.before), ("output", axis.output)] {
            params.push(format!("{name}_{d}"), (n / unit) as u32);
        }
    }
    let dispatch = Dispatch::new("pad", entry, [Slot::Input(0), Slot::Output(0)])
        .constant("RANK", axes.len() as u32)
        .params(params)
        .linear((elements / unit).div_ceil(64));
    if is_aligned { dispatch.constant("VEC", 1) } else { dispatch }
}

impl Pad {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, value) = (call.input(0), T::from_f64(f64::from(self.value)));
        let axes = merged(call.shape(0), &self.pads);
        let output = call.output(0);
        let sources = sources(&axes, output.len());
        for (y, source) in output.iter_mut().zip(sources) {
            *y = source.map_or(value, |source| input[source]);
        }
    }
}

impl Op for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let before = self.pads.iter().map(|pads| pads.0 as i64);
        let pads = call.ints(before.chain(self.pads.iter().map(|pads| pads.1 as i64)).collect::<Vec<_>>());
        let (input, value) = (call.input(0), call.number(self.value));
        Some(vec![call.apply("Pad", &[&input, &pads, &value])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("pad", inputs, 1)?;
        expect_dtype("pad", "input", &inputs[0], DType::F32)?;
        let refuse = |reason: String| {
            Err(OpError::Setting { op: "pad", setting: "pads", value: format!("{:?}", self.pads), reason })
        };
        let shape = &inputs[0].shape;
        if shape.is_empty() || shape.len() > MAX_RANK || self.pads.len() != shape.len() {
            return refuse(format!("there must be one pair for each axis of {}, 1 to {MAX_RANK}", inputs[0]));
        }
        let extent =
            |(&extent, &(before, after)): (&usize, &(usize, usize))| extent.checked_add(before)?.checked_add(after);
        let padded: Option<Vec<usize>> = shape.iter().zip(&self.pads).map(extent).collect();
        let numel = |padded: &Vec<usize>| padded.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent));
        match padded {
            Some(padded) if numel(&padded).is_some_and(|n| n <= u32::MAX as usize) => Ok(vec![TensorDesc::f32(padded)]),
            _ => refuse(format!("of {} that would make more than {} elements", inputs[0], u32::MAX)),
        }
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let shape = graph.desc(forward.inputs[0]).shape.clone();
        Ok(vec![Some(graph.emit(PadGradInput { pads: self.pads.clone(), shape }, &[grad_output])?)])
    }

    fn flags(&self) -> Flags {
        flags(&self.pads)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost { flops: 0, bytes_moved: inputs[0].size_bytes() + outputs[0].size_bytes() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![launch("forward", &merged(&inputs[0].shape, &self.pads), outputs[0].numel(), self.value)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Pad {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let input = call.input(0);
        let axes = merged(call.shape(0), &self.pads);
        let (inner, outer) = axes.split_first().expect("bug: a tensor without axes");
        with.cores.rows(call.output(0), inner.output, |row, column, output| {
            let Some(from) = source(outer, row) else { return output.fill(self.value) };
            bordered(&input[from * inner.input..][..inner.input], inner.before, column, self.value, output);
        });
    }
}

fn flags(pads: &[(usize, usize)]) -> Flags {
    Flags { batch_separable: pads.first() == Some(&(0, 0)), ..Flags::default() }
}

/// `grad_input[i₀, i₁, …] = grad_output[i₀ + before₀, i₁ + before₁, …]`
#[derive(Clone, Debug)]
struct PadGradInput {
    pads: Vec<(usize, usize)>,
    /// Shape of the input of the padding.
    shape: Shape,
}

impl PadGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let grad_output = call.input(0);
        let axes = merged(call.output_shape(0), &self.pads);
        let grad_input = call.output(0);
        for (&g, source) in grad_output.iter().zip(sources(&axes, grad_output.len())) {
            if let Some(source) = source {
                grad_input[source] = g;
            }
        }
    }
}

impl Op for PadGradInput {
    fn name(&self) -> &'static str {
        "pad.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("pad.grad_input", inputs, 1)?;
        Ok(vec![TensorDesc::f32(self.shape.clone())])
    }

    fn flags(&self) -> Flags {
        flags(&self.pads)
    }

    fn cost(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // Of the gradient of the output, only what lies over the input is read.
        Cost { flops: 0, bytes_moved: 2 * outputs[0].size_bytes() }
    }

    fn dispatches(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![launch("grad_input", &merged(&outputs[0].shape, &self.pads), outputs[0].numel(), 0.0)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for PadGradInput {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let grad_output = call.input(0);
        let axes = merged(call.output_shape(0), &self.pads);
        let (inner, outer) = axes.split_first().expect("bug: a tensor without axes");
        with.cores.rows(call.output(0), inner.input, |row, column, output| {
            let (mut rest, mut from, mut stride) = (row, 0, 1);
            for axis in outer {
                from += (rest % axis.input + axis.before) * stride;
                rest /= axis.input;
                stride *= axis.output;
            }
            output.copy_from_slice(&grad_output[from * inner.output + inner.before + column..][..output.len()]);
        });
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, pads: &[(usize, usize)], value: f32, shape: &[usize]| {
        Case::new(name, Pad { pads: pads.to_vec(), value }, [TensorDesc::f32(shape)])
    };
    let image = [(0, 0), (0, 0), (1, 1), (1, 1)];
    vec![
        case("image_2x3x4x5", &image, 0.0, &[2, 3, 4, 5]),
        case("uneven_2x3x4x5", &[(0, 0), (0, 0), (0, 3), (2, 1)], 0.5, &[2, 3, 4, 5]),
        case("channels_2x3x2x2", &[(0, 0), (1, 2), (0, 0), (0, 0)], -1.5, &[2, 3, 2, 2]),
        case("time_3x5x2", &[(0, 0), (4, 0), (0, 0)], 0.0, &[3, 5, 2]),
        case("row_7", &[(2, 3)], 1.0, &[7]),
        case("batch_2x3", &[(1, 0), (0, 0)], 0.25, &[2, 3]),
        case("nothing_2x3", &[(0, 0), (0, 0)], 0.0, &[2, 3]),
        case("one_1x1", &[(0, 0), (1, 1)], 0.0, &[1, 1]),
        case("five_axes_2x2x3x2x3", &[(0, 0), (1, 0), (0, 2), (0, 0), (1, 1)], 2.0, &[2, 2, 3, 2, 3]),
        case("six_axes", &[(0, 0), (1, 0), (0, 1), (2, 0), (0, 2), (1, 1)], 3.0, &[2, 1, 2, 3, 1, 2]),
        case("vectors_2x3x5x8", &[(0, 0), (0, 0), (1, 2), (4, 8)], 0.5, &[2, 3, 5, 8]).large(),
        case("vector_rows_3x5x13x16", &[(0, 0), (0, 0), (3, 1), (0, 0)], 0.5, &[3, 5, 13, 16]).large(),
        case("image_5x7x23x29", &image, 0.0, &[5, 7, 23, 29]).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_axes_without_borders() {
        let axis = |input, before, output| Axis { input, before, output };
        assert_eq!(merged(&[2, 3, 4, 5], &[(0, 0), (0, 0), (1, 2), (0, 0)]), [axis(20, 5, 35), axis(6, 0, 6)]);
        assert_eq!(merged(&[2, 3], &[(0, 0), (0, 0)]), [axis(6, 0, 6)]);
        assert_eq!(merged(&[2, 3], &[(1, 0), (0, 1)]), [axis(3, 0, 4), axis(2, 1, 3)]);
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let outputs = |pads: &[(usize, usize)], shape: &[usize]| {
            Pad { pads: pads.to_vec(), value: 0.0 }.outputs(&[TensorDesc::f32(shape)])
        };
        assert_eq!(outputs(&[(0, 0), (1, 2)], &[2, 3]), Ok(vec![TensorDesc::f32([2, 6])]));
        for (pads, shape) in [
            (&[(0, 0)][..], &[2, 3][..]),
            (&[(0, 0); 7], &[1; 7]),
            (&[(0, usize::MAX)], &[3]),
            (&[(1 << 20, 0), (1 << 20, 0)], &[2, 3]),
        ] {
            assert!(matches!(outputs(pads, shape), Err(OpError::Setting { setting: "pads", .. })), "{pads:?}");
        }
    }
}
