//! Simple recurrent units with a ReLU over a time axis.

use crate::ops::onnx;
use crate::ops::recurrent::cell::{Cell, Recurrent, cases as all_cases};
use crate::ops::{Case, Real};

/// For each time step t: `hₜ = max(W_ih xₜ + b_ih + W_hh hₜ₋₁ + b_hh, 0)`
///
/// Tensors, what is saved, numerics and errors are those of [`Rnn`](crate::ops::recurrent::rnn::Rnn). NaN stays NaN.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.RNN.html> (`nonlinearity="relu"`)
pub type RnnRelu = Recurrent<RnnReluCell>;

/// What an [`RnnRelu`] does at a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RnnReluCell;

impl Cell for RnnReluCell {
    const NAME: &'static str = "rnn_relu";
    const BACKWARD: &'static str = "rnn_relu.backward";
    const INNER: &'static str = "rnn_relu (for what it keeps)";
    const GATES: usize = 1;
    const FORGET_GATE: Option<usize> = None;
    const STATES: &'static [&'static str] = &["h0"];
    const APART: bool = false;

    fn in_onnx() -> Option<onnx::RecurrentOperator> {
        Some(("RNN", &[0], vec![("activations", onnx::Attribute::Texts(vec!["Relu"]))]))
    }

    #[inline(always)]
    fn gates<T: Real>([input, ..]: [T; 4], [hidden, ..]: [T; 4]) -> [T; 4] {
        let sum = input + hidden;
        [if sum < T::ZERO { T::ZERO } else { sum }, T::ZERO, T::ZERO, T::ZERO]
    }

    #[inline(always)]
    fn step<T: Real>([now, ..]: [T; 4], [_, other]: [T; 2]) -> [T; 2] {
        [now, other]
    }

    #[inline(always)]
    fn step_back<T: Real>(
        [now, ..]: [T; 4],
        _earlier: [T; 2],
        _now: [T; 2],
        [grad, other]: [T; 2],
    ) -> ([[T; 4]; 2], [T; 2]) {
        let d = if now > T::ZERO { grad } else { T::ZERO };
        ([[d, T::ZERO, T::ZERO, T::ZERO]; 2], [T::ZERO, other])
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    all_cases::<RnnReluCell>()
}
