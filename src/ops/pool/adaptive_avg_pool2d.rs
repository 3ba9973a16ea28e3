//! Mean of each of a given number of bins.

use crate::ops::onnx;
use std::ops::Range;

use crate::error::OpError;
use crate::ops::pool::native::average;
use crate::ops::reduce::reduction::{self, Axes};
use crate::ops::sums::{Sums, sum};
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, MAX_LOOP_ITERATIONS, Native, Op, Parts, Real, Resources, Slot,
    expect_count, expect_dtype, expect_rank,
};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output[n, c, y, x] = mean of input[n, c, h, w]` over rows `⌊y · H / OH⌋ ≤ h < ⌈(y + 1) · H / OH⌉` and columns likewise:
/// bins that cover the image, and overlap where they have to
///
/// | tensor | shape |
/// |---|---|
/// | input | `[N, C, H, W]` |
/// | output | `[N, C, OH, OW]`, larger than the input where that is asked for |
///
/// One bin for the whole image (global average pooling) runs the kernels of [`Sum`](crate::ops::reduce::sum::Sum).
///
/// **Saved for backward:** nothing. **In place:** no.
/// **Numerics:** sums in f32, in an order that depends on the shapes only; of bins of 256 elements and more, 64 invocations
/// sum a part each.
///
/// # Errors
/// Where the input is not f32 `[N, C, H, W]`, an output extent is 0, or a bin, or the bins over an element, are more than
/// a kernel may loop over.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool2d.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveAvgPool2d {
    /// Height and width of the output.
    pub output: [usize; 2],
}

params! {
    struct Params {
        elements: u32,
        extent: [u32; 2] as [height, width],
        output_extent: [u32; 2] as [output_height, output_width],
    }
}

/// Elements of a bin from which on a workgroup sums it.
const WORKGROUP_BIN: usize = 256;

/// The elements of bin `o` along an axis. With input and output exchanged, the bins that element `o` lies in.
fn bin(o: usize, input: usize, output: usize) -> Range<usize> {
    o * input / output..((o + 1) * input).div_ceil(output)
}

/// The most elements of any bin along an axis.
fn largest_bin(input: usize, output: usize) -> usize {
    // Where bins do not begin on whole elements, they share those where they meet.
    input.div_ceil(output) + usize::from(!input.is_multiple_of(output))
}

/// A launch over all elements of `written`: [N, C, H, W] on one side, bins of it on the other.
fn launch(entry: &'static str, input: &Shape, output: &Shape, written: &Shape) -> Dispatch {
    let pair = |shape: &Shape| [shape[2] as u32, shape[3] as u32];
    let params = Params { elements: written.numel() as u32, extent: pair(input), output_extent: pair(output) };
    Dispatch::new("adaptive_avg_pool2d", entry, [Slot::Input(0), Slot::Output(0)]).params(&params)
}

impl AdaptiveAvgPool2d {
    /// The sum over whole planes, where there is one bin for each.
    fn global(&self, input: &Shape) -> Option<(Axes, f64)> {
        (self.output == [1, 1]).then(|| (Axes::new(input, &[2, 3]), 1.0 / (input[2] * input[3]) as f64))
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, shape, [high, wide]) = (call.input(0), call.shape(0), self.output);
        for (i, y) in call.output(0).iter_mut().enumerate() {
            let plane = i / (high * wide) * shape[2] * shape[3];
            let (rows, columns) = (bin(i / wide % high, shape[2], high), bin(i % wide, shape[3], wide));
            let elements = T::from_f64((rows.len() * columns.len()) as f64);
            *y = sum(rows.flat_map(|h| &input[plane + h * shape[3]..][columns.clone()]).copied()) / elements;
        }
    }
}

impl Op for AdaptiveAvgPool2d {
    fn name(&self) -> &'static str {
        "adaptive_avg_pool2d"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let value = call.input(0);
        if self.output == [1, 1] {
            return Some(vec![call.apply("GlobalAveragePool", &[&value])]);
        }
        let extents = call.extents(0);
        let (from, to) = ([extents[2]?, extents[3]?], self.output);
        if (0..2).all(|d| from[d].is_multiple_of(to[d])) {
            let kernel = [from[0] / to[0], from[1] / to[1]];
            let attributes = [("kernel_shape", (&kernel[..]).into()), ("strides", (&kernel[..]).into())];
            return Some(vec![call.node("AveragePool", &[&value], attributes)]);
        }
        // Bins of different sizes: products with matrices of means, of rows and of columns.
        let mut means = |d: usize, is_left: bool| {
            let (from, to) = (from[d], to[d]);
            let mut matrix = vec![0.0; from * to];
            for bin in 0..to {
                let (begin, end) = (bin * from / to, ((bin + 1) * from).div_ceil(to));
                for place in begin..end {
                    let at = if is_left { bin * from + place } else { place * to + bin };
                    matrix[at] = 1.0 / (end - begin) as f32;
                }
            }
            call.floats(if is_left { [to, from] } else { [from, to] }, matrix)
        };
        let (rows, columns) = (means(0, true), means(1, false));
        let wide = call.apply("MatMul", &[&value, &columns]);
        Some(vec![call.apply("MatMul", &[&rows, &wide])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        const OP: &str = "adaptive_avg_pool2d";
        expect_count(OP, inputs, 1)?;
        expect_dtype(OP, "input", &inputs[0], DType::F32)?;
        expect_rank(OP, "input", &inputs[0], 4)?;
        let shape = &inputs[0].shape;
        let [high, wide] = self.output;
        let refuse = |reason: String| {
            Err(OpError::Setting { op: OP, setting: "output", value: format!("{:?}", self.output), reason })
        };
        if self.output.contains(&0) {
            return refuse("both extents must be at least 1".to_owned());
        }
        // Kernels count in 32 bits.
        let most = |input: usize, output: usize| (output + 1).saturating_mul(input + 1) <= u32::MAX as usize;
        if shape.contains(&0) || !most(shape[2], high) || !most(shape[3], wide) {
            return refuse(format!("bins of {} cannot be counted in 32 bits", inputs[0]));
        }
        let area = |from: [usize; 2], to: [usize; 2]| {
            largest_bin(from[0], to[0]) as u64 * (largest_bin(from[1], to[1]) as u64 + 1)
        };
        let extent = [shape[2], shape[3]];
        let limit = MAX_LOOP_ITERATIONS / 2;
        if self.output != [1, 1] && area(extent, self.output) > 64 * limit || area(self.output, extent) > limit {
            return refuse(format!("bins of {} are too large", inputs[0]));
        }
        Ok(vec![TensorDesc::f32([shape[0], shape[1], high, wide])])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let shape = graph.desc(forward.inputs[0]).shape.clone();
        Ok(vec![Some(graph.emit(AdaptiveAvgPool2dGradInput { shape }, &[grad_output])?)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let bin = |d: usize| largest_bin(inputs[0].shape[d + 2], self.output[d]);
        let flops = (bin(0) * bin(1) * outputs[0].numel()) as u64;
        Cost { flops, bytes_moved: inputs[0].size_bytes() + outputs[0].size_bytes() }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        let sum = self.global(&inputs[0].shape);
        sum.map_or_else(Vec::new, |(sum, _)| reduction::workspaces(sum.outputs, sum.terms))
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let (input, output) = (&inputs[0].shape, &outputs[0].shape);
        if let Some((sum, scale)) = self.global(input) {
            return sum.sum(Slot::Input(0), scale as f32);
        }
        let [high, wide] = [2, 3].map(|axis| largest_bin(input[axis], output[axis]));
        let lanes = reduction::lanes(high * wide, WORKGROUP_BIN);
        let dispatch = launch("forward", input, output, output).loops((high * wide).div_ceil(lanes) + 8);
        vec![reduction::over_rows(dispatch, output.numel(), lanes)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for AdaptiveAvgPool2d {
    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        Some(Parts::samples([true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let (input, shape) = (call.input(0), call.shape(0));
        let (output, cores) = (self.output, with.cores);
        average::bins(cores, [shape[2], shape[3]], output, bin, input, call.output(0));
    }
}

/// `grad_input[n, c, h, w] = Σ grad_output / (elements of the bin)` over the bins that (h, w) lies in; input
/// `grad_output`.
#[derive(Clone, Debug)]
struct AdaptiveAvgPool2dGradInput {
    /// Shape of the input of the pooling.
    shape: Shape,
}

impl Op for AdaptiveAvgPool2dGradInput {
    fn name(&self) -> &'static str {
        "adaptive_avg_pool2d.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("adaptive_avg_pool2d.grad_input", inputs, 1)?;
        Ok(vec![TensorDesc::f32(self.shape.clone())])
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let output = &inputs[0].shape;
        let bins = |axis: usize| largest_bin(output[axis], self.shape[axis]);
        vec![
            launch("grad_input", &self.shape, output, &self.shape)
                .constant("LANES", 1)
                .linear(self.shape.numel().div_ceil(64))
                .loops(bins(2) * (bins(3) + 1)),
        ]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for AdaptiveAvgPool2dGradInput {
    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        Some(Parts::samples([true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let (grad_output, output) = (call.input(0), call.shape(0));
        let extent = [self.shape[2], self.shape[3]];
        average::bins_backward(with.cores, extent, [output[2], output[3]], bin, grad_output, call.output(0));
    }
}

impl AdaptiveAvgPool2dGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (grad_output, output) = (call.input(0), call.shape(0));
        let (height, width) = (self.shape[2], self.shape[3]);
        let mut sums = Sums::new(height * width * (grad_output.len() / (output[2] * output[3])));
        for (i, &g) in grad_output.iter().enumerate() {
            let plane = i / (output[2] * output[3]) * height * width;
            let rows = bin(i / output[3] % output[2], height, output[2]);
            let columns = bin(i % output[3], width, output[3]);
            let elements = T::from_f64((rows.len() * columns.len()) as f64);
            for h in rows {
                columns.clone().for_each(|w| sums.add(plane + h * width + w, g / elements));
            }
        }
        sums.write(call.output(0));
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, output: [usize; 2], shape: [usize; 4]| {
        let terms = largest_bin(shape[2], output[0]) * largest_bin(shape[3], output[1]);
        let terms = terms.max(largest_bin(output[0], shape[2]) * largest_bin(output[1], shape[3]));
        Case::new(name, AdaptiveAvgPool2d { output }, [TensorDesc::f32(shape)]).reduction(terms)
    };
    vec![
        case("global_2x3x4x5", [1, 1], [2, 3, 4, 5]),
        case("global_one_pixel", [1, 1], [2, 3, 1, 1]),
        case("whole_2x2_of_4x6", [2, 2], [2, 3, 4, 6]),
        case("uneven_3x2_of_7x5", [3, 2], [1, 2, 7, 5]),
        case("same_3x4", [3, 4], [1, 2, 3, 4]),
        case("larger_5x7_of_3x2", [5, 7], [2, 2, 3, 2]),
        case("larger_3x3_of_one_pixel", [3, 3], [1, 2, 1, 1]),
        case("mixed_2x9_of_5x4", [2, 9], [1, 3, 5, 4]),
        case("row_1x3_of_4x7", [1, 3], [1, 2, 4, 7]),
        case("global_31x17x7x7", [1, 1], [31, 17, 7, 7]).large(),
        case("global_2x3x61x67", [1, 1], [2, 3, 61, 67]).large(),
        case("workgroups_3x2_of_61x67", [3, 2], [2, 3, 61, 67]).large(),
        case("uneven_6x6_of_13x17", [6, 6], [3, 5, 13, 17]).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_no_larger_than_is_said() {
        for input in 1..20 {
            for output in 1..20 {
                let largest = (0..output).map(|o| bin(o, input, output).len()).max();
                assert!(largest <= Some(largest_bin(input, output)), "{input} {output}");
                for h in 0..input {
                    let over: Vec<_> = (0..output).filter(|&o| bin(o, input, output).contains(&h)).collect();
                    assert_eq!(over, bin(h, output, input).collect::<Vec<_>>(), "{input} {output} {h}");
                }
            }
        }
    }

    #[test]
    fn refuses_outputs_that_make_no_sense() {
        let outputs = |output, shape: [usize; 4]| AdaptiveAvgPool2d { output }.outputs(&[TensorDesc::f32(shape)]);
        assert_eq!(outputs([2, 3], [1, 2, 9, 9]), Ok(vec![TensorDesc::f32([1, 2, 2, 3])]));
        assert_eq!(outputs([1, 1], [1, 1, 9000, 9000]), Ok(vec![TensorDesc::f32([1, 1, 1, 1])]));
        for (output, shape) in [([0, 1], [1, 1, 3, 3]), ([1, 2], [1, 1, 9000, 9000]), ([1 << 40, 1], [1, 1, 3, 3])] {
            assert!(matches!(outputs(output, shape), Err(OpError::Setting { setting: "output", .. })), "{output:?}");
        }
    }
}
