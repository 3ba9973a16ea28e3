//! Sums of numbers that lie side by side.

use super::{Kernel, Level, Simd};

/// Sums that are made at once, whatever vectors the processor has.
const LANES: usize = 64;
/// Numbers whose sum is made in f32.
const BLOCK: usize = 16 << 10;

/// The sum of some numbers, the same with all vectors.
pub(crate) fn sum(level: Level, numbers: &[f32]) -> f64 {
    numbers.chunks(BLOCK).map(|block| f64::from(level.run(Sum(block)))).sum()
}

struct Sum<'a>(&'a [f32]);

impl Kernel for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> f32 {
        let mut sums = [0.0; LANES];
        let mut blocks = self.0.chunks_exact(LANES);
        for block in &mut blocks {
            for (sum, x) in sums.iter_mut().zip(block) {
                *sum += x;
            }
        }
        for (sum, x) in sums.iter_mut().zip(blocks.remainder()) {
            *sum += x;
        }
        let mut len = LANES;
        while len > 1 {
            len /= 2;
            for i in 0..len {
                sums[i] += sums[i + len];
            }
        }
        sums[0]
    }
}
