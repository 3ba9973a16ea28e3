//! The loops of softmax and log-softmax: over rows of neighbours with sums in lanes, or over rows side by side, each of which is
//! a column.

use super::Rows;
use crate::native::lanes::{LANES, lanes_of, larger, largest, total};
use crate::native::{Block, Fast, Kernel, Simd};
use crate::ops::place::{PIECE, View, parts};

/// Terms of a row that are added in f32, and rows of a column.
const BLOCK: usize = 4096;
const ROWS: usize = 256;

#[inline(always)]
pub(in crate::ops) fn exp(x: f32) -> f32 {
    Fast(x).exp().0
}

/// `Σ exp(x − largest)`, of a run.
#[inline(always)]
pub(in crate::ops) fn sum_exp(x: &[f32], largest: f32) -> f32 {
    let mut sum = 0.0;
    for x in x.chunks(BLOCK) {
        let mut lanes = [0.0; LANES];
        let mut whole = x.chunks_exact(LANES);
        for x in &mut whole {
            for i in 0..LANES {
                lanes[i] += exp(x[i] - largest);
            }
        }
        if !whole.remainder().is_empty() {
            let x = lanes_of(whole.remainder(), f32::NEG_INFINITY);
            for i in 0..LANES {
                lanes[i] += exp(x[i] - largest);
            }
        }
        sum += f64::from(total(lanes));
    }
    sum as f32
}

/// The same, where the exponentials take the place of the elements.
#[inline(always)]
pub(in crate::ops) fn become_exp(x: &mut [f32], largest: f32) -> f32 {
    let mut sum = 0.0;
    for x in x.chunks_mut(BLOCK) {
        let mut lanes = [0.0; LANES];
        let mut whole = x.chunks_exact_mut(LANES);
        for x in &mut whole {
            for i in 0..LANES {
                x[i] = exp(x[i] - largest);
                lanes[i] += x[i];
            }
        }
        let rest = whole.into_remainder();
        if !rest.is_empty() {
            let mut x = lanes_of(rest, f32::NEG_INFINITY);
            for i in 0..LANES {
                x[i] = exp(x[i] - largest);
                lanes[i] += x[i];
            }
            for (rest, x) in rest.iter_mut().zip(&x) {
                *rest = *x;
            }
        }
        sum += f64::from(total(lanes));
    }
    sum as f32
}

/// Makes rows of neighbours of what they hold.
pub(super) struct Forward<'a> {
    pub(super) rows: &'a mut [f32],
    /// Of which tensor, and the number of the first.
    pub(super) of: Rows,
    pub(super) first: usize,
    pub(super) log: bool,
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (number, row) in self.rows.chunks_exact_mut(self.of.extent).enumerate() {
            let (row, hidden) = row.split_at_mut(self.of.visible(self.first + number));
            let largest = largest(simd, row);
            if self.log {
                let ln = Fast(sum_exp(row, largest)).ln().0;
                for x in row {
                    *x = (*x - largest) - ln;
                }
            } else {
                let share = 1.0 / become_exp(row, largest);
                for x in row {
                    *x *= share;
                }
            }
            hidden.fill(0.0);
        }
    }
}

/// Makes columns of a block.
pub(super) struct ForwardColumns<'a> {
    /// The input from the first column's first element on, if it does not lie in the block.
    pub(super) x: Option<&'a [f32]>,
    pub(super) block: Block<'a>,
    pub(super) log: bool,
}

impl Kernel for ForwardColumns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        if self.log { self.columns::<true>() } else { self.columns::<false>() }
    }
}

impl ForwardColumns<'_> {
    #[inline(always)]
    fn columns<const LOG: bool>(mut self) {
        let (rows, columns) = (self.block.rows(), self.block.columns());
        let mut largest = [f32::NEG_INFINITY; PIECE];
        let mut sums = [0.0; PIECE];
        let (largest, sums) = (&mut largest[..columns], &mut sums[..columns]);
        let stride = self.block.stride();
        for row in 0..rows {
            let output = self.block.row(row);
            if let Some(x) = self.x {
                output.copy_from_slice(&x[row * stride..][..columns]);
            }
            for (largest, &x) in largest.iter_mut().zip(&*output) {
                *largest = larger(*largest, x);
            }
        }
        let mut terms = [0.0; PIECE];
        let terms = &mut terms[..columns];
        for rows in parts(0..rows, ROWS) {
            terms.fill(0.0);
            for row in rows {
                let output = self.block.row(row);
                for ((x, largest), term) in output.iter_mut().zip(&*largest).zip(&mut *terms) {
                    *x -= *largest;
                    let e = exp(*x);
                    if !LOG {
                        *x = e;
                    }
                    *term += e;
                }
            }
            for (sum, term) in sums.iter_mut().zip(&*terms) {
                *sum += *term;
            }
        }
        for sum in &mut *sums {
            *sum = if LOG { Fast(*sum).ln().0 } else { 1.0 / *sum };
        }
        for row in 0..rows {
            let output = self.block.row(row);
            for (x, sum) in output.iter_mut().zip(&*sums) {
                *x = if LOG { *x - sum } else { *x * sum };
            }
        }
    }
}

