//! Mean of each window.

use std::fmt::{self, Debug, Formatter};

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::pool::native::average;
use crate::ops::pool::windows::{self, Windows};
use crate::ops::sums::{Sums, sum};
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Fill, Native, Op, Parts, Real, Resources, Slot, expect_count,
};
use crate::shader::Target;
use crate::tensor::{Shape, TensorDesc, ValueId};

/// `output[n, c, y, x] = Σ input[n, c, h, w] / elements` over the window at (y, x), which has `KH · KW` elements. Padding counts
/// as zeros; what a last window of `ceil_mode` has beyond it does not count, and with `count_include_pad = false` no padding
/// does.
///
/// | tensor | shape |
/// |---|---|
/// | input | [N, C, H, W] |
/// | output | [N, C, OH, OW], where OH = (H + padding + padding_end − kernel) / stride + 1, rounded down or with `ceil_mode` up, and OW likewise |
///
/// **Saved for backward:** nothing. **In place:** no.
/// **Numerics:** sums in f32, in reading order.
///
/// # Errors
/// As [`MaxPool2d`](crate::ops::pool::max_pool2d::MaxPool2d).
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.AvgPool2d.html>
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AvgPool2d {
    /// Height and width of a window.
    pub kernel: [usize; 2],
    /// Steps between windows, down and across.
    pub stride: [usize; 2],
    /// Rows added above and columns added on the left, and as many below and on the right but for `padding_end`.
    pub padding: [usize; 2],
    /// Rows added below and columns added on the right, where they are not as many.
    pub padding_end: Option<[usize; 2]>,
    /// Whether there is a last window for what would be left over, as long as it begins in the input or its left padding.
    pub ceil_mode: bool,
    /// Whether padding counts, as zeros.
    pub count_include_pad: bool,
}

impl Debug for AvgPool2d {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.windows().write(f, "AvgPool2d")
    }
}

impl Default for AvgPool2d {
    /// Windows of one element, without padding, which counts where there is some.
    fn default() -> Self {
        AvgPool2d {
            kernel: [1, 1],
            stride: [1, 1],
            padding: [0, 0],
            padding_end: None,
            ceil_mode: false,
            count_include_pad: true,
        }
    }
}

/// Defined where windows do not all have the same number of elements.
fn counts(windows: Windows, input: &Shape, output: &Shape) -> [(&'static str, bool); 1] {
    let are_whole = windows.are_whole(0, input[2], output[2]) && windows.are_whole(1, input[3], output[3]);
    [("COUNTS", !are_whole)]
}

impl AvgPool2d {
    fn windows(&self) -> Windows {
        let AvgPool2d { kernel, stride, padding, padding_end, ceil_mode, count_include_pad } = *self;
        Windows { kernel, stride, padding, padding_end, ceil_mode, count_include_pad }
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, windows) = (call.input(0), self.windows());
        let shapes = [&call.input_descs[0].shape, &call.output_descs[0].shape];
        let width = shapes[0][3];
        let each = windows.each(shapes[0], shapes[1]).enumerate();
        for (y, (i, (plane, rows, columns))) in call.output(0).iter_mut().zip(each) {
            let row = |h: usize| &input[plane + h * width..][columns.clone()];
            let elements = windows.elements(i, shapes[0], shapes[1]);
            *y = sum(rows.flat_map(row).copied()) / T::from_f64(elements as f64);
        }
    }
}

