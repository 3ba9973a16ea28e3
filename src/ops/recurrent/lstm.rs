//! Long short-term memory over a time axis.

use crate::ops::elementwise::sigmoid::sigmoid;
use crate::ops::onnx;
use crate::ops::recurrent::cell::{Cell, Recurrent, case, cases as all_cases};
use crate::ops::{Case, Real};

/// For each time step t, with `[iₜ fₜ gₜ oₜ] = W_ih xₜ + b_ih + W_hh hₜ₋₁ + b_hh`:
/// `cₜ = σ(fₜ) cₜ₋₁ + σ(iₜ) tanh(gₜ)`, `hₜ = σ(oₜ) tanh(cₜ)`
///
/// | tensor | shape |
/// |---|---|
/// | input x | `[B, T, I]` (batch first) |
/// | weight_ih, weight_hh | `[4H, I]`, `[4H, H]`; gates in the order i, f, g, o |
/// | bias_ih, bias_hh | `[4H]` |
/// | h0, c0, where `has_initial`; else zeros | `[B, H]` |
/// | lengths, where [`lengths`](Recurrent::lengths) says so; else all are T | `[B]`, u32 |
/// | output 0: hₜ of all steps | `[B, T, H]` |
/// | outputs 1, 2: the last h and c | `[B, H]` |
/// | output 3: cₜ of all steps; output 4: gates after σ and tanh | `[B, T, H]`, `[B, T, 4H]`; compressed, `[B, C, 4H]` |
///
/// **Saved for backward:** input, weights and outputs 0, 3, 4: `B·T·(I + 6H)` numbers. Compressed, not output 4, which then
/// is scratch for C steps (about √T, but at least 512 / B), but the biases: `B·T·(I + 2H)` numbers; backward computes the
/// gates again, C steps at a time. Outputs 3 and 4 get no gradient. **In place:** no.
/// **Numerics:** products in f32. A step is one or two launches, see `shaders/shared/recurrent_tile.wgsl`. Backward adds
/// up the gradients of weights and biases in the same order, last chunk first, in both forms.
///
/// # Errors
/// Where shapes do not fit, an extent is 0 or an input has another type; backward, where outputs 3 or 4 get a gradient.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.LSTM.html>
pub type Lstm = Recurrent<LstmCell>;

/// What an [`Lstm`] does at a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LstmCell;

impl Cell for LstmCell {
    const NAME: &'static str = "lstm";
    const BACKWARD: &'static str = "lstm.backward";
    const INNER: &'static str = "lstm (for its cell states and gates)";
    const GATES: usize = 4;
    const FORGET_GATE: Option<usize> = Some(1);
    const STATES: &'static [&'static str] = &["h0", "c0"];
    const APART: bool = false;

    fn in_onnx() -> Option<onnx::RecurrentOperator> {
        Some(("LSTM", &[0, 3, 1, 2], Vec::new()))
    }

    #[inline(always)]
    fn gates<T: Real>(input: [T; 4], hidden: [T; 4]) -> [T; 4] {
        let sum = |gate: usize| input[gate] + hidden[gate];
        [sigmoid(sum(0)), sigmoid(sum(1)), sum(2).tanh(), sigmoid(sum(3))]
    }

    #[inline(always)]
    fn step<T: Real>([i, f, g, o]: [T; 4], [_, cell]: [T; 2]) -> [T; 2] {
        let cell = f * cell + i * g;
        [o * cell.tanh(), cell]
    }

    #[inline(always)]
    fn step_back<T: Real>(
        [i, f, g, o]: [T; 4],
        [_, earlier]: [T; 2],
        [_, cell]: [T; 2],
        [grad_hidden, grad_cell]: [T; 2],
    ) -> ([[T; 4]; 2], [T; 2]) {
        let squashed = cell.tanh();
        let d_cell = grad_cell + grad_hidden * o * (T::ONE - squashed * squashed);
        let grads = [
            d_cell * g * i * (T::ONE - i),
            d_cell * earlier * f * (T::ONE - f),
            d_cell * i * (T::ONE - g * g),
            grad_hidden * squashed * o * (T::ONE - o),
        ];
        ([grads; 2], [T::ZERO, d_cell * f])
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = all_cases::<LstmCell>();
    cases.push(case("cell", Lstm::new(4), 2, 3, 3));
    cases
}
