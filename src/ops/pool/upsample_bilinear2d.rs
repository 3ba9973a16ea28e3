//! Planes made larger or smaller by interpolation between four neighbours.

use crate::ops::onnx;
use std::ops::Range;

use crate::error::OpError;
use crate::ops::pool::native::upsample::{self, Neighbours};
use crate::ops::sums::sum;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, MAX_LOOP_ITERATIONS, Native, Op, Parts, Real, Resources, Slot,
    expect_count, expect_dtype, expect_rank,
};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output[n, c, y, x] = (1 − fy) · ((1 − fx) · input[h, w] + fx · input[h, w + 1]) + fy · ((1 − fx) · input[h + 1, w] +
/// fx · input[h + 1, w + 1])` in plane (n, c), where h and fy are the whole and the fractional part of the place that y has
/// in the input, w and fx those of x; past the last row or column the last is taken
///
/// The place of y is `max((y + ½) · H / OH − ½, 0)`, so that the borders of both images lie together; with `align_corners`
/// it is `y · (H − 1) / (OH − 1)`, so that the centers of the corner pixels do.
///
/// | tensor | shape |
/// |---|---|
/// | input | `[N, C, H, W]` |
/// | output | `[N, C, OH, OW]` |
///
/// **Saved for backward:** nothing. **In place:** no.
/// **Numerics:** places are fractions of whole numbers, so no rounding decides between neighbours. The gradient of an
/// input element is a sum over the outputs that read it, in reading order.
///
/// # Errors
/// Where the input is not f32 `[N, C, H, W]`, an output extent is 0, or the extents are so different or so large that a
/// kernel would loop too often or count beyond 32 bits.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html> (`mode="bilinear"`)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpsampleBilinear2d {
    /// Height and width of the output.
    pub size: [usize; 2],
    /// Whether corner pixels keep their places; otherwise the borders of the images do.
    pub align_corners: bool,
}

/// One axis of the two images.
#[derive(Clone, Copy, Debug)]
struct Axis {
    input: usize,
    output: usize,
    align_corners: bool,
}

params! {
    struct Params {
        elements: u32,
        extent: [u32; 2] as [height, width],
        output_extent: [u32; 2] as [output_height, output_width],
    }
}

impl Axis {
    /// The place of output position `y` in the input: the whole part, and the fraction as numerator and denominator.
    fn place(&self, y: usize) -> (usize, usize, usize) {
        let (place, unit) = if self.align_corners {
            (y * (self.input - 1), (self.output - 1).max(1))
        } else {
            (((2 * y + 1) * self.input).saturating_sub(self.output), 2 * self.output)
        };
        (place / unit, place % unit, unit)
    }

    /// The two input positions that output position `y` reads, and their weights.
    fn neighbours<T: Real>(&self, y: usize) -> [(usize, T); 2] {
        let (whole, part, unit) = self.place(y);
        let fraction = T::from_f64(part as f64 / unit as f64);
        [(whole, T::ONE - fraction), ((whole + 1).min(self.input - 1), fraction)]
    }

    fn all_neighbours(&self) -> Neighbours {
        (0..self.output).map(|y| self.neighbours(y)).collect()
    }

    /// The weight with which output position `y` reads input position `h`.
    fn weight<T: Real>(&self, y: usize, h: usize) -> T {
        sum(self.neighbours::<T>(y).into_iter().filter(|n| n.0 == h).map(|n| n.1))
    }

    /// The output positions that read input position `h`: those whose place lies less than 1 from it, and at the ends a
    /// few that turn out not to.
    fn readers(&self, h: usize) -> Range<usize> {
        let (input, output) = (self.input, self.output);
        let (begin, end) = if !self.align_corners {
            // The place is above h − 1 where (2y + 1) · input > (2h − 1) · output, and below h + 1 likewise.
            let above = if h == 0 { 0 } else { ((2 * h - 1) * output / input).div_ceil(2) };
            (above, (((2 * h + 3) * output - 1) / input).div_ceil(2))
        } else if input == 1 || output == 1 {
            (0, output)
        } else {
            let above = if h == 0 { 0 } else { (h - 1) * (output - 1) / (input - 1) + 1 };
            (above, ((h + 1) * (output - 1)).div_ceil(input - 1))
        };
        begin..end.min(output)
    }

    /// More than any input position has readers.
    fn most_readers(&self) -> usize {
        if self.input == 1 { self.output } else { 2 * self.output.div_ceil(self.input - 1) + 2 }
    }
}

impl UpsampleBilinear2d {
    fn axes(&self, input: &Shape) -> [Axis; 2] {
        [0, 1].map(|d| Axis { input: input[d + 2], output: self.size[d], align_corners: self.align_corners })
    }

