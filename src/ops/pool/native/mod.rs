//! What native forms of pooling share.

pub(super) mod average;
pub(super) mod max;
pub(super) mod upsample;

use super::windows::Windows;

impl Windows {
    /// Of the windows of a row, those whose column `k` lies in an input of so many columns, and which input column the first
    /// of them has there.
    #[inline(always)]
    fn meeting(&self, k: usize, width: usize, outputs: usize) -> (std::ops::Range<usize>, usize) {
        let (stride, padding) = (self.stride[1], self.padding[1]);
        let first = padding.saturating_sub(k).div_ceil(stride).min(outputs);
        let end = (width + padding).saturating_sub(k).div_ceil(stride).clamp(first, outputs);
        (first..end, (first * stride + k).saturating_sub(padding))
    }
}

/// Calls `work` with each output and each so many inputs the first.
#[inline(always)]
fn every<const STEP: usize>(inputs: &[f32], outputs: &mut [f32], work: impl Fn(&mut f32, f32)) {
    let Some((last, outputs)) = outputs.split_last_mut() else { return };
    // The last may have no others behind it.
    work(last, inputs[outputs.len() * STEP]);
    for (output, input) in outputs.iter_mut().zip(inputs.as_chunks::<STEP>().0) {
        work(output, input[0]);
    }
}
