//! What the loops of normalizations are made of: over runs of neighbours, with sums in lanes, so that they become vectors.

use crate::native::lanes::Number;

/// What elements are normalized by: `(x − mean) · rstd · weight + bias`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Affine<S, W, B> {
    pub(super) mean: S,
    pub(super) rstd: S,
    pub(super) weight: W,
    pub(super) bias: B,
}

impl<S: Number, W: Number, B: Number> Affine<S, W, B> {
    #[inline(always)]
    pub(super) fn part(self, start: usize, length: usize) -> Self {
        Affine {
            mean: self.mean.part(start, length),
            rstd: self.rstd.part(start, length),
            weight: self.weight.part(start, length),
            bias: self.bias.part(start, length),
        }
    }

    /// The normalized element, before weight and bias.
    #[inline(always)]
    pub(super) fn normalized(&self, i: usize, x: f32) -> f32 {
        (x - self.mean.at(i)) * self.rstd.at(i)
    }

    #[inline(always)]
    pub(super) fn value(&self, i: usize, x: f32) -> f32 {
        self.normalized(i, x) * self.weight.at(i) + self.bias.at(i)
    }
}

/// Normalizes a run. Values below the floor become the floor.
#[inline(always)]
pub(super) fn normalize(x: &[f32], by: Affine<impl Number, impl Number, impl Number>, floor: f32, output: &mut [f32]) {
    let by = by.part(0, output.len());
    let x = &x[..output.len()];
    for i in 0..output.len() {
        let y = by.value(i, x[i]);
        output[i] = if y < floor { floor } else { y };
    }
}

/// Means over a group of the gradient, and of the gradient times the normalized element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Means<S> {
    pub(super) gradient: S,
    pub(super) product: S,
}

/// Makes a run of the gradient of the input. With `RELU`, the gradient passes where the output is above 0.
#[inline(always)]
pub(super) fn gradient<const RELU: bool, S: Number>(
    (x, g): (&[f32], &[f32]),
    by: Affine<S, impl Number, impl Number>,
    means: Means<S>,
    output: &mut [f32],
) {
    let length = output.len();
    let by = by.part(0, length);
    let means = Means { gradient: means.gradient.part(0, length), product: means.product.part(0, length) };
    let (x, g) = (&x[..length], &g[..length]);
    for i in 0..length {
        let normalized = by.normalized(i, x[i]);
        let passes = !RELU || by.value(i, x[i]) > 0.0;
        let g = if passes { g[i] } else { 0.0 };
        let weighted = by.weight.at(i) * g;
        output[i] = by.rstd.at(i) * (weighted - means.gradient.at(i) - normalized * means.product.at(i));
    }
}

/// Mean and sum of squares around it, of so many numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moments {
    pub(super) count: f64,
    pub(super) mean: f64,
    pub(super) squares: f64,
}

impl Moments {
    /// Of so many numbers.
    #[inline(always)]
    pub(super) fn new(count: f32, mean: f32, squares: f32) -> Self {
        Moments { count: f64::from(count), mean: f64::from(mean), squares: f64::from(squares) }
    }

    /// Those of both together.
    #[inline(always)]
    pub(super) fn with(self, other: Moments) -> Moments {
        let count = self.count + other.count;
        let away = other.mean - self.mean;
        let share = other.count / count;
        Moments {
            count,
            mean: self.mean + away * share,
            squares: self.squares + other.squares + away * away * self.count * share,
        }
    }

    /// The mean of the squares around the mean.
    #[inline(always)]
    pub(super) fn variance(self) -> f64 {
        self.squares / self.count
    }
}

/// 1 / standard deviation
#[inline(always)]
pub(super) fn rstd(variance: f32, eps: f32) -> f32 {
    1.0 / (variance + eps).sqrt()
}
