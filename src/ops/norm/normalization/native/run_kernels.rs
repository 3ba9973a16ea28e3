//! Loops over runs of neighbours that are normalized together.

use super::kernels::{Affine, Means, Moments, gradient, normalize, rstd};
use crate::native::lanes::{LANES, Number, squares, sum, total};
use crate::native::{Kernel, Simd};

/// Elements of a run whose sum and squares are made while they are in the first cache.
const BLOCK: usize = 4096;

/// Mean and variance of each of some sets of neighbours; not `centered`, the mean square.
pub(super) struct SetMoments<'a> {
    pub(super) x: &'a [f32],
    pub(super) terms: usize,
    pub(super) centered: bool,
    pub(super) mean: &'a mut [f32],
    pub(super) variance: &'a mut [f32],
}

impl Kernel for SetMoments<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Simd>(self, _simd: V) {
        for (number, set) in self.x.chunks_exact(self.terms).enumerate() {
            let mut moments = Moments::default();
            for block in set.chunks(BLOCK) {
                let count = block.len() as f32;
                let mean = if self.centered { sum(block) / count } else { 0.0 };
                let squares = f64::from(squares(block, mean));
                moments = moments.with(Moments { count: f64::from(count), mean: f64::from(mean), squares });
            }
            if self.centered {
                self.mean[number] = moments.mean as f32;
            }
            self.variance[number] = moments.variance() as f32;
        }
    }
}

/// How a tensor consists of runs of neighbours with parameters of their own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs<'a> {
    /// The number of the first.
    pub(super) first: usize,
    /// Elements of a run.
    pub(super) width: usize,
    /// Neighbouring runs that have their mean and variance in common.
    pub(super) per_set: usize,
    /// Of each set. A mean that there is not is 0, and so is a variance, which then is not used.
    pub(super) mean: Option<&'a [f32]>,
    pub(super) variance: Option<&'a [f32]>,
    pub(super) eps: f32,
    /// Of each element of a run if `per_element`, else of each run, from the first again after the last.
    pub(super) weight: Option<&'a [f32]>,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) per_element: bool,
}

impl Runs<'_> {
    /// Mean and 1 / standard deviation of a run.
    #[inline(always)]
    fn statistics(&self, run: usize) -> (f32, f32) {
        let set = run / self.per_set;
        let number = |data: Option<&[f32]>| match data {
            Some(data) => data[set],
            None => 0.0,
        };
        (number(self.mean), rstd(number(self.variance), self.eps))
    }

    /// Weight and bias of a run that has one of each.
    #[inline(always)]
    pub(super) fn parameters(&self, run: usize) -> (f32, f32) {
        let number = |data: Option<&[f32]>, or: f32| match data {
            Some(data) => data[(self.first + run) % data.len()],
            None => or,
        };
        (number(self.weight, 1.0), number(self.bias, 0.0))
    }
}

/// Normalizes elements of runs, those from `start` on.
pub(super) struct NormalizeRuns<'a> {
    pub(super) runs: Runs<'a>,
    pub(super) start: usize,
    pub(super) x: &'a [f32],
    pub(super) output: &'a mut [f32],
}

impl Kernel for NormalizeRuns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Simd>(self, _simd: V) {
        let Runs { width, weight, bias, per_element, .. } = self.runs;
        let (mut run, mut first, mut at) = (self.start / width, self.start % width, 0);
        while at < self.output.len() {
            let length = (width - first).min(self.output.len() - at);
            let (x, output) = (&self.x[at..at + length], &mut self.output[at..at + length]);
            let (mean, rstd) = self.runs.statistics(run);
            match (weight, bias) {
                (Some(weight), Some(bias)) if per_element => {
                    let (weight, bias) = (weight.part(first, length), bias.part(first, length));
                    normalize(x, Affine { mean, rstd, weight, bias }, f32::NEG_INFINITY, output);
                }
                (Some(weight), None) if per_element => {
                    let weight = weight.part(first, length);
                    normalize(x, Affine { mean, rstd, weight, bias: 0.0 }, f32::NEG_INFINITY, output);
                }
                _ => {
                    let (weight, bias) = self.runs.parameters(run);
                    normalize(x, Affine { mean, rstd, weight, bias }, f32::NEG_INFINITY, output);
                }
            }
            (run, first, at) = (run + 1, 0, at + length);
        }
    }
}