    /// A launch over all elements of `written`.
    fn launch(&self, entry: &'static str, input: &Shape, written: usize) -> Dispatch {
        let axes = self.axes(input);
        let params = Params {
            elements: written as u32,
            extent: axes.map(|axis| axis.input as u32),
            output_extent: axes.map(|axis| axis.output as u32),
        };
        let dispatch = Dispatch::new("upsample_bilinear2d", entry, [Slot::Input(0), Slot::Output(0)])
            .params(&params)
            .linear(written.div_ceil(64));
        if self.align_corners { dispatch.constant("ALIGN_CORNERS", 1) } else { dispatch }
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let input = call.input(0);
        let [rows, columns] = self.axes(&call.input_descs[0].shape);
        for (i, y) in call.output(0).iter_mut().enumerate() {
            let row = i / columns.output;
            let plane = row / rows.output * rows.input;
            *y = T::ZERO;
            for (h, high) in rows.neighbours::<T>(row % rows.output) {
                for (w, wide) in columns.neighbours::<T>(i % columns.output) {
                    *y += high * wide * input[(plane + h) * columns.input + w];
                }
            }
        }
    }
}

impl Op for UpsampleBilinear2d {
    fn name(&self) -> &'static str {
        "upsample_bilinear2d"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let extents = call.extents(0);
        let mut scales = vec![1.0; 2];
        for (from, &to) in extents[2..].iter().zip(&self.size) {
            let from = (*from)? as f32;
            // Extents are rounded down: of a factor that rounding made smaller, one would be missing.
            let mut scale = to as f32 / from;
            while (from * scale).floor() < to as f32 {
                scale = scale.next_up();
            }
            scales.push(scale);
        }
        let (value, scales) = (call.input(0), call.floats([4], scales));
        let places = if self.align_corners { "align_corners" } else { "half_pixel" };
        let attributes = [("mode", "linear".into()), ("coordinate_transformation_mode", places.into())];
        Some(vec![call.node("Resize", &[&value, "", &scales], attributes)])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        const OP: &str = "upsample_bilinear2d";
        expect_count(OP, inputs, 1)?;
        expect_dtype(OP, "input", &inputs[0], DType::F32)?;
        expect_rank(OP, "input", &inputs[0], 4)?;
        let shape = &inputs[0].shape;
        let refuse = |reason: String| {
            Err(OpError::Setting { op: OP, setting: "size", value: format!("{:?}", self.size), reason })
        };
        if self.size.contains(&0) {
            return refuse("both extents must be at least 1".to_owned());
        }
        if shape.contains(&0) {
            return refuse(format!("{} has no pixels to interpolate between", inputs[0]));
        }
        let axes = self.axes(shape);
        // Kernels calculate with (2h + 3) · output and (2y + 1) · input in 32 bits.
        let fits = |axis: &Axis| (2 * axis.input + 3).saturating_mul(2 * axis.output + 3) <= u32::MAX as usize;
        if !axes.iter().all(fits) {
            return refuse(format!("places in {} cannot be counted in 32 bits", inputs[0]));
        }
        if axes[0].most_readers() as u64 * (axes[1].most_readers() as u64 + 1) > MAX_LOOP_ITERATIONS {
            return refuse(format!("too many pixels would lie around one of {}", inputs[0]));
        }
        Ok(vec![TensorDesc::f32([shape[0], shape[1], self.size[0], self.size[1]])])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let shape = graph.desc(forward.inputs[0]).shape.clone();
        Ok(vec![Some(graph.emit(UpsampleBilinear2dGradInput { upsample: *self, shape }, &[grad_output])?)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        cost(inputs, outputs)
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![self.launch("forward", &inputs[0].shape, outputs[0].numel())]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

/// A row of the input for each thread.
fn lines(width: usize, threads: usize) -> Vec<u64> {
    vec![(width * threads * size_of::<f32>()) as u64]
}

impl Native for UpsampleBilinear2d {
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], threads: usize) -> Vec<u64> {
        lines(inputs[0].shape[3], threads)
    }

    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        Some(Parts::samples([true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let [rows, columns] = self.axes(&call.input_descs[0].shape).map(|axis| axis.all_neighbours());
        let extent = [call.shape(0)[2], call.shape(0)[3]];
        let (input, lines) = (call.input(0), &mut *with.workspaces[0]);
        upsample::bilinear(with.cores, [&rows, &columns], extent, lines, input, call.output(0));
    }
}

/// Four products for each element of the larger tensor.
fn cost(inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
    let elements = inputs[0].numel().max(outputs[0].numel()) as u64;
    Cost { flops: 8 * elements, bytes_moved: inputs[0].size_bytes() + outputs[0].size_bytes() }
}

/// `grad_input[n, c, h, w] = Σ weight · grad_output` over the outputs that read (h, w); input `grad_output`.
#[derive(Clone, Debug)]
struct UpsampleBilinear2dGradInput {
    upsample: UpsampleBilinear2d,
    /// Shape of the input of the interpolation.
    shape: Shape,
}

impl Op for UpsampleBilinear2dGradInput {
    fn name(&self) -> &'static str {
        "upsample_bilinear2d.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("upsample_bilinear2d.grad_input", inputs, 1)?;
        let mut shape = self.shape.to_vec();
        shape[0] = inputs[0].shape[0];
        Ok(vec![TensorDesc::f32(shape)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        cost(inputs, outputs)
    }

    fn dispatches(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let shape = &outputs[0].shape;
        let [high, wide] = self.upsample.axes(shape).map(|axis| axis.most_readers());
        vec![self.upsample.launch("grad_input", shape, shape.numel()).loops(high * (wide + 1))]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for UpsampleBilinear2dGradInput {
    fn workspaces(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc], threads: usize) -> Vec<u64> {
        lines(outputs[0].shape[3], threads)
    }

    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        Some(Parts::samples([true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let shape = &call.output_descs[0].shape;
        let [rows, columns] = self.upsample.axes(shape).map(|axis| axis.all_neighbours());
        let (grad, lines) = (call.input(0), &mut *with.workspaces[0]);
        upsample::bilinear_backward(with.cores, [&rows, &columns], [shape[2], shape[3]], lines, grad, call.output(0));
    }
}

impl UpsampleBilinear2dGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (grad_output, shape) = (call.input(0), &call.output_descs[0].shape);
        let [rows, columns] = self.upsample.axes(shape);
        for (i, d) in call.output(0).iter_mut().enumerate() {
            let (row, w) = (i / columns.input, i % columns.input);
            let (plane, h) = (row / rows.input * rows.output, row % rows.input);
            *d = sum(rows.readers(h).flat_map(|y| {
                let high = rows.weight::<T>(y, h);
                let term = move |x| high * columns.weight(x, w) * grad_output[(plane + y) * columns.output + x];
                columns.readers(w).map(term)
            }));
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    [false, true]
        .into_iter()
        .flat_map(|align_corners| {
            let case = move |name: &str, size: [usize; 2], shape: [usize; 4]| {
                let op = UpsampleBilinear2d { size, align_corners };
                let readers = op.axes(&shape.into()).map(|axis| axis.most_readers());
                let prefix = if align_corners { "corners_" } else { "" };
                Case::new(format!("{prefix}{name}"), op, [TensorDesc::f32(shape)]).reduction(readers[0] * readers[1])
            };
            [
                case("8x10_of_4x5", [8, 10], [2, 3, 4, 5]),
                case("7x9_of_3x2", [7, 9], [1, 2, 3, 2]),
                case("3x2_of_5x7", [3, 2], [1, 2, 5, 7]),
                case("3x5_of_one_pixel", [3, 5], [1, 2, 1, 1]),
                case("one_pixel_of_3x4", [1, 1], [2, 1, 3, 4]),
                case("same_4x3", [4, 3], [1, 2, 4, 3]),
                case("6x2_of_2x6", [6, 2], [1, 1, 2, 6]),
                case("26x33_of_13x11", [26, 33], [3, 5, 13, 11]).large(),
                case("101x3_of_2x97", [101, 3], [1, 2, 2, 97]).large(),
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reader_is_found() {
        for (input, output, align_corners) in
            (1..12).flat_map(|i| (1..30).flat_map(move |o| [false, true].map(|align| (i, o, align))))
        {
            let axis = Axis { input, output, align_corners };
            for h in 0..input {
                let readers = axis.readers(h);
                assert!(readers.len() <= axis.most_readers(), "{axis:?} {h}");
                for y in 0..output {
                    assert!(axis.weight::<f64>(y, h) == 0.0 || readers.contains(&y), "{axis:?}: {y} reads {h}");
                }
            }
        }
    }

    #[test]
    fn refuses_sizes_that_make_no_sense() {
        let outputs = |size, shape: [usize; 4]| {
            UpsampleBilinear2d { size, align_corners: false }.outputs(&[TensorDesc::f32(shape)])
        };
        assert_eq!(outputs([7, 2], [2, 3, 4, 5]), Ok(vec![TensorDesc::f32([2, 3, 7, 2])]));
        for (size, shape) in [([0, 1], [1, 1, 3, 3]), ([1 << 40, 2], [1, 1, 3, 3]), ([900, 900], [1, 1, 1, 1])] {
            assert!(matches!(outputs(size, shape), Err(OpError::Setting { setting: "size", .. })), "{size:?}");
        }
    }
}
