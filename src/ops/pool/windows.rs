//! Windows over planes: what max and average pooling share.

use std::fmt::{self, Debug, Formatter};
use std::ops::Range;

use crate::error::OpError;
use crate::ops::{Case, Cost, Dispatch, Fill, MAX_LOOP_ITERATIONS, Op, Slot, expect_count, expect_dtype, expect_rank};
use crate::tensor::{DType, Shape, TensorDesc};

/// Settings of a pooling: (height, width) each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) struct Windows {
    pub(in crate::ops) kernel: [usize; 2],
    pub(in crate::ops) stride: [usize; 2],
    /// Rows above and columns on the left.
    pub(in crate::ops) padding: [usize; 2],
    /// Rows below and columns on the right, where they are not as many.
    pub(in crate::ops) padding_end: Option<[usize; 2]>,
    /// Whether there is a last window for what would be left over.
    pub(in crate::ops) ceil_mode: bool,
    /// Whether a mean is of the padding too.
    pub(in crate::ops) count_include_pad: bool,
}

/// Most elements of a window: see the loops of [`Windows::grad_input`].
const MAX_WINDOW: u64 = MAX_LOOP_ITERATIONS / 5;

params! {
    struct Params {
        elements: u32,
        extent: [u32; 2] as [height, width],
        output_extent: [u32; 2] as [output_height, output_width],
        kernel: [u32; 2] as [kernel_height, kernel_width],
        stride: [u32; 2] as [stride_height, stride_width],
        padding: [u32; 2] as [padding_height, padding_width],
        counted_begin: [u32; 2] as [counted_begin_height, counted_begin_width],
        counted_end: [u32; 2] as [counted_end_height, counted_end_width],
    }
}

impl Debug for Windows {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write(f, "Windows")
    }
}

impl Windows {
    /// Writes the settings of what has this name, those that are not as usual only where they are not: plans in files know graphs by
    /// the texts of their ops.
    pub(in crate::ops) fn write(&self, f: &mut Formatter<'_>, name: &str) -> fmt::Result {
        let Windows { kernel, stride, padding, padding_end, ceil_mode, count_include_pad } = self;
        let mut text = f.debug_struct(name);
        text.field("kernel", kernel).field("stride", stride).field("padding", padding);
        if let Some(end) = padding_end {
            text.field("padding_end", end);
        }
        if *ceil_mode {
            text.field("ceil_mode", ceil_mode);
        }
        if !count_include_pad {
            text.field("count_include_pad", count_include_pad);
        }
        text.finish()
    }

    /// The shape rule: [N, C, H, W] to [N, C, OH, OW].
    pub(in crate::ops) fn output(&self, op: &'static str, inputs: &[TensorDesc]) -> Result<Shape, OpError> {
        expect_count(op, inputs, 1)?;
        expect_dtype(op, "input", &inputs[0], DType::F32)?;
        expect_rank(op, "input", &inputs[0], 4)?;
        let shape = &inputs[0].shape;
        let refuse = |setting, value: [usize; 2], reason: String| {
            Err(OpError::Setting { op, setting, value: format!("{value:?}"), reason })
        };
        if self.kernel.contains(&0) {
            return refuse("kernel", self.kernel, "it must be at least 1".to_owned());
        }
        if self.kernel[0].saturating_mul(self.kernel[1]) as u64 > MAX_WINDOW {
            let reason = format!("a window holds at most {MAX_WINDOW} elements");
            return refuse("kernel", self.kernel, reason);
        }
        if self.stride.contains(&0) {
            return refuse("stride", self.stride, "it must be at least 1".to_owned());
        }
        // A window must not lie in the padding altogether.
        match self.padding_end {
            None if (0..2).any(|d| self.padding[d] > self.kernel[d] / 2) => {
                return refuse("padding", self.padding, format!("it must be at most half of kernel {:?}", self.kernel));
            }
            Some(end) => {
                for (setting, padding) in [("padding", self.padding), ("padding_end", end)] {
                    if (0..2).any(|d| padding[d] >= self.kernel[d]) {
                        return refuse(setting, padding, format!("it must be less than kernel {:?}", self.kernel));
                    }
                }
            }
            None => {}
        }
        let (Some(height), Some(width)) = (self.extent(0, shape[2]), self.extent(1, shape[3])) else {
            return refuse("kernel", self.kernel, format!("it is larger than the padded input {}", inputs[0]));
        };
        Ok([shape[0], shape[1], height, width].into())
    }