/// Sums over each run of the weighted gradient, and of it times the normalized element; and, where there is room for
/// them, of the gradient and these products over the runs, for each element of a run.
pub(super) struct RunGradients<'a> {
    pub(super) runs: Runs<'a>,
    pub(super) x: &'a [f32],
    pub(super) g: &'a [f32],
    /// Two for each run.
    pub(super) sums: &'a mut [f32],
    /// Two of the width of a run, or none.
    pub(super) columns: Option<(&'a mut [f32], &'a mut [f32])>,
}

impl Kernel for RunGradients<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Simd>(mut self, _simd: V) {
        let width = self.runs.width;
        let weight = self.runs.weight.filter(|_| self.runs.per_element);
        let runs = self.x.chunks_exact(width).zip(self.g.chunks_exact(width));
        for (number, ((x, g), sums)) in runs.zip(self.sums.chunks_exact_mut(2)).enumerate() {
            let (mean, rstd) = self.runs.statistics(number);
            let made = match (weight, &mut self.columns) {
                (Some(weight), Some((sums, products))) => {
                    run_gradients::<true>(x, g, (mean, rstd), weight, sums, products)
                }
                (Some(weight), None) => run_gradients::<false>(x, g, (mean, rstd), weight, &mut [], &mut []),
                (None, Some((sums, products))) => run_gradients::<true>(x, g, (mean, rstd), 1.0, sums, products),
                (None, None) => run_gradients::<false>(x, g, (mean, rstd), 1.0, &mut [], &mut []),
            };
            sums.copy_from_slice(&made);
        }
    }
}

#[inline(always)]
fn run_gradients<const COLUMNS: bool>(
    x: &[f32],
    g: &[f32],
    (mean, rstd): (f32, f32),
    weight: impl Number,
    column_sums: &mut [f32],
    column_products: &mut [f32],
) -> [f32; 2] {
    let length = x.len();
    let (g, weight) = (&g[..length], weight.part(0, length));
    if COLUMNS {
        let (column_sums, column_products) = (&mut column_sums[..length], &mut column_products[..length]);
        for i in 0..length {
            column_sums[i] += g[i];
            column_products[i] += g[i] * ((x[i] - mean) * rstd);
        }
    }
    // A loop of its own, whose sums stay in registers.
    let (mut sums, mut products) = ([0.0; 2 * LANES], [0.0; 2 * LANES]);
    let whole = length / (2 * LANES) * (2 * LANES);
    for at in (0..whole).step_by(2 * LANES) {
        let (x, g, weight) = (&x[at..at + 2 * LANES], &g[at..at + 2 * LANES], weight.part(at, 2 * LANES));
        for i in 0..2 * LANES {
            let weighted = weight.at(i) * g[i];
            sums[i] += weighted;
            products[i] += weighted * ((x[i] - mean) * rstd);
        }
    }
    let (mut sum, mut product) = ([0.0; LANES], [0.0; LANES]);
    for i in 0..LANES {
        sum[i] = sums[i] + sums[i + LANES];
        product[i] = products[i] + products[i + LANES];
    }
    let (mut sum, mut product) = (total(sum), total(product));
    for i in whole..length {
        let weighted = weight.at(i) * g[i];
        sum += weighted;
        product += weighted * ((x[i] - mean) * rstd);
    }
    [sum, product]
}

/// Makes the gradient of the input, of elements from `start` on.
pub(super) struct GradientRuns<'a> {
    pub(super) runs: Runs<'a>,
    /// For each set, means of the weighted gradient and of it times the normalized element.
    pub(super) means: &'a [f32],
    pub(super) start: usize,
    pub(super) x: &'a [f32],
    pub(super) g: &'a [f32],
    pub(super) output: &'a mut [f32],
}

impl Kernel for GradientRuns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Simd>(self, _simd: V) {
        let Runs { width, per_set, weight, per_element, .. } = self.runs;
        let (mut run, mut first, mut at) = (self.start / width, self.start % width, 0);
        while at < self.output.len() {
            let length = (width - first).min(self.output.len() - at);
            let (x, g) = (&self.x[at..at + length], &self.g[at..at + length]);
            let output = &mut self.output[at..at + length];
            let (mean, rstd) = self.runs.statistics(run);
            let set = run / per_set;
            let means = Means { gradient: self.means[2 * set], product: self.means[2 * set + 1] };
            match weight {
                Some(weight) if per_element => {
                    let weight = weight.part(first, length);
                    gradient::<false, f32>((x, g), Affine { mean, rstd, weight, bias: 0.0 }, means, output);
                }
                _ => {
                    let (weight, bias) = self.runs.parameters(run);
                    gradient::<false, f32>((x, g), Affine { mean, rstd, weight, bias }, means, output);
                }
            }
            (run, first, at) = (run + 1, 0, at + length);
        }
    }
}
