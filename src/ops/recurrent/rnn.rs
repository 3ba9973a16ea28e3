//! Simple recurrent units over a time axis.

use crate::ops::onnx;
use crate::ops::recurrent::cell::{Cell, Recurrent, cases as all_cases};
use crate::ops::{Case, Real};

/// For each time step t: `hₜ = tanh(W_ih xₜ + b_ih + W_hh hₜ₋₁ + b_hh)`
///
/// | tensor | shape |
/// |---|---|
/// | input x | `[B, T, I]` (batch first) |
/// | weight_ih, weight_hh | `[H, I]`, `[H, H]` |
/// | bias_ih, bias_hh | `[H]` |
/// | h0, where `has_initial`; else zeros | `[B, H]` |
/// | lengths, where [`lengths`](Recurrent::lengths) says so; else all are T | `[B]`, u32 |
/// | output 0: hₜ of all steps | `[B, T, H]` |
/// | output 1: the last h | `[B, H]` |
/// | output 2: hₜ again, and zeros | `[B, T, 4H]`; compressed, `[B, C, 4H]` |
///
/// **Saved for backward:** input, weights and outputs 0, 2: `B·T·(I + 5H)` numbers. Compressed, not output 2, which then is
/// scratch for C steps (about √T, but at least 512 / B), but the biases: `B·T·(I + H)` numbers; backward computes the states
/// again, C steps at a time.
/// Output 2 gets no gradient. **In place:** no.
/// **Numerics:** products in f32. A step is one or two launches, see `shaders/shared/recurrent_tile.wgsl`. Backward adds
/// up the gradients of weights and biases in the same order, last chunk first, in both forms.
///
/// # Errors
/// Where shapes do not fit, an extent is 0 or an input has another type; backward, where output 2 gets a gradient.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.RNN.html>
pub type Rnn = Recurrent<RnnCell>;

/// What an [`Rnn`] does at a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RnnCell;

impl Cell for RnnCell {
    const NAME: &'static str = "rnn";
    const BACKWARD: &'static str = "rnn.backward";
    const INNER: &'static str = "rnn (for what it keeps)";
    const GATES: usize = 1;
    const FORGET_GATE: Option<usize> = None;
    const STATES: &'static [&'static str] = &["h0"];
    const APART: bool = false;

    fn in_onnx() -> Option<onnx::RecurrentOperator> {
        Some(("RNN", &[0], Vec::new()))
    }

    #[inline(always)]
    fn gates<T: Real>([input, ..]: [T; 4], [hidden, ..]: [T; 4]) -> [T; 4] {
        [(input + hidden).tanh(), T::ZERO, T::ZERO, T::ZERO]
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
        ([[grad * (T::ONE - now * now), T::ZERO, T::ZERO, T::ZERO]; 2], [T::ZERO, other])
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    all_cases::<RnnCell>()
}
