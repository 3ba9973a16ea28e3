//! Sums of products and of numbers, in several vectors of lanes.

use super::{Kernel, Level, Simd};

/// The sum of some numbers: of so few that they may be added up in f32.
fn sum(level: Level, x: &[f32]) -> f32 {
    level.run(Sum(x))
}

/// Numbers whose sum is made in f32.
const BLOCK: usize = 16 << 10;

/// The sum of any number of numbers.
pub(crate) fn long_sum(level: Level, x: &[f32]) -> f64 {
    x.chunks(BLOCK).map(|block| f64::from(sum(level, block))).sum()
}

/// The sum of the products of two rows of numbers.
pub(crate) fn dot(level: Level, a: &[f32], b: &[f32]) -> f32 {
    level.run(Dot(a, b))
}

/// See [`sum`].
struct Sum<'a>(&'a [f32]);

/// See [`dot`].
struct Dot<'a>(&'a [f32], &'a [f32]);

/// Vectors of sums that do not wait for each other.
const VECTORS: usize = 4;

/// The sum of all lanes, by halves.
#[inline(always)]
fn total<S: Simd>(simd: S, sums: [S::V; VECTORS]) -> f32 {
    let [a, b, c, d] = sums;
    let mut lanes = [0.0; 16];
    simd.store(&mut lanes, simd.add(simd.add(a, b), simd.add(c, d)));
    let mut width = S::LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

impl Kernel for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        let mut sums = [simd.splat(0.0); VECTORS];
        let mut blocks = self.0.chunks_exact(VECTORS * S::LANES);
        for block in &mut blocks {
            for i in 0..VECTORS {
                sums[i] = simd.add(sums[i], simd.load(&block[i * S::LANES..]));
            }
        }
        for (i, part) in blocks.remainder().chunks(S::LANES).enumerate() {
            sums[i] = simd.add(sums[i], simd.load_part(part));
        }
        total(simd, sums)
    }
}

impl Kernel for Dot<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        let Dot(a, b) = self;
        let b = &b[..a.len()];
        let mut sums = [simd.splat(0.0); VECTORS];
        let step = VECTORS * S::LANES;
        let whole = a.len() / step * step;
        for at in (0..whole).step_by(step) {
            for (i, sum) in sums.iter_mut().enumerate() {
                let at = at + i * S::LANES;
                *sum = simd.mul_add(simd.load(&a[at..]), simd.load(&b[at..]), *sum);
            }
        }
        for (i, (a, b)) in a[whole..].chunks(S::LANES).zip(b[whole..].chunks(S::LANES)).enumerate() {
            sums[i] = simd.mul_add(simd.load_part(a), simd.load_part(b), sums[i]);
        }
        total(simd, sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_any_length_are_right() {
        for level in Level::available() {
            for length in [0, 1, 3, 15, 16, 17, 63, 64, 65, 200] {
                let a: Vec<f32> = (0..length).map(|i| (i % 13) as f32 - 4.0).collect();
                let b: Vec<f32> = (0..length).map(|i| (i % 7) as f32 - 2.0).collect();
                assert_eq!(sum(level, &a), a.iter().sum::<f32>(), "{level}, {length}");
                assert_eq!(dot(level, &a, &b), a.iter().zip(&b).map(|(a, b)| a * b).sum::<f32>(), "{level}, {length}");
            }
        }
    }
}
