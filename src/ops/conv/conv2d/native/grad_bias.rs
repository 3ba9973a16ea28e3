//! The gradient of the bias: the sum of all pixels of each channel.

use crate::native::{Cores, Kernel, Simd};

/// Lanes of sums, whatever vectors the processor has: sums are the same on all.
const LANES: usize = 64;
/// Pixels that are added up before their sum is added to others.
const BLOCK: usize = 16 << 10;

/// Sums planes `[samples][channels][plane]` of each channel.
pub(in crate::ops) fn grad_bias(cores: &Cores, channels: usize, plane: usize, grad_output: &[f32], output: &mut [f32]) {
    let mut tasks: Vec<_> = output.iter_mut().enumerate().collect();
    cores.each(&mut tasks, |_, (channel, sum)| {
        let planes = grad_output.chunks_exact(plane).skip(*channel).step_by(channels);
        let blocks = planes.flat_map(|plane| plane.chunks(BLOCK));
        **sum = blocks.map(|block| f64::from(cores.level().run(Sum(block)))).sum::<f64>() as f32;
    });
}

/// The sum of some numbers.
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
