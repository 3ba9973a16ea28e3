//! What is put around what is convolved or pooled.

use serde::{Deserialize, Serialize};

use super::Scope;
use super::sizes::{Extents, Sides};
use crate::error::GraphError;

/// `S` is a size along each axis, `P` a pair of numbers for each: before and after.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a size, like 1 or [1, 2], a pair for each axis, like [[0, 1], [0, 1]], or \"same\", \"same_upper\", \
                 \"same_lower\" or \"valid\""
)]
pub(super) enum Padding<S, P> {
    Size(S),
    Sides(P),
    Word(Word),
}

/// Padding that follows from the window, and of which the output's size follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// None.
    Valid,
    /// As much as keeps the size where the stride is 1: PyTorch's "same".
    Same,
    /// As much as makes the output as large as the input divided by the stride, rounded up: Keras's "same". An odd one is behind.
    SameUpper,
    /// The same with an odd one before.
    SameLower,
}

/// A window along an axis of so many elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) input: usize,
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) dilation: usize,
}

impl Window {
    /// From the first to the last element of a window.
    pub(super) fn reach(self) -> usize {
        self.dilation * (self.kernel - 1) + 1
    }
}

impl Word {
    /// What is missing in all is divided between the two sides.
    fn divide(self, total: usize) -> (usize, usize) {
        let (less, more) = (total / 2, total - total / 2);
        if self == Word::SameLower { (more, less) } else { (less, more) }
    }

    fn sides(self, window: Window) -> (usize, usize) {
        match self {
            Word::Valid => (0, 0),
            Word::Same => self.divide(window.reach() - 1),
            Word::SameUpper | Word::SameLower => {
                let outputs = window.input.div_ceil(window.stride).max(1);
                self.divide(((outputs - 1) * window.stride + window.reach()).saturating_sub(window.input))
            }
        }
    }

    /// Of a transposed convolution whose output is the input times the stride: what is cut off before and after the axis, and what
    /// is added behind.
    pub(super) fn transposed(self, window: Window, output_padding: usize) -> (usize, usize, usize) {
        let (reach, stride) = (window.reach(), window.stride);
        match self {
            Word::Valid => (0, 0, output_padding),
            _ if reach + output_padding >= stride => {
                let (before, after) = self.divide(reach + output_padding - stride);
                (before, after, output_padding)
            }
            _ => (0, 0, stride - reach),
        }
    }
}

impl<S, P> Padding<S, P> {
    /// Before and after each axis.
    pub(super) fn sides<const N: usize>(self, windows: [Window; N]) -> [(usize, usize); N]
    where
        S: Extents<N>,
        P: Sides<N>,
    {
        match self {
            Padding::Size(size) => size.extents().map(|n| (n, n)),
            Padding::Sides(sides) => sides.sides(),
            Padding::Word(word) => windows.map(|window| word.sides(window)),
        }
    }
}

/// What an op takes as padding and padding at the end, which it needs only where it differs.
pub(super) fn for_op([rows, columns]: [(usize, usize); 2]) -> ((usize, usize), Option<(usize, usize)>) {
    let (start, end) = ((rows.0, columns.0), (rows.1, columns.1));
    (start, (end != start).then_some(end))
}

/// Refuses numbers of zeros that no image has.
pub(super) fn check(scope: &Scope<'_>, sides: &[(usize, usize)]) -> Result<(), GraphError> {
    sides.iter().try_for_each(|&sides| scope.check_pair("padding", sides.into(), 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(input: usize, kernel: usize, stride: usize, dilation: usize) -> Window {
        Window { input, kernel, stride, dilation }
    }

    #[test]
    fn words_are_those_of_pytorch_keras_and_onnx() {
        for (word, of, expected) in [
            (Word::Same, window(9, 3, 1, 1), (1, 1)),
            (Word::Same, window(9, 3, 2, 2), (2, 2)),
            (Word::Same, window(9, 4, 1, 1), (1, 2)),
            (Word::SameUpper, window(9, 4, 1, 1), (1, 2)),
            (Word::SameLower, window(9, 4, 1, 1), (2, 1)),
            (Word::SameUpper, window(8, 3, 2, 1), (0, 1)),
            (Word::SameLower, window(8, 3, 2, 1), (1, 0)),
            (Word::SameUpper, window(9, 3, 2, 1), (1, 1)),
            (Word::SameUpper, window(224, 7, 2, 1), (2, 3)),
            (Word::SameUpper, window(10, 3, 1, 4), (4, 4)),
            (Word::SameUpper, window(6, 2, 4, 1), (0, 0)),
            (Word::Valid, window(6, 2, 4, 1), (0, 0)),
        ] {
            assert_eq!(word.sides(of), expected, "{word:?} of {of:?}");
        }
    }

    #[test]
    fn outputs_are_the_inputs_divided_by_the_stride() {
        for input in 1..20 {
            for (kernel, stride, dilation) in [(1, 1, 1), (2, 1, 1), (3, 2, 1), (2, 3, 2), (5, 4, 3), (1, 7, 1)] {
                for word in [Word::SameUpper, Word::SameLower] {
                    let window = window(input, kernel, stride, dilation);
                    let (before, after) = word.sides(window);
                    let outputs = (input + before + after - window.reach()) / stride + 1;
                    assert_eq!(outputs, input.div_ceil(stride), "{word:?} of {window:?}");
                    let (before, after, more) = word.transposed(window, 0);
                    assert_eq!((input - 1) * stride + window.reach() + more, input * stride + before + after);
                    assert!(more < stride);
                }
            }
        }
    }
}
