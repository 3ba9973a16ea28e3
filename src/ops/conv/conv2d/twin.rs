//! Convolution on the CPU. The innermost loops run along rows of both images.

use std::ops::Range;

use super::geometry::Geometry;
use crate::ops::Real;
use crate::ops::sums::{Blocks, Sums, sum};

/// Output positions that meet the input at kernel position `k` along one axis, and the input position of the first.
fn meeting(
    k: usize,
    input: usize,
    output: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
) -> (Range<usize>, usize) {
    let offset = k * dilation;
    // The least position with position * stride + offset >= padding, and the first with … >= padding + input.
    let first = padding.saturating_sub(offset).div_ceil(stride);
    let end = (padding + input).saturating_sub(offset).div_ceil(stride).min(output);
    let start = if first < end { first * stride + offset - padding } else { 0 };
    (first..end.max(first), start)
}

/// Where the rows of both images meet through one place of a kernel.
struct Meeting {
    /// Number of the place in the kernel.
    place: usize,
    /// Rows of the output, and the first row of the input.
    ys: Range<usize>,
    iy: usize,
    /// Columns of the output, and the first column of the input.
    xs: Range<usize>,
    ix: usize,
}

impl Meeting {
    fn all(g: &Geometry) -> Vec<Self> {
        let all = (0..g.kernel.0 * g.kernel.1).map(|place| {
            let (ky, kx) = (place / g.kernel.1, place % g.kernel.1);
            let (ys, iy) = meeting(ky, g.input.0, g.output.0, g.stride.0, g.padding.0, g.dilation.0);
            let (xs, ix) = meeting(kx, g.input.1, g.output.1, g.stride.1, g.padding.1, g.dilation.1);
            Meeting { place, ys, iy, xs, ix }
        });
        all.filter(|meeting| !meeting.xs.is_empty()).collect()
    }

    /// The pairs of rows in their planes: starts in the output and in the input. They are as long as `xs`.
    fn rows(&self, g: &Geometry) -> impl Iterator<Item = (usize, usize)> {
        let (input, output) = (g.input.1, g.output.1);
        let (stride, iy, xs, ix) = (g.stride.0, self.iy, self.xs.start, self.ix);
        self.ys.clone().enumerate().map(move |(i, y)| (y * output + xs, (iy + i * stride) * input + ix))
    }
}

/// A plane of the output and one of the input that meet, by their numbers, and the first weight between them.
struct Planes {
    output: usize,
    input: usize,
    weight: usize,
}

impl Planes {
    fn new(g: &Geometry, image: usize, o: usize, c: usize) -> Self {
        let (n, group) = (image / g.groups, image % g.groups);
        let o = group * g.out_channels + o;
        Planes {
            output: n * g.groups * g.out_channels + o,
            input: image * g.in_channels + c,
            weight: (o * g.in_channels + c) * g.kernel.0 * g.kernel.1,
        }
    }
}

pub(in crate::ops) fn forward<T: Real>(g: &Geometry, input: &[T], weight: &[T], bias: Option<&[T]>, output: &mut [T]) {
    let (meetings, stride) = (Meeting::all(g), g.stride.1);
    for image in 0..g.samples * g.groups {
        for o in 0..g.out_channels {
            let bias = bias.map_or(T::ZERO, |bias| bias[image * g.out_channels % bias.len() + o]);
            let mut sums = Blocks::new(vec![bias; g.output_plane()]);
            for c in 0..g.in_channels {
                let planes = Planes::new(g, image, o, c);
                let input = &input[planes.input * g.input_plane()..][..g.input_plane()];
                for meeting in &meetings {
                    let (w, sums, len) = (weight[planes.weight + meeting.place], sums.next_term(), meeting.xs.len());
                    for (at, from) in meeting.rows(g) {
                        let sums = sums[at..at + len].iter_mut();
                        if stride == 1 {
                            sums.zip(&input[from..from + len]).for_each(|(y, &x)| *y += w * x);
                        } else {
                            sums.zip(input[from..].iter().step_by(stride)).for_each(|(y, &x)| *y += w * x);
                        }
                    }
                }
            }
            let plane = Planes::new(g, image, o, 0).output * g.output_plane();
            sums.write(&mut output[plane..][..g.output_plane()]);
        }
    }
}

pub(in crate::ops) fn grad_input<T: Real>(g: &Geometry, weight: &[T], grad_output: &[T], grad_input: &mut [T]) {
    let (meetings, stride) = (Meeting::all(g), g.stride.1);
    for image in 0..g.samples * g.groups {
        for c in 0..g.in_channels {
            let mut sums = Blocks::new(vec![T::ZERO; g.input_plane()]);
            for o in 0..g.out_channels {
                let planes = Planes::new(g, image, o, c);
                let grad_output = &grad_output[planes.output * g.output_plane()..][..g.output_plane()];
                for meeting in &meetings {
                    let (w, sums, len) = (weight[planes.weight + meeting.place], sums.next_term(), meeting.xs.len());
                    for (at, from) in meeting.rows(g) {
                        let grad_output = &grad_output[at..at + len];
                        if stride == 1 {
                            sums[from..from + len].iter_mut().zip(grad_output).for_each(|(x, &y)| *x += w * y);
                        } else {
                            let sums = sums[from..].iter_mut().step_by(stride);
                            sums.zip(grad_output).for_each(|(x, &y)| *x += w * y);
                        }
                    }
                }
            }
            let plane = Planes::new(g, image, 0, c).input * g.input_plane();
            sums.write(&mut grad_input[plane..][..g.input_plane()]);
        }
    }
}

pub(in crate::ops) fn grad_weight<T: Real>(g: &Geometry, input: &[T], grad_output: &[T], grad_weight: &mut [T]) {
    let (meetings, stride) = (Meeting::all(g), g.stride.1);
    let mut sums = Sums::new(grad_weight.len());
    for image in 0..g.samples * g.groups {
        for (o, c) in (0..g.out_channels).flat_map(|o| (0..g.in_channels).map(move |c| (o, c))) {
            let planes = Planes::new(g, image, o, c);
            let (input, grad_output) =
                (&input[planes.input * g.input_plane()..], &grad_output[planes.output * g.output_plane()..]);
            for meeting in &meetings {
                for (at, from) in meeting.rows(g) {
                    let pairs = grad_output[at..at + meeting.xs.len()].iter().zip(input[from..].iter().step_by(stride));
                    sums.add(planes.weight + meeting.place, sum(pairs.map(|(&y, &x)| y * x)));
                }
            }
        }
    }
    sums.write(grad_weight);
}

pub(in crate::ops) fn grad_bias<T: Real>(channels: usize, plane: usize, grad_output: &[T], grad_bias: &mut [T]) {
    let mut sums = Sums::new(channels);
    for (i, values) in grad_output.chunks_exact(plane).enumerate() {
        sums.add(i % channels, sum(values.iter().copied()));
    }
    sums.write(grad_bias);
}
