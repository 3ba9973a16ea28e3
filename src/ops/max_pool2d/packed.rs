//! Where the largest of each window is, in a few bits.

use crate::error::OpError;
use crate::ops::pool::Windows;
use crate::ops::{Call, Cost, Dispatch, Op, Real, Slot, expect_count};
use crate::shader::Target;
use crate::tensor::{Shape, TensorDesc};

/// How positions lie in words: that of output element `i` is in word ⌊i / N⌋, `N` to a word, the first in the lowest bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packing {
    windows: Windows,
    bits: usize,
}

impl Packing {
    /// `None` where a window has too many elements.
    pub(super) fn of(windows: Windows) -> Option<Packing> {
        match windows.kernel[0] * windows.kernel[1] {
            ..=16 => Some(Packing { windows, bits: 4 }),
            17..=256 => Some(Packing { windows, bits: 8 }),
            _ => None,
        }
    }

    fn per_word(self) -> usize {
        32 / self.bits
    }
}

/// From the index of the pooling, [N, C, OH, OW]: the position of each in its window, row · KW + column, packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaxPool2dPack {
    pub(super) packing: Packing,
    /// Extents of the input of the pooling, rows and columns.
    pub(super) extent: [usize; 2],
}

impl Op for MaxPool2dPack {
    fn name(&self) -> &'static str {
        "max_pool2d.pack"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("max_pool2d.pack", inputs, 1)?;
        Ok(vec![TensorDesc::u32([inputs[0].numel().div_ceil(self.packing.per_word())])])
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let index = &inputs[0].shape;
        let input = Shape::from([index[0], index[1], self.extent[0], self.extent[1]]);
        let bindings = [Slot::Input(0), Slot::Output(0)];
        let kernel = ("max_pool2d", "pack");
        let dispatch = self.packing.windows.dispatch(kernel, bindings, index.numel(), &input, index);
        vec![
            dispatch
                .constant("POSITION_BITS", self.packing.bits as u32)
                .linear(outputs[0].numel().div_ceil(64))
                .loops(self.packing.per_word()),
        ]
    }

    twin!();
}

impl MaxPool2dPack {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let Packing { windows, bits } = self.packing;
        let index = call.ints(0);
        let (output, width) = (&call.input_descs[0].shape, self.extent[1]);
        let position = |i: usize| {
            let at = index[i] as usize;
            let [row, column] = windows.origin(i, output);
            let inside = [at / width + windows.padding[0] - row, at % width + windows.padding[1] - column];
            (inside[0] * windows.kernel[1] + inside[1]) as u32
        };
        let per_word = self.packing.per_word();
        for (w, word) in call.output_ints(0).iter_mut().enumerate() {
            let elements = w * per_word..((w + 1) * per_word).min(index.len());
            *word = elements.enumerate().fold(0, |word, (slot, i)| word | position(i) << (slot * bits));
        }
    }
}

/// As the gradient from the index; inputs `packed positions, grad_output`.
#[derive(Clone, Debug)]
pub(super) struct MaxPool2dGradInputPacked {
    pub(super) packing: Packing,
    /// Shape of the input of the pooling.
    pub(super) shape: Shape,
}

impl Op for MaxPool2dGradInputPacked {
    fn name(&self) -> &'static str {
        "max_pool2d.grad_input_packed"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("max_pool2d.grad_input_packed", inputs, 2)?;
        Ok(vec![TensorDesc::f32(self.shape.clone())])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let bytes_moved = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum();
        Cost { flops: outputs[0].numel() as u64, bytes_moved }
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Output(0)];
        let kernel = ("max_pool2d", "grad_input_packed");
        let dispatch =
            self.packing.windows.dispatch(kernel, bindings, self.shape.numel(), &self.shape, &inputs[1].shape);
        vec![dispatch.constant("POSITION_BITS", self.packing.bits as u32)]
    }

    twin!();
}

impl MaxPool2dGradInputPacked {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let Packing { windows, bits } = self.packing;
        let (packed, grad_output) = (call.ints(0), call.input(1));
        let (height, width) = (self.shape[2], self.shape[3]);
        let output = &call.input_descs[1].shape;
        let (per_word, plane) = (self.packing.per_word(), output[2] * output[3]);
        let grad_input = call.output(0);
        grad_input.fill(T::ZERO);
        for (i, &g) in grad_output.iter().enumerate() {
            let position = (packed[i / per_word] >> (i % per_word * bits)) as usize & ((1 << bits) - 1);
            let [row, column] = windows.origin(i, output);
            let h = row + position / windows.kernel[1] - windows.padding[0];
            let w = column + position % windows.kernel[1] - windows.padding[1];
            grad_input[(i / plane * height + h) * width + w] += g;
        }
    }
}