    /// Rows below or columns on the right.
    fn end(&self, d: usize) -> usize {
        self.padding_end.unwrap_or(self.padding)[d]
    }

    /// How many windows there are along an axis of so many elements; `None` where there is not one.
    fn extent(&self, d: usize, input: usize) -> Option<usize> {
        let (kernel, stride) = (self.kernel[d], self.stride[d]);
        let padded = input + self.padding[d] + self.end(d);
        if input == 0 {
            return None;
        }
        if !self.ceil_mode {
            return Some(padded.checked_sub(kernel)? / stride + 1);
        }
        match padded.checked_sub(kernel) {
            Some(rest) => {
                let windows = rest.div_ceil(stride) + 1;
                // The last must begin in the input or on its left.
                Some(if (windows - 1) * stride >= input + self.padding[d] { windows - 1 } else { windows })
            }
            None => (kernel - padded < stride).then_some(1),
        }
    }

    /// First and one past the last of the padded elements that means are of.
    fn counted_of_all(&self, d: usize, extent: usize) -> [usize; 2] {
        if self.count_include_pad {
            [0, self.padding[d] + extent + self.end(d)]
        } else {
            [self.padding[d], self.padding[d] + extent]
        }
    }

    /// How many rows (d = 0) or columns (1) the mean of window `o` is of.
    #[inline(always)]
    pub(in crate::ops) fn counted(&self, d: usize, o: usize, extent: usize) -> usize {
        let ([begin, end], first) = (self.counted_of_all(d, extent), o * self.stride[d]);
        (first + self.kernel[d]).min(end) - first.max(begin)
    }

    /// Whether all windows of this axis count as whole.
    pub(in crate::ops) fn are_whole(&self, d: usize, extent: usize, outputs: usize) -> bool {
        self.counted(d, 0, extent) == self.kernel[d] && self.counted(d, outputs - 1, extent) == self.kernel[d]
    }

    /// How many elements the mean of output element `i` in the whole is of.
    pub(in crate::ops) fn elements(&self, i: usize, input: &Shape, output: &Shape) -> usize {
        let (y, x) = (i / output[3] % output[2], i % output[3]);
        self.counted(0, y, input[2]) * self.counted(1, x, input[3])
    }

    /// Of pooling a tensor: each element of a window is looked at.
    pub(in crate::ops) fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let flops = (self.kernel[0] * self.kernel[1] * outputs[0].numel()) as u64;
        let bytes_moved = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum();
        Cost { flops, bytes_moved }
    }

    /// The launch that pools: the kernel `forward`, an invocation for every four windows.
    pub(in crate::ops) fn forward(
        &self,
        file: &'static str,
        bindings: impl Into<Vec<Slot>>,
        input: &Shape,
        output: &Shape,
    ) -> Dispatch {
        self.dispatch((file, "forward"), bindings, output.numel(), input, output)
            .linear(output.numel().div_ceil(4 * 64))
            .loops(self.kernel[0] * (self.kernel[1] + 1))
    }

    /// The launch of the gradient, the kernel `grad_input`: an invocation for every few neighbours in a row of the input.
    pub(in crate::ops) fn grad_input(
        &self,
        file: &'static str,
        bindings: impl Into<Vec<Slot>>,
        input: &Shape,
        output: &Shape,
    ) -> Dispatch {
        let mut dispatch = self.dispatch((file, "grad_input"), bindings, input.numel(), input, output);
        if input[3].is_multiple_of(4) {
            dispatch = dispatch.constant("ALIGNED", 1);
        }
        let run = if self.in_pairs(input, output) { 8 } else { 4 };
        let runs = input[..3].iter().product::<usize>() * input[3].div_ceil(run);
        // Four neighbours lie in no more windows than a window with three columns more has elements.
        dispatch.linear(runs.div_ceil(64)).loops(self.kernel[0] * (self.kernel[1] + 4))
    }

    /// Whether windows of two columns lie side by side and rows are of whole vectors: then kernels move vectors only.
    fn in_pairs(&self, input: &Shape, output: &Shape) -> bool {
        [self.kernel[1], self.stride[1], self.padding[1]] == [2, 2, 0]
            && input[3].is_multiple_of(8)
            && 2 * output[3] == input[3]
    }

    /// A launch that writes `elements`.
    fn dispatch(
        &self,
        kernel: (&'static str, &'static str),
        bindings: impl Into<Vec<Slot>>,
        elements: usize,
        input: &Shape,
        output: &Shape,
    ) -> Dispatch {
        let pair = |values: &[usize]| [values[0] as u32, values[1] as u32];
        let counted = [self.counted_of_all(0, input[2]), self.counted_of_all(1, input[3])];
        let dispatch = Dispatch::new(kernel.0, kernel.1, bindings).params(&Params {
            elements: elements as u32,
            extent: pair(&input[2..]),
            output_extent: pair(&output[2..]),
            kernel: pair(&self.kernel),
            stride: pair(&self.stride),
            padding: pair(&self.padding),
            counted_begin: counted.map(|[begin, _]| begin as u32),
            counted_end: counted.map(|[_, end]| end as u32),
        });
        dispatch.flags([("PAIRS", self.in_pairs(input, output))])
    }

    /// The rows (d = 0) or columns (1) of an input of this extent that window `o` covers.
    pub(in crate::ops) fn covered(&self, d: usize, o: usize, extent: usize) -> Range<usize> {
        let begin = o * self.stride[d];
        begin.saturating_sub(self.padding[d])..(begin + self.kernel[d] - self.padding[d]).min(extent)
    }

    /// Of output element `i` in the whole: the row and the column of its window's first element, counted from the padded
    /// border.
    pub(in crate::ops) fn origin(&self, i: usize, output: &Shape) -> [usize; 2] {
        [i / output[3] % output[2] * self.stride[0], i % output[3] * self.stride[1]]
    }

    /// For each output element in order: its plane's offset in the input, and the rows and columns it covers.
    pub(in crate::ops) fn each(
        self,
        input: &Shape,
        output: &Shape,
    ) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> {
        let (height, width, output_height, output_width) = (input[2], input[3], output[2], output[3]);
        (0..output.numel()).map(move |i| {
            let (x, y) = (i % output_width, i / output_width % output_height);
            let plane = i / output_width / output_height * height * width;
            (plane, self.covered(0, y, height), self.covered(1, x, width))
        })
    }
}

