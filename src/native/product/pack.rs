//! Panels of a factor, copied to where the tile reads them best.

use super::Factor;
use crate::native::{Kernel, Level, Offsets, Simd, transpose};

impl Factor<'_> {
    /// Copies so many terms of so many columns to rows of `stride` numbers. What is behind the columns in a row is undefined.
    pub(super) fn pack(self, level: Level, terms: usize, columns: usize, to: &mut [f32], stride: usize) {
        let Factor { data, terms: offsets, step, .. } = self;
        match offsets {
            _ if step == 1 => level.run(Rows { data, offsets, terms, columns, to, stride }),
            Offsets::Step(1) => transpose(level, columns, terms, data, step, to, stride),
            _ => {
                for (term, row) in to.chunks_mut(stride).take(terms).enumerate() {
                    let at = offsets.at(term);
                    row.iter_mut().take(columns).enumerate().for_each(|(i, to)| *to = data[at + i * step]);
                }
            }
        }
    }
}

/// Copies rows.
struct Rows<'a> {
    data: &'a [f32],
    offsets: Offsets<'a>,
    terms: usize,
    columns: usize,
    to: &'a mut [f32],
    stride: usize,
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Rows { data, offsets, terms, columns, to, stride } = self;
        for (term, to) in to.chunks_mut(stride).take(terms).enumerate() {
            let from = &data[offsets.at(term)..][..columns];
            for (from, to) in from.chunks(S::LANES).zip(to.chunks_mut(S::LANES)) {
                simd.store_part(to, simd.load_part(from));
            }
        }
    }
}
