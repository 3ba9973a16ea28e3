//! Largest element of each window.

mod packed;

use self::packed::{MaxPool2dPacked, Packing};
use crate::ops::onnx;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use crate::error::OpError;
use crate::ops::pool::native::max::{self, Places};
use crate::ops::pool::windows::{self, Windows};
use crate::ops::sums::Sums;
use crate::ops::{
    Backward, Builder, BuiltInActivation, Call, Case, Cost, Dispatch, Fill, Native, Op, Output, Parts, Real, Resources,
    Slot, expect_count,
};
use crate::shader::Target;
use crate::tensor::{Shape, TensorDesc, ValueId};

/// `output[n, c, y, x] = max of input[n, c, h, w]` over the window at (y, x)
///
/// | tensor | shape |
/// |---|---|
/// | input | [N, C, H, W] |
/// | output | [N, C, OH, OW], where OH = (H + padding + padding_end − kernel) / stride + 1, rounded down or with `ceil_mode` up, and OW likewise |
/// | index, u32 | [N, C, OH, OW]: where in its plane the largest is, row · W + column |
///
/// **Saved for backward:** the index, 4 bytes per element of the output; compressed, the position in the window in its
/// place: half a byte where a window has at most 16 elements, one byte up to 256. **In place:** no.
/// **Numerics:** exact. Of equal elements the first in reading order counts, as in PyTorch; NaN wins over all; padding
/// never does. The gradient of an input element is summed over windows in reading order.
///
/// # Errors
/// Where the input is not f32 [N, C, H, W], a window is empty, larger than the padded input or above 13,107 elements, the
/// stride is 0, or the padding is more than half the window; with `padding_end`, either is as large as the window.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.MaxPool2d.html>
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MaxPool2d {
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
}

impl Debug for MaxPool2d {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.windows().write(f, "MaxPool2d")
    }
}

impl Default for MaxPool2d {
    /// Windows of one element, without padding.
    fn default() -> Self {
        MaxPool2d { kernel: [1, 1], stride: [1, 1], padding: [0, 0], padding_end: None, ceil_mode: false }
    }
}

impl MaxPool2d {
    fn windows(&self) -> Windows {
        let MaxPool2d { kernel, stride, padding, padding_end, ceil_mode } = *self;
        Windows { kernel, stride, padding, padding_end, ceil_mode, count_include_pad: true }
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let found = largest(self.windows(), call.input(0), [&call.input_descs[0].shape, &call.output_descs[0].shape]);
        let [Output::Real(output), Output::Int(index)] = &mut call.outputs[..] else {
            panic!("bug: max_pool2d has a real and an integer output");
        };
        for (found, (y, i)) in found.zip(output.iter_mut().zip(index.iter_mut())) {
            (*y, *i) = (found.0, found.1 as u32);
        }
    }
}

/// The largest of each window, and its position in the plane. `shapes` are those of input and output.
fn largest<'a, T: Real>(windows: Windows, input: &'a [T], shapes: [&'a Shape; 2]) -> impl Iterator<Item = (T, usize)> {
    let width = shapes[0][3];
    windows.each(shapes[0], shapes[1]).map(move |(plane, rows, columns)| {
        let mut at = rows.start * width + columns.start;
        for h in rows {
            for w in columns.clone() {
                let (value, largest) = (input[plane + h * width + w], input[plane + at]);
                let is_nan = value.partial_cmp(&value).is_none();
                if value > largest || is_nan {
                    at = h * width + w;
                }
            }
        }
        (input[plane + at], at)
    })
}

