//! Convolution on the CPU. The innermost loops run along rows of both images.

use std::ops::Range;

use super::super::Real;
use super::geometry::Geometry;

/// Output positions that meet the input at kernel position `k` along one axis, and the input position of the first.
fn meeting(k: usize, input: usize, output: usize, stride: usize, padding: usize, dilation: usize) -> (Range<usize>, usize) {
    let offset = k * dilation;
    // The least position with position * stride + offset >= padding, and the first with … >= padding + input.
    let first = padding.saturating_sub(offset).div_ceil(stride);
    let end = (padding + input).saturating_sub(offset).div_ceil(stride).min(output);
    let start = if first < end { first * stride + offset - padding } else { 0 };
    (first..end.max(first), start)
}

/// Calls `row` for every pair of rows that meet through a weight: index of the weight, start in the output and in the
/// input, and length.
fn for_each_row(g: &Geometry, mut row: impl FnMut(usize, usize, usize, usize)) {
    for n in 0..g.samples {
        for group in 0..g.groups {
            for o in 0..g.out_channels {
                let o = group * g.out_channels + o;
                for c in 0..g.in_channels {
                    let in_plane = ((n * g.groups + group) * g.in_channels + c) * g.input_plane();
                    let out_plane = (n * g.groups * g.out_channels + o) * g.output_plane();
                    for ky in 0..g.kernel.0 {
                        let (ys, iy) = meeting(ky, g.input.0, g.output.0, g.stride.0, g.padding.0, g.dilation.0);
                        for kx in 0..g.kernel.1 {
                            let (xs, ix) = meeting(kx, g.input.1, g.output.1, g.stride.1, g.padding.1, g.dilation.1);
                            if xs.is_empty() {
                                continue;
                            }
                            let weight = ((o * g.in_channels + c) * g.kernel.0 + ky) * g.kernel.1 + kx;
                            for (i, y) in ys.clone().enumerate() {
                                let output = out_plane + y * g.output.1 + xs.start;
                                let input = in_plane + (iy + i * g.stride.0) * g.input.1 + ix;
                                row(weight, output, input, xs.len());
                            }
                        }
                    }
                }
            }
        }
    }
}

pub(in crate::ops) fn forward<T: Real>(g: &Geometry, input: &[T], weight: &[T], bias: Option<&[T]>, output: &mut [T]) {
    for (i, plane) in output.chunks_exact_mut(g.output_plane()).enumerate() {
        plane.fill(bias.map_or(T::ZERO, |bias| bias[i % bias.len()]));
    }
    let stride = g.stride.1;
    for_each_row(g, |w, at, from, len| {
        let (w, output) = (weight[w], &mut output[at..at + len]);
        if stride == 1 {
            for (y, &x) in output.iter_mut().zip(&input[from..from + len]) {
                *y += w * x;
            }
        } else {
            for (y, &x) in output.iter_mut().zip(input[from..].iter().step_by(stride)) {
                *y += w * x;
            }
        }
    });
}

pub(in crate::ops) fn grad_input<T: Real>(g: &Geometry, weight: &[T], grad_output: &[T], grad_input: &mut [T]) {
    grad_input.fill(T::ZERO);
    let stride = g.stride.1;
    for_each_row(g, |w, at, from, len| {
        let (w, grad_output) = (weight[w], &grad_output[at..at + len]);
        if stride == 1 {
            for (x, &y) in grad_input[from..from + len].iter_mut().zip(grad_output) {
                *x += w * y;
            }
        } else {
            for (x, &y) in grad_input[from..].iter_mut().step_by(stride).zip(grad_output) {
                *x += w * y;
            }
        }
    });
}

pub(in crate::ops) fn grad_weight<T: Real>(g: &Geometry, input: &[T], grad_output: &[T], grad_weight: &mut [T]) {
    grad_weight.fill(T::ZERO);
    let stride = g.stride.1;
    for_each_row(g, |w, at, from, len| {
        let mut sum = T::ZERO;
        for (&y, &x) in grad_output[at..at + len].iter().zip(input[from..].iter().step_by(stride)) {
            sum += y * x;
        }
        grad_weight[w] += sum;
    });
}

pub(in crate::ops) fn grad_bias<T: Real>(channels: usize, plane: usize, grad_output: &[T], grad_bias: &mut [T]) {
    grad_bias.fill(T::ZERO);
    for (i, values) in grad_output.chunks_exact(plane).enumerate() {
        grad_bias[i % channels] += values.iter().copied().sum();
    }
}
