//! Products of very few rows, where packing B would take longer than the sums: the terms of both factors lie beside one another,
//! and vectors are made of terms.

use super::{Factor, Offsets, Start};
use crate::native::{Block, Kernel, Simd};

/// Most rows.
const MOST_ROWS: usize = 3;
/// Columns whose sums are made at once.
const COLUMNS: usize = 4;
/// Most lanes of a vector.
const LANES: usize = 16;

/// Whether a product of so many rows is made so.
pub(super) fn are_made_of(m: usize, a: &Factor<'_>, b: &Factor<'_>) -> bool {
    let is_along = |factor: &Factor<'_>| matches!(factor.terms, Offsets::Step(1));
    m <= MOST_ROWS && is_along(a) && is_along(b)
}

/// All results of a block.
pub(super) struct Dots<'a, 'b, 'c> {
    pub(super) a: Factor<'a>,
    pub(super) b: Factor<'a>,
    pub(super) terms: usize,
    pub(super) start: Start<'a>,
    pub(super) relu: bool,
    pub(super) to: &'b mut Block<'c>,
}

impl Kernel for Dots<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Dots { a, b, terms, start, relu, to } = self;
        for first in (0..to.columns()).step_by(COLUMNS) {
            for row in 0..to.rows() {
                let x = &a.data[row * a.step..][..terms];
                let results = &mut to.row(row)[first..];
                let mut sums = [0.0; COLUMNS];
                if results.len() >= COLUMNS {
                    let mut columns: [&[f32]; COLUMNS] = [&[]; COLUMNS];
                    for (i, column) in columns.iter_mut().enumerate() {
                        *column = &b.data[(first + i) * b.step..][..terms];
                    }
                    sums = dots(simd, x, columns);
                } else {
                    for (i, sum) in sums.iter_mut().enumerate().take(results.len()) {
                        [*sum] = dots(simd, x, [&b.data[(first + i) * b.step..][..terms]]);
                    }
                }
                for (i, (result, sum)) in results.iter_mut().zip(sums).enumerate() {
                    let sum = match start {
                        Start::Zero => sum,
                        Start::Output | Start::Block => sum + *result,
                        Start::Rows(numbers) => sum + numbers[row],
                        Start::Columns(numbers) => sum + numbers[first + i],
                    };
                    *result = if relu && sum < 0.0 { 0.0 } else { sum };
                }
            }
        }
    }
}

/// The sums of `x` times each column.
#[inline(always)]
fn dots<S: Simd, const N: usize>(simd: S, x: &[f32], columns: [&[f32]; N]) -> [f32; N] {
    let mut sums = [simd.splat(0.0); N];
    for p in (0..x.len()).step_by(S::LANES) {
        let factor = simd.load_part(&x[p..]);
        for i in 0..N {
            sums[i] = simd.mul_add(factor, simd.load_part(&columns[i][p..]), sums[i]);
        }
    }
    let mut results = [0.0; N];
    for i in 0..N {
        let mut lanes = [0.0; LANES];
        simd.store(&mut lanes, sums[i]);
        for half in [8, 4, 2, 1] {
            for lane in 0..half {
                lanes[lane] += lanes[lane + half];
            }
        }
        results[i] = lanes[0];
    }
    results
}
