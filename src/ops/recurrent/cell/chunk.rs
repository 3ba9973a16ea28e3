//! Time steps in chunks: gates, or their gradients, are in memory for one chunk at a time.

use crate::ops::Slot;
use crate::ops::matmul::gemm::{Gemm, Matrix};

/// Rows of a chunk: with fewer, the sums that make the gradients of weights are short against reading and writing these.
const ROWS: usize = 512;

/// Steps of a chunk but the last: as many as there are chunks, about, so that neither a chunk nor their number is large; but
/// enough for so many rows.
pub(super) fn length(batch: usize, time: usize) -> usize {
    time.div_ceil(time.isqrt().max(1)).max(ROWS.div_ceil(batch.max(1))).min(time)
}

/// The steps from `begin` on, `steps` of them, of all samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) batch: usize,
    pub(super) begin: usize,
    pub(super) steps: usize,
}

impl Chunk {
    /// All steps in chunks of this length.
    pub(super) fn all(batch: usize, time: usize, length: usize) -> impl DoubleEndedIterator<Item = Chunk> {
        (0..time.div_ceil(length)).map(move |i| Chunk {
            batch,
            begin: i * length,
            steps: length.min(time - i * length),
        })
    }

    /// The chunk without its first step.
    pub(super) fn but_first(self) -> Chunk {
        Chunk { begin: self.begin + 1, steps: self.steps - 1, ..self }
    }

    pub(super) fn range(self) -> std::ops::Range<usize> {
        self.begin..self.begin + self.steps
    }

    /// Samples and steps, the more numerous first.
    fn counts(self) -> (usize, usize) {
        (self.batch.max(self.steps), self.batch.min(self.steps))
    }

    /// In a tensor `[B, time, width]`: the distance between neighbours of the more numerous of samples and steps, then that of
    /// the others.
    fn strides(self, width: usize, time: usize) -> (usize, usize) {
        if self.batch >= self.steps { (time * width, width) } else { (width, time * width) }
    }

    /// A product with a row for each sample and step.
    pub(super) fn product(self, n: usize, k: usize) -> Gemm {
        let (m, batch) = self.counts();
        Gemm { batch, ..Gemm::new(m, n, k) }
    }

    /// A product whose sum is over samples and steps, of transposed `a`.
    pub(super) fn sum(self, m: usize, n: usize) -> Gemm {
        let (k, outer) = self.counts();
        Gemm { trans_a: true, outer, ..Gemm::new(m, n, k) }
    }

    /// The rows for `product`, from step `first` on of a tensor `[B, time, width]`.
    pub(super) fn rows(self, slot: Slot, width: usize, time: usize, first: usize) -> Matrix {
        let (stride, batch) = self.strides(width, time);
        Matrix { offset: first * width, batch, ..Matrix::new(slot, stride) }
    }

    /// The terms for `sum`, from step `first` on of a tensor `[B, time, width]`.
    pub(super) fn terms(self, slot: Slot, width: usize, time: usize, first: usize) -> Matrix {
        let (stride, outer) = self.strides(width, time);
        Matrix { offset: first * width, outer, ..Matrix::new(slot, stride) }
    }
}
