//! Planes resampled between their elements.

use super::{
    Backward, Builder, Call, Case, Cost, Dispatch, MAX_LOOP_ITERATIONS, Op, Real, Slot, expect_count, expect_dtype,
    expect_rank,
};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output[n, c, y, x] = input[n, c, s(y), s(x)]`, where between elements the four neighbours count in proportion to their
/// nearness
///
/// Along an axis of H elements that becomes one of OH, `s(y) = (y + ½) · H / OH − ½`: the borders of the planes meet. With
/// `align_corners`, `s(y) = y · (H − 1) / (OH − 1)`: the centers of the outermost elements meet. Outside of the input, what is
/// nearest counts. Works for smaller outputs too.
///
/// | tensor | shape |
/// |---|---|
/// | input | `[N, C, H, W]` |
/// | output | `[N, C, OH, OW]` |
///
/// **Saved for backward:** nothing. **In place:** no.
/// **Numerics:** places are exact, sums in f32. An element's gradient is the sum over the outputs that it has a part in, in
/// reading order.
///
/// # Errors
/// Where the input is not f32 `[N, C, H, W]`, the size has a 0 or is too large to count in 32 bits with the input's, or an
/// element is in more outputs than a kernel may loop over.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html> (`mode="bilinear"`)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpsampleBilinear2d {
    /// Height and width of the output.
    pub size: [usize; 2],
    /// Whether the centers of the outermost elements meet, instead of the borders.
    pub align_corners: bool,
}

/// An axis of the input, and how positions of the output lie in it: at `(i · step + start) / unit`.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
struct Axis {
    extent: i32,
    step: i32,
    start: i32,
    unit: i32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    elements: u32,
    axes: [Axis; 2],
    output: [i32; 2],
}

impl Axis {
    /// The neighbours of an output position, and the part that the second has.
    fn neighbours<T: Real>(&self, i: usize) -> ([usize; 2], T) {
        let source = (i as i32 * self.step + self.start).clamp(0, (self.extent - 1) * self.unit);
        let first = source / self.unit;
        let part = T::from_f64(f64::from(source - first * self.unit) / f64::from(self.unit));
        ([first as usize, (first + 1).min(self.extent - 1) as usize], part)
    }
}

impl UpsampleBilinear2d {
    fn axes(&self, input: &Shape) -> [Axis; 2] {
        [0, 1].map(|d| {
            let (extent, output) = (input[d + 2] as i32, self.size[d] as i32);
            if self.align_corners {
                Axis { extent, step: extent - 1, start: 0, unit: (output - 1).max(1) }
            } else {
                Axis { extent, step: 2 * extent, start: extent - output, unit: 2 * output }
            }
        })
    }

    /// Most loop iterations of an invocation of the gradient.
    fn loops(&self, input: &Shape) -> usize {
        let reached = |d: usize| {
            let (extent, output) = (input[d + 2], self.size[d]);
            // From one element to the next but one, and from the first and the last to the border.
            let (units, step) = if self.align_corners { (2 * (output - 1), extent - 1) } else { (2 * output, extent) };
            units.checked_div(step).map_or(output, |most| (most + 2).min(output))
        };
        reached(0) * (reached(1) + 1)
    }

    fn launch(&self, entry: &'static str, input: &Shape, elements: usize) -> Dispatch {
        let params =
            Params { elements: elements as u32, axes: self.axes(input), output: self.size.map(|n| n as i32) };
        Dispatch::new("upsample_bilinear2d", entry, [Slot::Input(0), Slot::Output(0)])
            .params(&params)
            .linear(elements.div_ceil(64))
    }

    /// Calls `visit` with each output element's number, and the places of its neighbours in the input with their weights.
    fn each<T: Real>(&self, input: &Shape, mut visit: impl FnMut(usize, [(usize, T); 4])) {
        let ([height, width], [rows, columns]) = (self.size, self.axes(input));
        for i in 0..input[0] * input[1] * height * width {
            let (row, plane) = (i / width, i / width / height * input[2]);
            let ([top, bottom], below) = rows.neighbours::<T>(row % height);
            let ([left, right], beside) = columns.neighbours::<T>(i % width);
            let at = |h: usize, w: usize| (plane + h) * input[3] + w;
            let (above, before) = (T::ONE - below, T::ONE - beside);
            visit(
                i,
                [
                    (at(top, left), above * before),
                    (at(top, right), above * beside),
                    (at(bottom, left), below * before),
                    (at(bottom, right), below * beside),
                ],
            );
        }
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let input = call.input(0);
        let shape = &call.input_descs[0].shape;
        let output = call.output(0);
        self.each(shape, |i, neighbours: [(usize, T); 4]| {
            output[i] = neighbours.into_iter().map(|(at, weight)| weight * input[at]).sum();
        });
    }
}

impl Op for UpsampleBilinear2d {
    fn name(&self) -> &'static str {
        "upsample_bilinear2d"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        const OP: &str = "upsample_bilinear2d";
        expect_count(OP, inputs, 1)?;
        expect_dtype(OP, "input", &inputs[0], DType::F32)?;
        expect_rank(OP, "input", &inputs[0], 4)?;
        let shape = &inputs[0].shape;
        // The largest number that the kernels reach is below 2 (H + 2) (OH + 2).
        let is_large = |d: usize| (self.size[d].saturating_add(2)).saturating_mul(shape[d + 2] + 2) >= 1 << 30;
        let reason = if self.size.contains(&0) || shape.contains(&0) {
            "planes have at least one element".to_owned()
        } else if is_large(0) || is_large(1) {
            format!("its products with the height and the width of {} must be below 2^30", inputs[0])
        } else if self.loops(shape) as u64 > MAX_LOOP_ITERATIONS {
            format!("an element of {} would be in more than {MAX_LOOP_ITERATIONS} outputs", inputs[0])
        } else {
            return Ok(vec![TensorDesc::f32([shape[0], shape[1], self.size[0], self.size[1]])]);
        };
        Err(OpError::Setting { op: OP, setting: "size", value: format!("{:?}", self.size), reason })
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let shape = graph.desc(forward.inputs[0]).shape.clone();
        Ok(vec![Some(graph.emit(UpsampleBilinear2dGradInput { upsample: *self, shape }, &[grad_output])?)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let flops = 12 * outputs[0].numel() as u64;
        Cost { flops, bytes_moved: inputs[0].size_bytes() + outputs[0].size_bytes() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![self.launch("forward", &inputs[0].shape, outputs[0].numel())]
    }

    twin!();
}

/// `grad_input[n, c, h, w] = Σ grad_output · the weight of (h, w) in it`; input `grad_output`.
#[derive(Clone, Debug)]
struct UpsampleBilinear2dGradInput {
    upsample: UpsampleBilinear2d,
    /// Shape of the input.
    shape: Shape,
}

impl UpsampleBilinear2dGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let grad_output = call.input(0);
        let grad_input = call.output(0);
        grad_input.fill(T::ZERO);
        self.upsample.each(&self.shape, |i, neighbours: [(usize, T); 4]| {
            for (at, weight) in neighbours {
                grad_input[at] += weight * grad_output[i];
            }
        });
    }
}

impl Op for UpsampleBilinear2dGradInput {
    fn name(&self) -> &'static str {
        "upsample_bilinear2d.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("upsample_bilinear2d.grad_input", inputs, 1)?;
        Ok(vec![TensorDesc::f32(self.shape.clone())])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let flops = 16 * inputs[0].numel() as u64;
        Cost { flops, bytes_moved: inputs[0].size_bytes() + outputs[0].size_bytes() }
    }

    fn dispatches(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let dispatch = self.upsample.launch("grad_input", &self.shape, outputs[0].numel());
        vec![dispatch.loops(self.upsample.loops(&self.shape))]
    }

    twin!();
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, size: [usize; 2], align_corners: bool, shape: [usize; 4]| {
        let op = UpsampleBilinear2d { size, align_corners };
        Case::new(name, op, [TensorDesc::f32(shape)]).reduction(op.loops(&shape.into()))
    };
    vec![
        case("double_2x3x4x5", [8, 10], false, [2, 3, 4, 5]),
        case("double_corners_2x3x4x5", [8, 10], true, [2, 3, 4, 5]),
        case("7x9_of_3x4", [7, 9], false, [1, 2, 3, 4]),
        case("7x9_of_3x4_corners", [7, 9], true, [1, 2, 3, 4]),
        case("smaller_3x4_of_7x9", [3, 4], false, [1, 2, 7, 9]),
        case("smaller_3x4_of_7x9_corners", [3, 4], true, [1, 2, 7, 9]),
        case("mixed_2x11_of_5x3", [2, 11], false, [1, 2, 5, 3]),
        case("same_3x4", [3, 4], false, [1, 2, 3, 4]),
        case("one_pixel_to_3x5", [3, 5], false, [2, 1, 1, 1]),
        case("one_pixel_to_3x5_corners", [3, 5], true, [2, 1, 1, 1]),
        case("to_one_pixel_of_5x4", [1, 1], false, [1, 2, 5, 4]),
        case("to_one_pixel_of_5x4_corners", [1, 1], true, [1, 2, 5, 4]),
        case("double_5x7x13x11", [26, 22], false, [5, 7, 13, 11]).large(),
        case("97x101_of_3x2x5x7_corners", [97, 101], true, [3, 2, 5, 7]).large(),
        case("17x19_of_2x3x67x71", [17, 19], false, [2, 3, 67, 71]).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_sizes_that_make_no_sense() {
        let outputs = |size, shape: [usize; 4]| {
            let op = UpsampleBilinear2d { size, align_corners: false };
            op.outputs(&[TensorDesc::f32(shape)]).map_err(|error| error.to_string())
        };
        assert_eq!(outputs([9, 3], [2, 3, 4, 5]), Ok(vec![TensorDesc::f32([2, 3, 9, 3])]));
        assert!(outputs([0, 3], [2, 3, 4, 5]).is_err_and(|e| e.contains("size = [0, 3] is not possible: planes have")));
        assert!(outputs([usize::MAX, 3], [2, 3, 4, 5]).is_err_and(|e| e.contains("below 2^30")));
        assert!(outputs([300, 300], [2, 3, 1, 1]).is_err_and(|e| e.contains("more than 65535 outputs")));
    }

    #[test]
    fn loops_are_no_more_than_stated() {
        for align_corners in [false, true] {
            for (output, extent) in [(8, 4), (9, 4), (7, 1), (1, 7), (3, 7), (100, 3), (13, 12), (1, 1), (2, 9)] {
                let op = UpsampleBilinear2d { size: [output, 1], align_corners };
                let shape: Shape = [1, 1, extent, 1].into();
                let axis = op.axes(&shape)[0];
                // As the kernel reckons.
                let most = (0..axis.extent).map(|at| {
                    let low = (at - 1) * axis.unit - axis.start;
                    let high = (at + 1) * axis.unit - axis.start;
                    let begin = if at > 0 && low >= 0 { (low / axis.step + 1).min(output as i32) } else { 0 };
                    let is_last = at == axis.extent - 1;
                    let end = if is_last { output as i32 } else { ((high + axis.step - 1) / axis.step).clamp(0, output as i32) };
                    end - begin
                });
                let most = most.max().expect("an element") as usize;
                assert!(2 * most <= op.loops(&shape), "{output} of {extent}, {align_corners}: {most}");
            }
        }
    }
}