/// The cases of both ops.
pub(in crate::ops) fn cases<O: Op>(fill: Fill, op: impl Fn(Windows) -> O) -> Vec<Case> {
    let of = |name: &str, windows: Windows, shape: [usize; 4]| {
        let elements = windows.kernel[0] * windows.kernel[1];
        Case::new(name, op(windows), [TensorDesc::f32(shape)]).fill(0, fill).reduction(elements)
    };
    let windows = |kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2]| Windows {
        kernel,
        stride,
        padding,
        padding_end: None,
        ceil_mode: false,
        count_include_pad: true,
    };
    let case = |name: &str, kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2], shape: [usize; 4]| {
        of(name, windows(kernel, stride, padding), shape)
    };
    let ceil = |windows: Windows| Windows { ceil_mode: true, ..windows };
    let to = |end: [usize; 2], windows: Windows| Windows { padding_end: Some(end), ..windows };
    vec![
        case("k2_s2", [2, 2], [2, 2], [0, 0], [2, 3, 6, 6]),
        case("k2_s2_leftover", [2, 2], [2, 2], [0, 0], [1, 3, 7, 5]),
        case("k3_s1", [3, 3], [1, 1], [0, 0], [1, 2, 5, 6]),
        case("k3_s2_pad1", [3, 3], [2, 2], [1, 1], [2, 2, 7, 7]),
        case("k2x3_s2x1_pad1x0", [2, 3], [2, 1], [1, 0], [1, 2, 6, 7]),
        case("k1_s2", [1, 1], [2, 2], [0, 0], [1, 1, 5, 5]),
        case("k2_s3", [2, 2], [3, 3], [0, 0], [1, 2, 8, 8]),
        case("whole_plane", [4, 5], [4, 5], [0, 0], [2, 3, 4, 5]),
        case("one_pixel", [1, 1], [1, 1], [0, 0], [1, 1, 1, 1]),
        case("k3_pad1_one_pixel", [3, 3], [1, 1], [1, 1], [2, 1, 1, 1]),
        case("k5_s3_pad2_13x17", [5, 5], [3, 3], [2, 2], [1, 3, 13, 17]),
        case("k2_s2_5x7x25x23", [2, 2], [2, 2], [0, 0], [5, 7, 25, 23]).large(),
        case("k2_s2_5x7x24x40", [2, 2], [2, 2], [0, 0], [5, 7, 24, 40]).large(),
        case("k3x2_s1x2_pad1x0_16", [3, 2], [1, 2], [1, 0], [2, 3, 6, 16]).large(),
        case("k3_s2_pad1_12", [3, 3], [2, 2], [1, 1], [2, 3, 11, 12]).large(),
        of("k2_s2_ceil", ceil(windows([2, 2], [2, 2], [0, 0])), [1, 3, 7, 5]),
        of("k3_s2_ceil", ceil(windows([3, 3], [2, 2], [0, 0])), [2, 2, 6, 8]),
        // No window begins in the padding on the right.
        of("k3x2_s3_pad1_ceil", ceil(windows([3, 2], [3, 3], [1, 1])), [1, 2, 7, 5]),
        of("k3_s3_ceil_one_pixel", ceil(windows([3, 3], [3, 3], [0, 0])), [1, 2, 1, 2]),
        of("k2_s2_pads0_to_1", to([1, 1], windows([2, 2], [2, 2], [0, 0])), [2, 2, 5, 7]),
        of("k3_s2_pads0_to_1", to([1, 1], windows([3, 3], [2, 2], [0, 0])), [1, 2, 6, 8]),
        of("k3x4_s1x2_pads2x0_to_0x3", to([0, 3], windows([3, 4], [1, 2], [2, 0])), [1, 2, 5, 7]),
        // Pairs of columns, of rows some of which are not whole.
        of("k3x2_s2_pad1x0_ceil_16", ceil(windows([3, 2], [2, 2], [1, 0])), [2, 3, 6, 16]).large(),
        of("k2_s2_ceil_5x7x25x24", ceil(windows([2, 2], [2, 2], [0, 0])), [5, 7, 25, 24]).large(),
        of("k2_s2_pads0_to_1_16", to([1, 1], windows([2, 2], [2, 2], [0, 0])), [2, 3, 5, 16]).large(),
        case("large_window", [97, 101], [1, 1], [0, 0], [1, 2, 97, 103]).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_windows_that_do_not_fit() {
        let windows = |kernel, stride, padding| Windows {
            kernel,
            stride,
            padding,
            padding_end: None,
            ceil_mode: false,
            count_include_pad: true,
        };
        let input = [TensorDesc::f32([1, 1, 4, 4])];
        for (bad, setting) in [
            (windows([0, 1], [1, 1], [0, 0]), "kernel"),
            (windows([5, 1], [1, 1], [0, 0]), "kernel"),
            (windows([1 << 40, 1 << 40], [1, 1], [0, 0]), "kernel"),
            (windows([2, 2], [1, 0], [0, 0]), "stride"),
            (windows([2, 2], [1, 1], [0, 2]), "padding"),
            (Windows { padding_end: Some([0, 0]), ..windows([2, 2], [1, 1], [0, 2]) }, "padding"),
            (Windows { padding_end: Some([0, 2]), ..windows([2, 2], [1, 1], [0, 0]) }, "padding_end"),
            (Windows { ceil_mode: true, ..windows([7, 1], [3, 1], [0, 0]) }, "kernel"),
        ] {
            match bad.output("max_pool2d", &input) {
                Err(OpError::Setting { setting: found, .. }) => assert_eq!(found, setting, "{bad:?}"),
                other => panic!("{bad:?}: {other:?}"),
            }
        }
        assert_eq!(windows([3, 3], [2, 2], [1, 1]).output("p", &input), Ok([1, 1, 2, 2].into()));
        let ceil = |kernel, stride, padding| Windows { ceil_mode: true, ..windows(kernel, stride, padding) };
        assert_eq!(ceil([3, 3], [2, 2], [0, 0]).output("p", &input), Ok([1, 1, 2, 2].into()));
        // The third would begin on the right of the input.
        assert_eq!(ceil([2, 2], [3, 3], [1, 1]).output("p", &input), Ok([1, 1, 2, 2].into()));
        assert_eq!(ceil([5, 6], [2, 3], [0, 0]).output("p", &input), Ok([1, 1, 1, 1].into()));
        let huge = ceil([1, 1], [usize::MAX, 1 << 40], [0, 0]);
        assert_eq!(huge.output("p", &input), Ok([1, 1, 1, 1].into()));
        assert_eq!(
            format!("{:?}", windows([3, 3], [2, 2], [1, 1])),
            "Windows { kernel: [3, 3], stride: [2, 2], padding: [1, 1] }",
            "texts of before stay as they are"
        );
        assert!(format!("{:?}", ceil([3, 3], [2, 2], [1, 1])).contains("ceil_mode: true"));
        let sides = Windows { padding_end: Some([1, 2]), ..windows([3, 3], [2, 2], [0, 2]) };
        assert_eq!(sides.output("p", &input), Ok([1, 1, 2, 3].into()));
    }
}