impl Op for MaxPool2d {
    fn name(&self) -> &'static str {
        "max_pool2d"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let end = self.padding_end.unwrap_or(self.padding);
        let pads = [self.padding[0], self.padding[1], end[0], end[1]];
        let attributes = [
            ("kernel_shape", (&self.kernel[..]).into()),
            ("strides", (&self.stride[..]).into()),
            ("pads", (&pads[..]).into()),
            ("ceil_mode", self.ceil_mode.into()),
        ];
        let value = call.input(0);
        Some(vec![call.node("MaxPool", &[&value], attributes)])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let shape = self.windows().output("max_pool2d", inputs)?;
        Ok(vec![TensorDesc::f32(shape.clone()), TensorDesc::u32(shape)])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let shape = graph.desc(forward.inputs[0]).shape.clone();
        let op = MaxPool2dGradInput { windows: self.windows(), packing: None, shape };
        Ok(vec![Some(graph.emit(op, &[forward.outputs[1], grad_output])?)])
    }

    // The largest of a window stays the largest, and where all become 0 there is no gradient, whichever is taken.
    fn commutes_with(&self, activation: BuiltInActivation) -> bool {
        activation == BuiltInActivation::Relu
    }

    fn compressed(&self) -> Option<Arc<dyn Op>> {
        Some(Arc::new(MaxPool2dPacked(Packing::of(self.windows())?)))
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        self.windows().cost(inputs, outputs)
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Output(0), Slot::Output(1)];
        let (input, output) = (&inputs[0].shape, &outputs[0].shape);
        vec![self.windows().forward("max_pool2d", bindings, input, output)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for MaxPool2d {
    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        Some(Parts::samples([true], 2))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        forward(self.windows(), Places::Plane, call, with);
    }
}

/// Writes the largest of each window, and where it is.
fn forward(windows: Windows, places: Places, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
    let (shapes, input) = ([&call.input_descs[0].shape, &call.output_descs[0].shape], call.input(0));
    let [Output::Real(output), Output::Int(index)] = &mut call.outputs[..] else {
        panic!("bug: max_pool2d has a real and an integer output");
    };
    max::forward(windows, places, with.cores, shapes, input, output, index);
}

/// `grad_input[n, c, h, w] = Σ grad_output` over the windows whose index is (h, w); inputs `index, grad_output`.
#[derive(Clone, Debug)]
struct MaxPool2dGradInput {
    windows: Windows,
    /// How the index is kept, where it is the position in the window.
    packing: Option<Packing>,
    /// Shape of the input of the pooling.
    shape: Shape,
}

impl Op for MaxPool2dGradInput {
    fn name(&self) -> &'static str {
        "max_pool2d.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("max_pool2d.grad_input", inputs, 2)?;
        Ok(vec![TensorDesc::f32(self.shape.clone())])
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Output(0)];
        let dispatch = self.windows.grad_input("max_pool2d", bindings, &self.shape, &inputs[1].shape);
        vec![match self.packing {
            Some(packing) => packing.constant(dispatch),
            None => dispatch,
        }]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for MaxPool2dGradInput {
    fn parts(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        packed::has_own_words(&inputs[0]).then(|| Parts::samples([true, true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let places = self.packing.map_or(Places::Plane, Packing::places);
        let shapes = [&call.output_descs[0].shape, &call.input_descs[1].shape];
        max::backward(self.windows, places, with.cores, shapes, call.ints(0), call.input(1), call.output(0));
    }
}

impl MaxPool2dGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (index, grad_output) = (call.ints(0), call.input(1));
        let output = &call.input_descs[1].shape;
        let plane = self.shape[2] * self.shape[3];
        let windows_of_plane = output[2] * output[3];
        let mut sums = Sums::new(call.output_descs[0].numel());
        for (i, &g) in grad_output.iter().enumerate() {
            let at = match self.packing {
                Some(packing) => packing.in_plane(index, i, &self.shape, output),
                None => index[i] as usize,
            };
            sums.add(i / windows_of_plane * plane + at, g);
        }
        sums.write(call.output(0));
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let op = |Windows { kernel, stride, padding, padding_end, ceil_mode, .. }| MaxPool2d {
        kernel,
        stride,
        padding,
        padding_end,
        ceil_mode,
    };
    let mut cases = windows::cases(Fill::Distinct(0.01), op);
    // Which of equals counts, that padding never wins, and that NaN does.
    for (name, value) in [("ties", 1.0), ("below_padding", -1.0), ("nan", f32::NAN)] {
        let op = MaxPool2d { kernel: [3, 3], stride: [1, 2], padding: [1, 1], ..MaxPool2d::default() };
        cases.push(Case::new(name, op, [TensorDesc::f32([1, 2, 5, 6])]).fill(0, Fill::Constant(value)).large());
    }
    let large_window = MaxPool2d { kernel: [4, 5], stride: [2, 3], padding: [1, 2], ..MaxPool2d::default() };
    let case = Case::new("k4x5_s2x3_pad1x2", large_window, [TensorDesc::f32([2, 3, 9, 11])]);
    cases.push(case.fill(0, Fill::Distinct(0.01)).reduction(20));
    cases
}
