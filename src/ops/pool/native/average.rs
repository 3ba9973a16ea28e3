//! Averages of windows.

use super::every;
use crate::native::{Cores, Kernel, Simd, long_sum};
use crate::ops::pool::windows::Windows;
use crate::tensor::Shape;
use std::ops::Range;

/// The average of each window.
pub(in crate::ops::pool) fn forward(
    windows: Windows,
    cores: &Cores,
    shapes: [&Shape; 2],
    input: &[f32],
    output: &mut [f32],
) {
    let (extent, plane) = (shapes[0][2] * shapes[0][3], shapes[1][2] * shapes[1][3]);
    cores.pieces_of(output, plane, LEAST, |start, output| {
        for (i, output) in output.chunks_exact_mut(plane).enumerate() {
            let input = &input[(start / plane + i) * extent..][..extent];
            cores.run(Plane { windows, width: shapes[0][3], outputs: shapes[1][3], input, output });
        }
    });
}

/// The gradient of the input.
pub(in crate::ops::pool) fn backward(
    windows: Windows,
    cores: &Cores,
    shapes: [&Shape; 2],
    grad: &[f32],
    output: &mut [f32],
) {
    let (extent, plane) = (shapes[0][2] * shapes[0][3], shapes[1][2] * shapes[1][3]);
    cores.pieces_of(output, extent, LEAST, |start, output| {
        for (i, output) in output.chunks_exact_mut(extent).enumerate() {
            let grad = &grad[(start / extent + i) * plane..][..plane];
            cores.run(GradPlane { windows, width: shapes[0][3], outputs: shapes[1][3], grad, output });
        }
    });
}

/// Elements of a task at least.
pub(super) const LEAST: usize = 4096;

struct Plane<'a> {
    windows: Windows,
    width: usize,
    outputs: usize,
    input: &'a [f32],
    output: &'a mut [f32],
}

/// Windows of a row that are summed together.
const BLOCK: usize = 256;

impl Kernel for Plane<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Plane { windows, width, outputs, input, output } = self;
        let scale = 1.0 / (windows.kernel[0] * windows.kernel[1]) as f32;
        let height = input.len() / width;
        let are_whole = windows.are_whole(0, height, output.len() / outputs) && windows.are_whole(1, width, outputs);
        for (y, output) in output.chunks_exact_mut(outputs).enumerate() {
            output.fill(0.0);
            for h in windows.covered(0, y, height) {
                let row = &input[h * width..][..width];
                for at in (0..outputs).step_by(BLOCK) {
                    let mut sums = [0.0; BLOCK];
                    let len = (outputs - at).min(BLOCK);
                    for k in 0..windows.kernel[1] {
                        let (xs, first) = windows.meeting(k, width, outputs);
                        let (begin, end) = (xs.start.max(at), xs.end.min(at + len));
                        if begin >= end {
                            continue;
                        }
                        let from = &row[first + (begin - xs.start) * windows.stride[1]..];
                        let sums = &mut sums[begin - at..end - at];
                        match windows.stride[1] {
                            1 => every::<1>(from, sums, |sum, x| *sum += x),
                            2 => every::<2>(from, sums, |sum, x| *sum += x),
                            stride => sums.iter_mut().zip(from.iter().step_by(stride)).for_each(|(sum, x)| *sum += x),
                        }
                    }
                    for (output, sum) in output[at..].iter_mut().zip(&sums[..len]) {
                        *output += sum;
                    }
                }
            }
            if are_whole {
                output.iter_mut().for_each(|y| *y *= scale);
                continue;
            }
            let rows = windows.counted(0, y, height);
            for (x, output) in output.iter_mut().enumerate() {
                *output /= (rows * windows.counted(1, x, width)) as f32;
            }
        }
    }
}

struct GradPlane<'a> {
    windows: Windows,
    width: usize,
    outputs: usize,
    grad: &'a [f32],
    output: &'a mut [f32],
}