/// What each element of the gradient is a sum of.
#[inline(always)]
fn weighted<const LOG: bool>(y: f32, g: f32) -> f32 {
    if LOG { g } else { g * y }
}

#[inline(always)]
fn gradient<const LOG: bool>(y: f32, g: f32, sum: f32) -> f32 {
    if LOG { g - exp(y) * sum } else { y * (g - sum) }
}

/// Sums over each row: of the gradient, or of the gradient times the output.
pub(super) struct GradientSums<'a> {
    pub(super) y: &'a [f32],
    pub(super) g: &'a [f32],
    pub(super) extent: usize,
    pub(super) log: bool,
    pub(super) sums: &'a mut [f32],
}

impl Kernel for GradientSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let rows = self.y.chunks_exact(self.extent).zip(self.g.chunks_exact(self.extent));
        for ((y, g), sum) in rows.zip(self.sums) {
            *sum = if self.log { row_sum::<true>(y, g) } else { row_sum::<false>(y, g) };
        }
    }
}

#[inline(always)]
fn row_sum<const LOG: bool>(y: &[f32], g: &[f32]) -> f32 {
    let mut sum = 0.0;
    for (y, g) in y.chunks(BLOCK).zip(g.chunks(BLOCK)) {
        let [mut fold, mut odd] = [[0.0; LANES]; 2];
        let (mut whole, mut whole_g) = (y.chunks_exact(2 * LANES), g.chunks_exact(2 * LANES));
        for (y, g) in (&mut whole).zip(&mut whole_g) {
            for i in 0..LANES {
                fold[i] += weighted::<LOG>(y[i], g[i]);
            }
            for i in 0..LANES {
                odd[i] += weighted::<LOG>(y[LANES + i], g[LANES + i]);
            }
        }
        for i in 0..LANES {
            fold[i] += odd[i];
        }
        for (y, g) in whole.remainder().chunks(LANES).zip(whole_g.remainder().chunks(LANES)) {
            let (y, g) = (lanes_of(y, 0.0), lanes_of(g, 0.0));
            for i in 0..LANES {
                fold[i] += weighted::<LOG>(y[i], g[i]);
            }
        }
        sum += f64::from(total(fold));
    }
    sum as f32
}

/// Makes a piece of the gradient, whose first element is number `start` of rows that have these sums.
pub(super) struct Gradient<'a> {
    pub(super) y: &'a [f32],
    pub(super) g: &'a [f32],
    pub(super) start: usize,
    pub(super) extent: usize,
    pub(super) log: bool,
    pub(super) sums: &'a [f32],
    pub(super) output: &'a mut [f32],
}

impl Kernel for Gradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let (mut row, mut first, mut at) = (self.start / self.extent, self.start % self.extent, 0);
        while at < self.output.len() {
            let length = (self.extent - first).min(self.output.len() - at);
            let (y, g, output) =
                (&self.y[at..at + length], &self.g[at..at + length], &mut self.output[at..at + length]);
            let sum = self.sums[row];
            if self.log {
                for ((d, &y), &g) in output.iter_mut().zip(y).zip(g) {
                    *d = gradient::<true>(y, g, sum);
                }
            } else {
                for ((d, &y), &g) in output.iter_mut().zip(y).zip(g) {
                    *d = gradient::<false>(y, g, sum);
                }
            }
            (row, first, at) = (row + 1, 0, at + length);
        }
    }
}

/// The same sums over each column.
pub(super) struct ColumnSums<'a> {
    pub(super) y: View<'a>,
    pub(super) g: View<'a>,
    pub(super) rows: usize,
    pub(super) log: bool,
    pub(super) sums: &'a mut [f32],
}

impl Kernel for ColumnSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let mut terms = [0.0; PIECE];
        let terms = &mut terms[..self.sums.len()];
        let columns = 0..self.sums.len();
        self.sums.fill(0.0);
        for rows in parts(0..self.rows, ROWS) {
            terms.fill(0.0);
            for row in rows {
                let [[y], [g]] = [self.y.rows::<1>(row, &columns), self.g.rows::<1>(row, &columns)];
                if self.log {
                    for (term, &g) in terms.iter_mut().zip(g) {
                        *term += g;
                    }
                } else {
                    for ((term, &y), &g) in terms.iter_mut().zip(y).zip(g) {
                        *term += g * y;
                    }
                }
            }
            for (sum, term) in self.sums.iter_mut().zip(&*terms) {
                *sum += *term;
            }
        }
    }
}

/// Makes a row of the gradients of columns.
pub(super) struct ColumnGradient<'a> {
    pub(super) y: &'a [f32],
    pub(super) g: &'a [f32],
    pub(super) log: bool,
    pub(super) sums: &'a [f32],
    pub(super) output: &'a mut [f32],
}

impl Kernel for ColumnGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let elements = self.output.iter_mut().zip(self.y).zip(self.g).zip(self.sums);
        if self.log {
            for (((d, &y), &g), &sum) in elements {
                *d = gradient::<true>(y, g, sum);
            }
        } else {
            for (((d, &y), &g), &sum) in elements {
                *d = gradient::<false>(y, g, sum);
            }
        }
    }
}
