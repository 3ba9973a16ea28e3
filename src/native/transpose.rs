//! Swapping rows and columns, in squares that fit into registers.

use super::{Kernel, Level, Simd};

/// Elements of the largest square.
const SQUARE: usize = 256;

/// `to[j, i] = from[i, j]`, where rows are so far apart.
pub(crate) fn transpose(
    level: Level,
    rows: usize,
    columns: usize,
    from: &[f32],
    from_stride: usize,
    to: &mut [f32],
    to_stride: usize,
) {
    level.run(Transpose { rows, columns, from, from_stride, to, to_stride });
}

struct Transpose<'a> {
    rows: usize,
    columns: usize,
    from: &'a [f32],
    from_stride: usize,
    to: &'a mut [f32],
    to_stride: usize,
}

impl Kernel for Transpose<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Transpose { rows, columns, from, from_stride, to, to_stride } = self;
        // Along the rows first: reading from memory is what takes time.
        for row in (0..rows).step_by(S::LANES) {
            for column in (0..columns).step_by(S::LANES) {
                let from = &from[row * from_stride + column..];
                let to = &mut to[column * to_stride + row..];
                let (high, wide) = ((rows - row).min(S::LANES), (columns - column).min(S::LANES));
                if high == S::LANES && wide == S::LANES {
                    simd.transpose(from, from_stride, to, to_stride);
                } else {
                    edge(simd, [high, wide], from, from_stride, to, to_stride);
                }
            }
        }
    }
}

/// A square at the edge, of fewer rows or columns.
#[inline(always)]
fn edge<S: Simd>(
    simd: S,
    [rows, columns]: [usize; 2],
    from: &[f32],
    from_stride: usize,
    to: &mut [f32],
    to_stride: usize,
) {
    let (mut square, mut swapped) = ([0.0; SQUARE], [0.0; SQUARE]);
    for row in 0..rows {
        let from = &from[row * from_stride..];
        simd.store(&mut square[row * S::LANES..], simd.load_part(&from[..columns]));
    }
    simd.transpose(&square, S::LANES, &mut swapped, S::LANES);
    for column in 0..columns {
        let to = &mut to[column * to_stride..];
        simd.store_part(&mut to[..rows], simd.load(&swapped[column * S::LANES..]));
    }
}
