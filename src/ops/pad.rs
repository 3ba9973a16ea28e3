//! A constant around a tensor.

use super::strided::MAX_RANK;
use super::{
    Backward, Builder, Call, Case, Cost, Dispatch, Flags, Op, Real, Slot, expect_count, expect_dtype, expect_shape,
};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output[i + before, j + before', …] = input[i, j, …]`, and `value` everywhere else
///
/// | tensor | shape |
/// |---|---|
/// | input | `[n, m, …]`, up to 6 axes |
/// | output | `[before + n + after, before' + m + after', …]` |
///
/// **Saved for backward:** nothing. **In place:** no.
/// **Numerics:** exact; the gradient is the part of the output's where the input is. Along axis 0 it adds to the batch, and a
/// batch cannot be split over it.
///
/// # Errors
/// Where the input is not f32 or has more than 6 axes, `pads` has another number of axes, or the output more elements than
/// kernels can count.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.functional.pad.html>
#[derive(Clone, Debug, PartialEq)]
pub struct Pad {
    /// How many elements are added before and after, for each axis.
    pub pads: Vec<(usize, usize)>,
    /// What is added.
    pub value: f32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    elements: u32,
    rank: u32,
    value: f32,
    axes: [[u32; 3]; MAX_RANK],
}

/// An axis of the larger tensor and of the smaller one within it, after `before` elements.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    larger: usize,
    smaller: usize,
    before: usize,
}

/// The axes, innermost first, where those that nothing is added to are one with the next.
fn axes(larger: &Shape, smaller: &Shape, pads: &[(usize, usize)]) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    for ((&larger, &smaller), &(before, _)) in larger.iter().zip(smaller.iter()).zip(pads).rev() {
        match axes.last_mut() {
            Some(inner) if inner.larger == inner.smaller => {
                let step = inner.larger;
                *inner = Axis { larger: larger * step, smaller: smaller * step, before: before * step };
            }
            _ => axes.push(Axis { larger, smaller, before }),
        }
    }
    axes
}

/// Where in the smaller tensor element `i` of the larger one is, if it is there.
fn place(axes: &[Axis], i: usize) -> Option<usize> {
    let (mut rest, mut at, mut stride) = (i, 0, 1);
    for axis in axes {
        let source = (rest % axis.larger).checked_sub(axis.before).filter(|&source| source < axis.smaller)?;
        at += source * stride;
        stride *= axis.smaller;
        rest /= axis.larger;
    }
    Some(at)
}

/// A launch that writes the larger tensor, or the smaller one.
fn launch(axes: &[Axis], writes_larger: bool, elements: usize, value: f32) -> Dispatch {
    let is_aligned = [axes[0].larger, axes[0].smaller, axes[0].before].iter().all(|n| n.is_multiple_of(4));
    let axis = |i: usize| {
        let unit = if is_aligned && i == 0 { 4 } else { 1 };
        let [larger, smaller, before] =
            axes.get(i).map_or([1, 1, 0], |a| [a.larger, a.smaller, a.before]).map(|n| (n / unit) as u32);
        if writes_larger { [larger, smaller, before.wrapping_neg()] } else { [smaller, larger, before] }
    };
    let count = if is_aligned { elements / 4 } else { elements };
    let (elements, rank) = (count as u32, axes.len() as u32);
    let dispatch = Dispatch::new("pad", "forward", [Slot::Input(0), Slot::Output(0)])
        .params(&Params { elements, rank, value, axes: std::array::from_fn(axis) })
        .linear(count.div_ceil(64));
    if is_aligned { dispatch.constant("VEC", 1) } else { dispatch }
}

impl Pad {
    fn shape(&self, input: &Shape) -> Option<Shape> {
        let extent = |(&n, &(before, after)): (&usize, &(usize, usize))| n.checked_add(before)?.checked_add(after);
        let shape = input.iter().zip(&self.pads).map(extent).collect::<Option<Vec<_>>>()?;
        let numel = shape.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent))?;
        (numel <= u32::MAX as usize).then(|| shape.into())
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let axes = axes(&call.output_descs[0].shape, &call.input_descs[0].shape, &self.pads);
        let input = call.input(0);
        for (i, y) in call.output(0).iter_mut().enumerate() {
            *y = place(&axes, i).map_or(T::from_f64(f64::from(self.value)), |at| input[at]);
        }
    }
}

