//! Gated recurrent units over a time axis.

use crate::ops::elementwise::sigmoid::sigmoid;
use crate::ops::onnx;
use crate::ops::recurrent::cell::{Cell, Recurrent, cases as all_cases};
use crate::ops::{Case, Real};

/// For each time step t, with `[aₜ bₜ cₜ] = W_ih xₜ + b_ih` and `[pₜ qₜ sₜ] = W_hh hₜ₋₁ + b_hh`:
/// `rₜ = σ(aₜ + pₜ)`, `zₜ = σ(bₜ + qₜ)`, `nₜ = tanh(cₜ + rₜ sₜ)`, `hₜ = (1 - zₜ) nₜ + zₜ hₜ₋₁`
///
/// | tensor | shape |
/// |---|---|
/// | input x | `[B, T, I]` (batch first) |
/// | weight_ih, weight_hh | `[3H, I]`, `[3H, H]`; gates in the order r, z, n |
/// | bias_ih, bias_hh | `[3H]` |
/// | h0, where `has_initial`; else zeros | `[B, H]` |
/// | lengths, where [`lengths`](Recurrent::lengths) says so; else all are T | `[B]`, u32 |
/// | output 0: hₜ of all steps | `[B, T, H]` |
/// | output 1: the last h | `[B, H]` |
/// | output 2: r, z, n and s | `[B, T, 4H]`; compressed, `[B, C, 4H]` |
///
/// **Saved for backward:** input, weights and outputs 0, 2: `B·T·(I + 5H)` numbers. Compressed, not output 2, which then is
/// scratch for C steps (about √T, but at least 512 / B), but the biases: `B·T·(I + H)` numbers; backward computes the gates
/// again, C steps at a time.
/// Output 2 gets no gradient. **In place:** no.
/// **Numerics:** products in f32. A step is one or two launches, see `shaders/shared/recurrent_tile.wgsl`. Backward adds
/// up the gradients of weights and biases in the same order, last chunk first, in both forms.
///
/// # Errors
/// Where shapes do not fit, an extent is 0 or an input has another type; backward, where output 2 gets a gradient.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.GRU.html>
pub type Gru = Recurrent<GruCell>;

/// What a [`Gru`] does at a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GruCell;

impl Cell for GruCell {
    const NAME: &'static str = "gru";
    const BACKWARD: &'static str = "gru.backward";
    const INNER: &'static str = "gru (for its gates)";
    const GATES: usize = 3;
    const FORGET_GATE: Option<usize> = None;
    const STATES: &'static [&'static str] = &["h0"];
    const APART: bool = true;

    fn in_onnx() -> Option<onnx::RecurrentOperator> {
        Some(("GRU", &[1, 0, 2], vec![("linear_before_reset", 1.into())]))
    }

    #[inline(always)]
    fn gates<T: Real>([a, b, c, _]: [T; 4], [p, q, s, _]: [T; 4]) -> [T; 4] {
        let r = sigmoid(a + p);
        [r, sigmoid(b + q), (c + r * s).tanh(), s]
    }

    #[inline(always)]
    fn step<T: Real>([_, z, n, _]: [T; 4], [earlier, other]: [T; 2]) -> [T; 2] {
        [(T::ONE - z) * n + z * earlier, other]
    }

    #[inline(always)]
    fn step_back<T: Real>(
        [r, z, n, s]: [T; 4],
        [earlier, _]: [T; 2],
        _now: [T; 2],
        [grad, other]: [T; 2],
    ) -> ([[T; 4]; 2], [T; 2]) {
        let d_n = grad * (T::ONE - z) * (T::ONE - n * n);
        let d_z = grad * (earlier - n) * z * (T::ONE - z);
        let d_r = d_n * s * r * (T::ONE - r);
        ([[d_r, d_z, d_n, T::ZERO], [d_r, d_z, d_n * r, T::ZERO]], [grad * z, other])
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    all_cases::<GruCell>()
}
