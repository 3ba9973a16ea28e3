//! Images made larger, and global averages.

use crate::native::{Cores, Kernel, Simd};

/// Copies each element of rows of so many columns so many times, down and across.
pub(in crate::ops::pool) fn nearest(
    cores: &Cores,
    [down, across]: [usize; 2],
    width: usize,
    input: &[f32],
    output: &mut [f32],
) {
    let row = down * across * width;
    cores.pieces_of(output, row, super::average::LEAST, |start, output| {
        let inputs = input[start / (down * across)..].chunks_exact(width);
        for (output, input) in output.chunks_exact_mut(row).zip(inputs) {
            let (first, others) = output.split_at_mut(across * width);
            cores.run(Spread { across, input, output: first });
            others.chunks_exact_mut(across * width).for_each(|other| other.copy_from_slice(first));
        }
    });
}

struct Spread<'a> {
    across: usize,
    input: &'a [f32],
    output: &'a mut [f32],
}

impl Kernel for Spread<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        match self.across {
            2 => spread(2, self.input, self.output),
            across => spread(across, self.input, self.output),
        }
    }
}

#[inline(always)]
fn spread(across: usize, input: &[f32], output: &mut [f32]) {
    for (output, x) in output.chunks_exact_mut(across).zip(input) {
        output.iter_mut().for_each(|y| *y = *x);
    }
}

/// Sums what each element was copied to.
pub(in crate::ops::pool) fn nearest_backward(
    cores: &Cores,
    [down, across]: [usize; 2],
    width: usize,
    grad: &[f32],
    output: &mut [f32],
) {
    let row = across * width;
    cores.pieces_of(output, width, super::average::LEAST / (down * across), |start, output| {
        let rows = grad[start * down * across..].chunks_exact(down * row);
        for (output, rows) in output.chunks_exact_mut(width).zip(rows) {
            output.fill(0.0);
            for grad in rows.chunks_exact(row) {
                cores.run(Gather { across, grad, output });
            }
        }
    });
}

struct Gather<'a> {
    across: usize,
    grad: &'a [f32],
    output: &'a mut [f32],
}

impl Kernel for Gather<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        match self.across {
            2 => gather(2, self.grad, self.output),
            across => gather(across, self.grad, self.output),
        }
    }
}

#[inline(always)]
fn gather(across: usize, grad: &[f32], output: &mut [f32]) {
    for (grad, y) in grad.chunks_exact(across).zip(output) {
        let mut sum = 0.0;
        for g in grad {
            sum += g;
        }
        *y += sum;
    }
}

/// For each place of the larger side of an axis, the two that it lies between in the other, and their weights.
pub(in crate::ops::pool) type Neighbours = Vec<[(usize, f32); 2]>;

/// Interpolates between rows, then between columns. `lines` is a row of the input for each thread.
pub(in crate::ops::pool) fn bilinear(
    cores: &Cores,
    [rows, columns]: [&Neighbours; 2],
    [height, width]: [usize; 2],
    lines: &mut [f32],
    input: &[f32],
    output: &mut [f32],
) {
    let mut own: Vec<_> = lines.chunks_exact_mut(width).take(cores.threads()).collect();
    let mut tasks: Vec<_> =
        output.chunks_exact_mut(rows.len() * columns.len()).zip(input.chunks_exact(height * width)).collect();
    cores.each_with(&mut tasks, &mut own, |line, (output, input)| {
        for (output, [(above, a), (below, b)]) in output.chunks_exact_mut(columns.len()).zip(rows) {
            let row = |h: usize| &input[h * width..][..width];
            cores.run(Mix { from: [row(*above), row(*below)], weights: [*a, *b], to: line });
            for (y, [(left, a), (right, b)]) in output.iter_mut().zip(columns) {
                *y = a * line[*left] + b * line[*right];
            }
        }
    });
}

/// `to = Σ weight · from`
struct Mix<'a> {
    from: [&'a [f32]; 2],
    weights: [f32; 2],
    to: &'a mut [f32],
}

impl Kernel for Mix<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let [a, b] = self.weights;
        for ((to, x), y) in self.to.iter_mut().zip(self.from[0]).zip(self.from[1]) {
            *to = a * x + b * y;
        }
    }
}

/// The gradient of the input.
pub(in crate::ops::pool) fn bilinear_backward(
    cores: &Cores,
    [rows, columns]: [&Neighbours; 2],
    [height, width]: [usize; 2],
    lines: &mut [f32],
    grad: &[f32],
    output: &mut [f32],
) {
    let mut own: Vec<_> = lines.chunks_exact_mut(width).take(cores.threads()).collect();
    let mut tasks: Vec<_> =
        output.chunks_exact_mut(height * width).zip(grad.chunks_exact(rows.len() * columns.len())).collect();
    cores.each_with(&mut tasks, &mut own, |line, (output, grad)| {
        output.fill(0.0);
        for (grad, neighbours) in grad.chunks_exact(columns.len()).zip(rows) {
            line.fill(0.0);
            for (g, [(left, a), (right, b)]) in grad.iter().zip(columns) {
                line[*left] += a * g;
                line[*right] += b * g;
            }
            for (h, weight) in neighbours {
                cores.run(Add { from: line, weight: *weight, to: &mut output[h * width..][..width] });
            }
        }
    });
}

/// `to += weight · from`
struct Add<'a> {
    from: &'a [f32],
    weight: f32,
    to: &'a mut [f32],
}

impl Kernel for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (to, x) in self.to.iter_mut().zip(self.from) {
            *to += self.weight * x;
        }
    }
}
