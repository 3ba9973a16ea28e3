//! Mean of each window.

use crate::error::OpError;
use crate::ops::pool::native::average;
use crate::ops::pool::windows::{self, Windows};
use crate::ops::sums::{Sums, sum};
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Fill, Native, Op, Parts, Real, Resources, Slot, expect_count,
};
use crate::shader::Target;
use crate::tensor::{Shape, TensorDesc, ValueId};

/// `output[n, c, y, x] = Σ input[n, c, h, w] / (KH · KW)` over the window at (y, x); padding counts as zeros
///
/// | tensor | shape |
/// |---|---|
/// | input | [N, C, H, W] |
/// | output | [N, C, OH, OW], where OH = (H + 2 padding − kernel) / stride + 1, rounded down, and OW likewise |
///
/// **Saved for backward:** nothing. **In place:** no.
/// **Numerics:** sums in f32, in reading order.
///
/// # Errors
/// As [`MaxPool2d`](crate::ops::pool::max_pool2d::MaxPool2d).
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.AvgPool2d.html> (`count_include_pad=True`)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvgPool2d {
    /// Height and width of a window.
    pub kernel: [usize; 2],
    /// Steps between windows, down and across.
    pub stride: [usize; 2],
    /// Rows added above and below, columns added left and right.
    pub padding: [usize; 2],
}

impl AvgPool2d {
    fn windows(&self) -> Windows {
        Windows { kernel: self.kernel, stride: self.stride, padding: self.padding }
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, width) = (call.input(0), call.shape(0)[3]);
        let windows = self.windows().each(&call.input_descs[0].shape, &call.output_descs[0].shape);
        let elements = T::from_f64((self.kernel[0] * self.kernel[1]) as f64);
        for (y, (plane, rows, columns)) in call.output(0).iter_mut().zip(windows) {
            let row = |h: usize| &input[plane + h * width..][columns.clone()];
            *y = sum(rows.flat_map(row).copied()) / elements;
        }
    }
}

impl Op for AvgPool2d {
    fn name(&self) -> &'static str {
        "avg_pool2d"
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
        vec![self.windows().forward("avg_pool2d", bindings, input, output)]
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

/// `grad_input[n, c, h, w] = Σ grad_output / (KH · KW)` over the windows that cover (h, w); input `grad_output`.
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
        vec![self.windows.grad_input("avg_pool2d", bindings, &self.shape, &inputs[0].shape)]
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
        let windows = self.windows.each(&self.shape, &call.input_descs[0].shape);
        let elements = T::from_f64((self.windows.kernel[0] * self.windows.kernel[1]) as f64);
        let width = self.shape[3];
        let mut sums = Sums::new(call.output_descs[0].numel());
        for ((plane, rows, columns), &g) in windows.zip(grad_output) {
            for h in rows {
                columns.clone().for_each(|w| sums.add(plane + h * width + w, g / elements));
            }
        }
        sums.write(call.output(0));
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    windows::cases(Fill::Normal, |Windows { kernel, stride, padding }| AvgPool2d { kernel, stride, padding })
}
