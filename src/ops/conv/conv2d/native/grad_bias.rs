//! The gradient of the bias: the sum of all pixels of each channel.

use crate::native::{Cores, long_sum};

/// Sums planes `[samples][channels][plane]` of each channel.
pub(in crate::ops) fn grad_bias(cores: &Cores, channels: usize, plane: usize, grad_output: &[f32], output: &mut [f32]) {
    let mut tasks: Vec<_> = output.iter_mut().enumerate().collect();
    cores.each(&mut tasks, |_, (channel, total)| {
        let planes = grad_output.chunks_exact(plane).skip(*channel).step_by(channels);
        **total = planes.map(|plane| long_sum(cores.level(), plane)).sum::<f64>() as f32;
    });
}
