//! Loops over rows of neighbouring columns, each of which has its own sums or parameters.

use super::kernels::{Affine, Means, gradient, normalize};
use crate::native::lanes::{Number, sum};
use crate::native::{Kernel, Simd};

/// [`normalize`] as a kernel.
pub(super) struct Normalize<'a, S> {
    pub(super) x: &'a [f32],
    pub(super) by: Affine<S, S, S>,
    pub(super) floor: f32,
    pub(super) output: &'a mut [f32],
}

impl<S: Number> Kernel for Normalize<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run<V: Simd>(self, _simd: V) {
        normalize(self.x, self.by, self.floor, self.output);
    }
}

/// [`gradient`] as a kernel.
pub(super) struct Gradient<'a, S> {
    pub(super) x: &'a [f32],
    pub(super) g: &'a [f32],
    pub(super) by: Affine<S, S, S>,
    pub(super) means: Means<S>,
    pub(super) relu: bool,
    pub(super) output: &'a mut [f32],
}

impl<S: Number> Kernel for Gradient<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run<V: Simd>(self, _simd: V) {
        if self.relu {
            gradient::<true, S>((self.x, self.g), self.by, self.means, self.output);
        } else {
            gradient::<false, S>((self.x, self.g), self.by, self.means, self.output);
        }
    }
}

/// Adds the elements of some rows to the sums of their columns.
pub(super) struct ColumnSums<'a, const ROWS: usize> {
    pub(super) rows: [&'a [f32]; ROWS],
    pub(super) sums: &'a mut [f32],
}

impl<const ROWS: usize> Kernel for ColumnSums<'_, ROWS> {
    type Output = ();

    #[inline(always)]
    fn run<V: Simd>(self, _simd: V) {
        let columns = self.sums.len();
        let rows = self.rows.map(|row| &row[..columns]);
        for (i, sum) in self.sums.iter_mut().enumerate() {
            let mut terms = 0.0;
            for row in rows {
                terms += row[i];
            }
            *sum += terms;
        }
    }
}

/// Adds the squares of what elements of some rows are away from the centers of their columns.
pub(super) struct ColumnSquares<'a, const ROWS: usize> {
    pub(super) rows: [&'a [f32]; ROWS],
    pub(super) center: &'a [f32],
    pub(super) sums: &'a mut [f32],
}

impl<const ROWS: usize> Kernel for ColumnSquares<'_, ROWS> {
    type Output = ();

    #[inline(always)]
    fn run<V: Simd>(self, _simd: V) {
        let columns = self.sums.len();
        let center = &self.center[..columns];
        let rows = self.rows.map(|row| &row[..columns]);
        for (i, sum) in self.sums.iter_mut().enumerate() {
            let mut terms = 0.0;
            for row in rows {
                let away = row[i] - center[i];
                terms += away * away;
            }
            *sum += terms;
        }
    }
}

/// Adds the gradients of some rows to sums of their columns, and their products with what elements are away from the mean.
pub(super) struct ColumnGradients<'a, const ROWS: usize> {
    pub(super) x: [&'a [f32]; ROWS],
    pub(super) g: [&'a [f32]; ROWS],
    pub(super) by: Affine<&'a [f32], &'a [f32], &'a [f32]>,
    pub(super) relu: bool,
    pub(super) sums: &'a mut [f32],
    pub(super) products: &'a mut [f32],
}

impl<const ROWS: usize> Kernel for ColumnGradients<'_, ROWS> {
    type Output = ();

    #[inline(always)]
    fn run<V: Simd>(self, _simd: V) {
        if self.relu { self.add::<true>() } else { self.add::<false>() }
    }
}

impl<const ROWS: usize> ColumnGradients<'_, ROWS> {
    #[inline(always)]
    fn add<const RELU: bool>(self) {
        let columns = self.sums.len();
        let (x, g) = (self.x.map(|row| &row[..columns]), self.g.map(|row| &row[..columns]));
        let by = self.by.part(0, columns);
        let (sums, products) = (self.sums, &mut self.products[..columns]);
        for i in 0..columns {
            let (mut sum, mut product) = (0.0, 0.0);
            for row in 0..ROWS {
                let passes = !RELU || by.value(i, x[row][i]) > 0.0;
                let g = if passes { g[row][i] } else { 0.0 };
                sum += g;
                product += g * (x[row][i] - by.mean.at(i));
            }
            sums[i] += sum;
            products[i] += product;
        }
    }
}

/// The sum of each `width` neighbours.
pub(super) struct Fold<'a> {
    pub(super) x: &'a [f32],
    pub(super) width: usize,
    pub(super) sums: &'a mut [f32],
}

impl Kernel for Fold<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Simd>(self, _simd: V) {
        for (x, total) in self.x.chunks(self.width).zip(self.sums) {
            *total = sum(x);
        }
    }
}