impl Op for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("pad", inputs, 1)?;
        expect_dtype("pad", "input", &inputs[0], DType::F32)?;
        let rank = inputs[0].shape.len();
        let reason = if !(1..=MAX_RANK).contains(&rank) {
            format!("the input {} does not have 1 to {MAX_RANK} axes", inputs[0])
        } else if self.pads.len() != rank {
            format!("the input {} has {rank} axes", inputs[0])
        } else if let Some(shape) = self.shape(&inputs[0].shape) {
            return Ok(vec![TensorDesc::f32(shape)]);
        } else {
            format!("it makes {} too large", inputs[0])
        };
        Err(OpError::Setting { op: "pad", setting: "pads", value: format!("{:?}", self.pads), reason })
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let shape = graph.desc(forward.inputs[0]).shape.clone();
        Ok(vec![Some(graph.emit(PadGradInput { pad: self.clone(), shape }, &[grad_output])?)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost { flops: 0, bytes_moved: inputs[0].size_bytes() + outputs[0].size_bytes() }
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.pads.first() == Some(&(0, 0)), ..Flags::default() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let axes = axes(&outputs[0].shape, &inputs[0].shape, &self.pads);
        vec![launch(&axes, true, outputs[0].numel(), self.value)]
    }

    twin!();
}

/// `grad_input = grad_output` where the input is; input `grad_output`.
#[derive(Clone, Debug)]
struct PadGradInput {
    pad: Pad,
    /// Shape of the input.
    shape: Shape,
}

impl PadGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let axes = axes(&call.input_descs[0].shape, &self.shape, &self.pad.pads);
        let grad_output = call.input(0);
        let grad_input = call.output(0);
        for (i, &g) in grad_output.iter().enumerate() {
            if let Some(at) = place(&axes, i) {
                grad_input[at] = g;
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
        let padded = self.pad.outputs(&[TensorDesc::f32(self.shape.clone())])?;
        expect_shape("pad.grad_input", "grad_output", &inputs[0], padded[0].shape.clone())?;
        Ok(vec![TensorDesc::f32(self.shape.clone())])
    }

    fn cost(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // Of grad_output, what is kept is read.
        Cost { flops: 0, bytes_moved: 2 * outputs[0].size_bytes() }
    }

    fn flags(&self) -> Flags {
        self.pad.flags()
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let axes = axes(&inputs[0].shape, &self.shape, &self.pad.pads);
        vec![launch(&axes, false, outputs[0].numel(), 0.0)]
    }

    twin!();
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, value: f32, pads: &[(usize, usize)], shape: &[usize]| {
        Case::new(name, Pad { pads: pads.to_vec(), value }, [TensorDesc::f32(shape)])
    };
    let image = [(0, 0), (0, 0), (1, 2), (3, 0)];
    vec![
        case("one_axis_7", 0.0, &[(2, 3)], &[7]),
        case("one_1", 1.5, &[(0, 1)], &[1]),
        case("nothing_2x3", 0.0, &[(0, 0), (0, 0)], &[2, 3]),
        case("image_2x3x4x5", 0.0, &image, &[2, 3, 4, 5]),
        case("image_value_2x3x4x5", -0.75, &image, &[2, 3, 4, 5]),
        case("channels_2x3x2x3", 0.0, &[(0, 0), (1, 1), (0, 0), (0, 0)], &[2, 3, 2, 3]),
        case("channels_vectors_2x3x2x2", 2.0, &[(0, 0), (1, 2), (0, 0), (0, 0)], &[2, 3, 2, 2]),
        case("last_axis_vectors_3x8", 2.0, &[(1, 0), (4, 8)], &[3, 8]),
        case("batch_3x2", 0.0, &[(1, 0), (0, 0)], &[3, 2]),
        case("all_of_six_axes", 0.5, &[(1, 0), (0, 1), (1, 1), (0, 2), (2, 0), (1, 1)], &[1, 2, 1, 2, 1, 3]),
        case("image_3x7x31x29", 0.0, &[(0, 0), (0, 0), (1, 1), (1, 1)], &[3, 7, 31, 29]).large(),
        case("image_vectors_2x3x28x28", 0.0, &[(0, 0), (0, 0), (2, 2), (4, 4)], &[2, 3, 28, 28]).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_axes_that_nothing_is_added_to() {
        let merged = axes(&[2, 3, 6, 5].into(), &[2, 3, 4, 5].into(), &[(0, 0), (0, 0), (2, 0), (0, 0)]);
        let rows = Axis { larger: 30, smaller: 20, before: 10 };
        assert_eq!(merged, [rows, Axis { larger: 6, smaller: 6, before: 0 }]);
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let outputs = |pads: &[(usize, usize)], shape: &[usize]| {
            let pad = Pad { pads: pads.to_vec(), value: 0.0 };
            pad.outputs(&[TensorDesc::f32(shape)]).map_err(|error| error.to_string())
        };
        assert_eq!(outputs(&[(0, 0), (1, 2)], &[2, 3]), Ok(vec![TensorDesc::f32([2, 6])]));
        assert!(outputs(&[(0, 0)], &[2, 3]).is_err_and(|e| e.contains("pads = [(0, 0)] is not possible")));
        assert!(outputs(&[(0, 0); 7], &[1; 7]).is_err_and(|e| e.contains("1 to 6 axes")));
        assert!(outputs(&[(usize::MAX, 1)], &[2]).is_err_and(|e| e.contains("too large")));
        assert!(outputs(&[(1 << 20, 0), (1 << 20, 0)], &[2, 2]).is_err_and(|e| e.contains("too large")));
    }
}
