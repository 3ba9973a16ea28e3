//! Where the largest of each window is, in a few bits.

use super::{MaxPool2dGradInput, forward, largest};
use crate::error::OpError;
use crate::ops::pool::native::max::Places;
use crate::ops::pool::windows::Windows;
use crate::ops::{Backward, Builder, Call, Cost, Dispatch, Native, Op, Output, Parts, Real, Resources, Slot};
use crate::shader::Target;
use crate::tensor::{Shape, TensorDesc, ValueId};

/// The position of the largest in its window, row · KW + column, of all windows in words: that of window `i` is in word ⌊i / N⌋,
/// `N` to a word, the first in the lowest bits.
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

    /// What native forms write.
    pub(super) fn places(self) -> Places {
        Places::Window(self.bits)
    }

    /// Makes a kernel that takes the index take these words.
    pub(super) fn constant(self, dispatch: Dispatch) -> Dispatch {
        dispatch.constant("POSITION_BITS", self.bits as u32)
    }

    /// From the position in the plane of the largest of window `i`, that in the window. `shapes` are those of input and output.
    fn in_window(self, at: usize, i: usize, shapes: [&Shape; 2]) -> u32 {
        let Windows { kernel, padding, .. } = self.windows;
        let (width, [row, column]) = (shapes[0][3], self.windows.origin(i, shapes[1]));
        ((at / width + padding[0] - row) * kernel[1] + at % width + padding[1] - column) as u32
    }

    /// The position in the plane of the largest of window `i`.
    pub(super) fn in_plane(self, words: &[u32], i: usize, input: &Shape, output: &Shape) -> usize {
        let Windows { kernel, padding, .. } = self.windows;
        let position =
            (words[i / self.per_word()] >> (i % self.per_word() * self.bits)) as usize & ((1 << self.bits) - 1);
        let [row, column] = self.windows.origin(i, output);
        (row + position / kernel[1] - padding[0]) * input[3] + column + position % kernel[1] - padding[1]
    }
}

/// Whether each sample has words of its own.
pub(super) fn has_own_words(index: &TensorDesc) -> bool {
    index.shape.len() > 1
}

/// As [`MaxPool2d`](super::MaxPool2d), with the index packed: u32 `[N, C · OH · OW / per word]`, or `[N · C · OH · OW / per word, rounded up]`
/// where samples share words.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaxPool2dPacked(pub(super) Packing);

impl Op for MaxPool2dPacked {
    fn name(&self) -> &'static str {
        "max_pool2d.packed"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let shape = self.0.windows.output("max_pool2d", inputs)?;
        let (samples, per_word) = (shape[0], self.0.per_word());
        let index = match shape[1..].iter().product::<usize>() {
            // A sample has words of its own.
            windows if windows.is_multiple_of(per_word) => TensorDesc::u32([samples, windows / per_word]),
            _ => TensorDesc::u32([shape.numel().div_ceil(per_word)]),
        };
        Ok(vec![TensorDesc::f32(shape), index])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let shape = graph.desc(forward.inputs[0]).shape.clone();
        let op = MaxPool2dGradInput { windows: self.0.windows, packing: Some(self.0), shape };
        Ok(vec![Some(graph.emit(op, &[forward.outputs[1], grad_output])?)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        self.0.windows.cost(inputs, outputs)
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Output(0), Slot::Output(1)];
        let Windows { kernel: [rows, columns], .. } = self.0.windows;
        let dispatch = self.0.windows.forward("max_pool2d", bindings, &inputs[0].shape, &outputs[0].shape);
        let quads = self.0.per_word() / 4;
        vec![
            self.0.constant(dispatch).linear(outputs[1].numel().div_ceil(64)).loops(quads * (1 + rows * (columns + 1))),
        ]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for MaxPool2dPacked {
    fn parts(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Option<Parts> {
        has_own_words(&outputs[1]).then(|| Parts::samples([true], 2))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        forward(self.0.windows, self.0.places(), call, with);
    }
}

impl MaxPool2dPacked {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let Packing { windows, bits } = self.0;
        let shapes = [&call.input_descs[0].shape, &call.output_descs[0].shape];
        let found = largest(windows, call.input(0), shapes);
        let [Output::Real(output), Output::Int(words)] = &mut call.outputs[..] else {
            panic!("bug: max_pool2d has a real and an integer output");
        };
        words.fill(0);
        for (i, ((largest, at), y)) in found.zip(output.iter_mut()).enumerate() {
            *y = largest;
            words[i / self.0.per_word()] |= self.0.in_window(at, i, shapes) << (i % self.0.per_word() * bits);
        }
    }
}
