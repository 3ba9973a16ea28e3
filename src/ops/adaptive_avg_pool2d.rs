//! Mean of each of a given number of bins.

use std::ops::Range;

use super::reduce;
use super::{
    Backward, Builder, Call, Case, Cost, Dispatch, MAX_LOOP_ITERATIONS, Op, Real, Slot, expect_count, expect_dtype,
    expect_rank,
};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output[n, c, y, x] = Σ input[n, c, h, w] / (rows · columns)` over the rows ⌊y · H / OH⌋ up to ⌈(y + 1) · H / OH⌉ and the
/// columns ⌊x · W / OW⌋ up to ⌈(x + 1) · W / OW⌉: the bin at (y, x)
///
/// Bins overlap where they do not divide the plane evenly, and repeat where there are more of them than rows or columns. One
/// bin is global average pooling.
///
/// | tensor | shape |
/// |---|---|
/// | input | `[N, C, H, W]` |
/// | output | `[N, C, OH, OW]` |
///
/// **Saved for backward:** nothing. **In place:** no.
/// **Numerics:** sums in f32, in an order that depends on the shapes only.
///
/// # Errors
/// Where the input is not f32 `[N, C, H, W]`, a bin count is 0, H · OH or W · OW is 2³¹ or more, or a bin has more elements, or
/// an element more bins, than a kernel may loop over.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool2d.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveAvgPool2d {
    /// Bins, down and across.
    pub output: [usize; 2],
}

/// Planes and their bins.
#[derive(Clone, Copy, Debug)]
struct Bins {
    planes: usize,
    extent: [usize; 2],
    bins: [usize; 2],
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    elements: u32,
    extent: [u32; 2],
    bins: [u32; 2],
}

/// Where `extent` is cut into `bins`: what bin `i` holds. With the two in each other's place, the bins that hold `i`.
fn bin(i: usize, bins: usize, extent: usize) -> Range<usize> {
    i * extent / bins..((i + 1) * extent).div_ceil(bins)
}

/// The most that one bin holds; with the two in each other's place, the most bins that hold one element.
fn largest(bins: usize, extent: usize) -> usize {
    if extent.is_multiple_of(bins) { extent / bins } else { (extent / bins + 2).min(extent) }
}

impl Bins {
    fn new(input: &Shape, bins: [usize; 2]) -> Self {
        let planes = input[0] * input[1];
        // Where there is one bin, a plane is one long row, which the invocations of a bin can share out evenly.
        let extent = if bins == [1, 1] { [1, input[2] * input[3]] } else { [input[2], input[3]] };
        Bins { planes, extent, bins }
    }

    /// Invocations that work on one bin.
    fn lanes(&self) -> usize {
        reduce::row_lanes(largest(self.bins[1], self.extent[1]))
    }

    /// Most loop iterations of an invocation of either kernel.
    fn loops(&self) -> [usize; 2] {
        let [rows, columns] = [0, 1].map(|d| largest(self.bins[d], self.extent[d]));
        let [rows_over, columns_over] = [0, 1].map(|d| largest(self.extent[d], self.bins[d]));
        [rows * (columns.div_ceil(self.lanes()) + 1) + 8, rows_over * (columns_over + 1)]
    }

    fn launch(&self, entry: &'static str, elements: usize) -> Dispatch {
        let pair = |values: [usize; 2]| values.map(|value| value as u32);
        let params = Params { elements: elements as u32, extent: pair(self.extent), bins: pair(self.bins) };
        Dispatch::new("adaptive_avg_pool2d", entry, [Slot::Input(0), Slot::Output(0)]).params(&params)
    }

    /// Calls `visit` for every bin in order, with its number, elements, and each row of them.
    fn each(&self, mut visit: impl FnMut(usize, usize, Range<usize>)) {
        let ([height, width], [down, across]) = (self.extent, self.bins);
        for i in 0..self.planes * down * across {
            let (row, x) = (i / across, i % across);
            let (rows, columns) = (bin(row % down, down, height), bin(x, across, width));
            let elements = rows.len() * columns.len();
            for h in rows {
                let at = (row / down * height + h) * width;
                visit(i, elements, at + columns.start..at + columns.end);
            }
        }
    }
}

impl AdaptiveAvgPool2d {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let bins = Bins::new(&call.input_descs[0].shape, self.output);
        let input = call.input(0);
        let output = call.output(0);
        output.fill(T::ZERO);
        bins.each(|i, elements, row| {
            output[i] += input[row].iter().copied().sum::<T>() / T::from_f64(elements as f64);
        });
    }
}

impl Op for AdaptiveAvgPool2d {
    fn name(&self) -> &'static str {
        "adaptive_avg_pool2d"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        const OP: &str = "adaptive_avg_pool2d";
        expect_count(OP, inputs, 1)?;
        expect_dtype(OP, "input", &inputs[0], DType::F32)?;
        expect_rank(OP, "input", &inputs[0], 4)?;
        let shape = &inputs[0].shape;
        let reason = if self.output.contains(&0) || shape.contains(&0) {
            "there must be at least one bin and one element".to_owned()
        } else if (0..2).any(|d| self.output[d].saturating_mul(shape[d + 2] + 1) >= 1 << 31) {
            format!("its products with the height and the width of {} must be below 2^31", inputs[0])
        } else {
            let loops = Bins::new(shape, self.output).loops();
            if loops.into_iter().all(|loops| loops as u64 <= MAX_LOOP_ITERATIONS) {
                return Ok(vec![TensorDesc::f32([shape[0], shape[1], self.output[0], self.output[1]])]);
            }
            format!("a bin of {} is too large, or has too many of an element", inputs[0])
        };
        Err(OpError::Setting { op: OP, setting: "output", value: format!("{:?}", self.output), reason })
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let shape = graph.desc(forward.inputs[0]).shape.clone();
        Ok(vec![Some(graph.emit(AdaptiveAvgPool2dGradInput { shape }, &[grad_output])?)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let flops = inputs[0].numel().max(outputs[0].numel()) as u64;
        Cost { flops, bytes_moved: inputs[0].size_bytes() + outputs[0].size_bytes() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let (bins, elements) = (Bins::new(&inputs[0].shape, self.output), outputs[0].numel());
        let dispatch = bins.launch("forward", elements).loops(bins.loops()[0]);
        vec![reduce::over_rows(dispatch, elements, bins.lanes())]
    }

    twin!();
}

/// `grad_input[n, c, h, w] = Σ grad_output / elements of its bin`, over the bins that hold (h, w); input `grad_output`.
#[derive(Clone, Debug)]
struct AdaptiveAvgPool2dGradInput {
    /// Shape of the input of the pooling.
    shape: Shape,
}

impl AdaptiveAvgPool2dGradInput {
    fn bins(&self, grad_output: &TensorDesc) -> Bins {
        Bins::new(&self.shape, [grad_output.shape[2], grad_output.shape[3]])
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let bins = self.bins(&call.input_descs[0]);
        let grad_output = call.input(0);
        let grad_input = call.output(0);
        grad_input.fill(T::ZERO);
        bins.each(|i, elements, row| {
            for d in &mut grad_input[row] {
                *d += grad_output[i] / T::from_f64(elements as f64);
            }
        });
    }
}

impl Op for AdaptiveAvgPool2dGradInput {
    fn name(&self) -> &'static str {
        "adaptive_avg_pool2d.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("adaptive_avg_pool2d.grad_input", inputs, 1)?;
        Ok(vec![TensorDesc::f32(self.shape.clone())])
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let (bins, elements) = (self.bins(&inputs[0]), outputs[0].numel());
        vec![bins.launch("grad_input", elements).loops(bins.loops()[1]).linear(elements.div_ceil(64))]
    }

    twin!();
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, output: [usize; 2], shape: [usize; 4]| {
        let terms = [0, 1].map(|d| largest(output[d], shape[d + 2]).max(largest(shape[d + 2], output[d])));
        Case::new(name, AdaptiveAvgPool2d { output }, [TensorDesc::f32(shape)]).reduction(terms[0] * terms[1])
    };
    vec![
        case("global_2x3x4x5", [1, 1], [2, 3, 4, 5]),
        case("global_7x7", [1, 1], [2, 5, 7, 7]),
        case("even_2x3_of_4x6", [2, 3], [2, 3, 4, 6]),
        case("overlapping_3x2_of_7x5", [3, 2], [1, 3, 7, 5]),
        case("larger_5x7_of_3x4", [5, 7], [2, 2, 3, 4]),
        case("larger_down_6x2_of_4x5", [6, 2], [1, 2, 4, 5]),
        case("same_3x4", [3, 4], [2, 2, 3, 4]),
        case("one_row_1x3_of_5x7", [1, 3], [1, 2, 5, 7]),
        case("one_column_3x1_of_5x11", [3, 1], [1, 2, 5, 11]),
        case("one_pixel", [1, 1], [1, 1, 1, 1]),
        case("one_pixel_to_3x3", [3, 3], [1, 2, 1, 1]),
        case("global_3x67x28x28", [1, 1], [3, 67, 28, 28]).large(),
        case("global_2x3x173x181", [1, 1], [2, 3, 173, 181]).large(),
        case("overlapping_7x7_of_2x5x32x150", [7, 7], [2, 5, 32, 150]).large(),
        case("larger_40x33_of_3x7x13x11", [40, 33], [3, 7, 13, 11]).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_what_holds_them() {
        for (bins, extent) in [(1, 7), (3, 7), (7, 7), (5, 3), (7, 1), (4, 12), (6, 4)] {
            let mut most = 0;
            for i in 0..bins {
                most = most.max(bin(i, bins, extent).len());
                for j in 0..extent {
                    assert_eq!(bin(i, bins, extent).contains(&j), bin(j, extent, bins).contains(&i), "{bins} {extent} {i} {j}");
                }
            }
            assert!(most <= largest(bins, extent), "{bins} {extent}: {most}");
        }
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let outputs = |output, shape: &[usize]| {
            AdaptiveAvgPool2d { output }.outputs(&[TensorDesc::f32(shape)]).map_err(|error| error.to_string())
        };
        assert_eq!(outputs([2, 3], &[1, 2, 9, 9]), Ok(vec![TensorDesc::f32([1, 2, 2, 3])]));
        assert!(outputs([1, 1], &[1, 2, 1 << 10, 1 << 11]).is_ok());
        assert!(outputs([0, 1], &[1, 2, 9, 9]).is_err_and(|e| e.contains("output = [0, 1] is not possible: there must be")));
        assert!(outputs([usize::MAX, 1], &[1, 2, 9, 9]).is_err_and(|e| e.contains("below 2^31")));
        assert!(outputs([1, 1], &[1, 2, 1 << 12, 1 << 12]).is_err_and(|e| e.contains("too large")));
        assert!(outputs([300, 300], &[1, 2, 1, 1]).is_err_and(|e| e.contains("too many")));
        assert!(outputs([1, 1], &[1, 2, 9]).is_err_and(|e| e.contains("of 4 dimensions")));
    }
}