impl Op for AvgPool2d {
    fn name(&self) -> &'static str {
        "avg_pool2d"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let end = self.padding_end.unwrap_or(self.padding);
        let pads = [self.padding[0], self.padding[1], end[0], end[1]];
        let mut attributes = vec![
            ("kernel_shape", (&self.kernel[..]).into()),
            ("strides", (&self.stride[..]).into()),
            ("pads", (&pads[..]).into()),
            ("ceil_mode", self.ceil_mode.into()),
        ];
        attributes.push(("count_include_pad", self.count_include_pad.into()));
        let value = call.input(0);
        Some(vec![call.node("AveragePool", &[&value], attributes)])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(vec![TensorDesc::f32(self.windows().output("avg_pool2d", inputs)?)])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let shape = graph.desc(forward.inputs[0]).shape.clone();
        let op = AvgPool2dGradInput { windows: self.windows(), shape };
        Ok(vec![Some(graph.emit(op, &[grad_output])?)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        self.windows().cost(inputs, outputs)
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Output(0)];
        let (input, output) = (&inputs[0].shape, &outputs[0].shape);
        let dispatch = self.windows().forward("avg_pool2d", bindings, input, output);
        vec![dispatch.flags(counts(self.windows(), input, output))]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for AvgPool2d {
    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        Some(Parts::samples([true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let shapes = [&call.input_descs[0].shape, &call.output_descs[0].shape];
        average::forward(self.windows(), with.cores, shapes, call.input(0), call.output(0));
    }
}

/// `grad_input[n, c, h, w] = Σ grad_output / elements` over the windows that cover (h, w); input `grad_output`.
#[derive(Clone, Debug)]
struct AvgPool2dGradInput {
    windows: Windows,
    /// Shape of the input of the pooling.
    shape: Shape,
}

impl Op for AvgPool2dGradInput {
    fn name(&self) -> &'static str {
        "avg_pool2d.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("avg_pool2d.grad_input", inputs, 1)?;
        Ok(vec![TensorDesc::f32(self.shape.clone())])
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Output(0)];
        let dispatch = self.windows.grad_input("avg_pool2d", bindings, &self.shape, &inputs[0].shape);
        vec![dispatch.flags(counts(self.windows, &self.shape, &inputs[0].shape))]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for AvgPool2dGradInput {
    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        Some(Parts::samples([true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let shapes = [&call.output_descs[0].shape, &call.input_descs[0].shape];
        average::backward(self.windows, with.cores, shapes, call.input(0), call.output(0));
    }
}

impl AvgPool2dGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let grad_output = call.input(0);
        let output = &call.input_descs[0].shape;
        let windows = self.windows.each(&self.shape, output).enumerate();
        let width = self.shape[3];
        let mut sums = Sums::new(call.output_descs[0].numel());
        for ((i, (plane, rows, columns)), &g) in windows.zip(grad_output) {
            let share = g / T::from_f64(self.windows.elements(i, &self.shape, output) as f64);
            for h in rows {
                columns.clone().for_each(|w| sums.add(plane + h * width + w, share));
            }
        }
        sums.write(call.output(0));
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let op = |Windows { kernel, stride, padding, padding_end, ceil_mode, count_include_pad }| AvgPool2d {
        kernel,
        stride,
        padding,
        padding_end,
        ceil_mode,
        count_include_pad,
    };
    let mut cases = windows::cases(Fill::Normal, op);
    let mut exclude = |name: &str, op: AvgPool2d, shape: [usize; 4]| {
        let op = AvgPool2d { count_include_pad: false, ..op };
        cases.push(Case::new(name, op, [TensorDesc::f32(shape)]).reduction(op.kernel[0] * op.kernel[1]));
    };
    let same = AvgPool2d { kernel: [3, 3], padding: [1, 1], ..AvgPool2d::default() };
    let uneven = AvgPool2d { kernel: [3, 2], stride: [2, 3], padding: [1, 1], ceil_mode: true, ..AvgPool2d::default() };
    exclude("exclude_k3_pad1", same, [2, 2, 5, 6]);
    exclude("exclude_k3_pad1_one_pixel", same, [2, 1, 1, 1]);
    exclude("exclude_k3x2_s2x3_pad1_ceil", uneven, [1, 2, 8, 10]);
    exclude("exclude_pads0_to_1", AvgPool2d { padding: [0, 0], padding_end: Some([1, 1]), ..same }, [1, 2, 4, 5]);
    // All count as whole.
    exclude("exclude_k3", AvgPool2d { padding: [0, 0], ..same }, [1, 2, 4, 5]);
    // Rows of pairs of columns, and more columns than are averaged together.
    let pairs = AvgPool2d { kernel: [3, 2], stride: [1, 2], padding: [1, 0], ..AvgPool2d::default() };
    exclude("exclude_k3x2_s1x2_pad1x0_16", pairs, [1, 2, 5, 16]);
    exclude("exclude_k3_pad1_3x301", same, [1, 1, 3, 301]);
    cases
}