impl Kernel for GradPlane<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let height = self.output.len() / self.width;
        let rows = self.grad.len() / self.outputs;
        if !self.windows.are_whole(0, height, rows) || !self.windows.are_whole(1, self.width, self.outputs) {
            return self.run_uneven();
        }
        let GradPlane { windows, width, outputs, grad, output } = self;
        let scale = 1.0 / (windows.kernel[0] * windows.kernel[1]) as f32;
        output.fill(0.0);
        for (y, grad) in grad.chunks_exact(outputs).enumerate() {
            for h in windows.covered(0, y, output.len() / width) {
                let row = &mut output[h * width..][..width];
                for k in 0..windows.kernel[1] {
                    let (xs, first) = windows.meeting(k, width, outputs);
                    let grad = &grad[xs];
                    if grad.is_empty() {
                        continue;
                    }
                    let to = &mut row[first..];
                    match windows.stride[1] {
                        1 => to.iter_mut().zip(grad).for_each(|(to, g)| *to += g * scale),
                        stride => to.iter_mut().step_by(stride).zip(grad).for_each(|(to, g)| *to += g * scale),
                    }
                }
            }
        }
    }
}

impl GradPlane<'_> {
    /// Where windows do not all count as whole.
    fn run_uneven(self) {
        let GradPlane { windows, width, outputs, grad, output } = self;
        let height = output.len() / width;
        output.fill(0.0);
        for (y, grad) in grad.chunks_exact(outputs).enumerate() {
            let rows = windows.counted(0, y, height);
            for (at, grad) in (0..outputs).step_by(BLOCK).zip(grad.chunks(BLOCK)) {
                let mut shares = [0.0; BLOCK];
                for (i, (share, g)) in shares.iter_mut().zip(grad).enumerate() {
                    *share = g / (rows * windows.counted(1, at + i, width)) as f32;
                }
                for h in windows.covered(0, y, height) {
                    let row = &mut output[h * width..][..width];
                    for k in 0..windows.kernel[1] {
                        let (xs, first) = windows.meeting(k, width, outputs);
                        let (begin, end) = (xs.start.max(at), xs.end.min(at + grad.len()));
                        if begin >= end {
                            continue;
                        }
                        let to = &mut row[first + (begin - xs.start) * windows.stride[1]..];
                        let shares = &shares[begin - at..end - at];
                        to.iter_mut().step_by(windows.stride[1]).zip(shares).for_each(|(to, share)| *to += share);
                    }
                }
            }
        }
    }
}

/// Which elements of an axis a bin of so many holds.
type Bin = fn(usize, usize, usize) -> Range<usize>;

/// The average of each bin.
pub(in crate::ops::pool) fn bins(
    cores: &Cores,
    [height, width]: [usize; 2],
    [high, wide]: [usize; 2],
    bin: Bin,
    input: &[f32],
    output: &mut [f32],
) {
    cores.pieces_of(output, high * wide, LEAST * high * wide / (height * width), |start, output| {
        let planes = input[start / (high * wide) * height * width..].chunks_exact(height * width);
        for (output, plane) in output.chunks_exact_mut(high * wide).zip(planes) {
            for (i, y) in output.iter_mut().enumerate() {
                let (rows, columns) = (bin(i / wide, height, high), bin(i % wide, width, wide));
                let elements = (rows.len() * columns.len()) as f64;
                // Whole rows lie one after the other.
                let sum = if columns.len() == width {
                    long_sum(cores.level(), &plane[rows.start * width..rows.end * width])
                } else {
                    rows.map(|row| long_sum(cores.level(), &plane[row * width..][columns.clone()])).sum()
                };
                *y = (sum / elements) as f32;
            }
        }
    });
}

/// The gradient of the input.
pub(in crate::ops::pool) fn bins_backward(
    cores: &Cores,
    [height, width]: [usize; 2],
    [high, wide]: [usize; 2],
    bin: Bin,
    grad: &[f32],
    output: &mut [f32],
) {
    cores.pieces_of(output, height * width, LEAST, |start, output| {
        let grads = grad[start / (height * width) * high * wide..].chunks_exact(high * wide);
        for (plane, grad) in output.chunks_exact_mut(height * width).zip(grads) {
            plane.fill(0.0);
            for (i, g) in grad.iter().enumerate() {
                let (rows, columns) = (bin(i / wide, height, high), bin(i % wide, width, wide));
                let share = g / (rows.len() * columns.len()) as f32;
                for row in rows {
                    plane[row * width..][columns.clone()].iter_mut().for_each(|x| *x += share);
                }
            }
        }
    });
}
