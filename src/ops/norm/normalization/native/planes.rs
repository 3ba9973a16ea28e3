//! Normalization of channels. A tensor is a matrix with a row for each sample, in which a channel is some columns.

use std::ops::Range;

use super::column_kernels::{ColumnGradients, ColumnSquares, ColumnSums, Fold, Gradient, Normalize};
use super::kernels::{Affine, Means, Moments, rstd};
use super::{Normalization, Places};
use crate::native::{Block, Level};
use crate::ops::place::{PIECE, Tensor, View, parts, reals, write};
use crate::ops::{Call, Epilogue, Resources};
use crate::tensor::Shape;

/// Elements that go through the second cache together, where they are read more than once.
const CACHED: usize = 1 << 16;
/// Rows whose elements are added in f32.
const MOST_ROWS: usize = 512;
/// Tasks that keep threads busy, however unevenly they run.
const ENOUGH_TASKS: usize = 16;
/// Fewest elements of a task where a channel is shared.
const LEAST_SHARE: usize = 1 << 15;
/// Elements of a cache line.
const LINE: usize = 16;

/// How the matrix is divided into tasks.
#[derive(Clone, Copy, Debug)]
struct Planes {
    samples: usize,
    channels: usize,
    inner: usize,
    /// Channels of a task.
    together: usize,
    /// Samples of a task.
    samples_together: usize,
}

impl Planes {
    fn new(shape: &Shape) -> Self {
        let (samples, channels, inner) = (shape[0], shape[1], shape[2..].iter().product::<usize>());
        let fits = PIECE / inner;
        let together = channels.div_ceil(ENOUGH_TASKS).min(fits).max(LINE.div_ceil(inner).min(fits)).clamp(1, channels);
        // A task that has all of its channels goes on from sums to what is made of them, with all that in the cache.
        let tasks = channels.div_ceil(together);
        let elements = samples * together * inner;
        let shares = if tasks >= ENOUGH_TASKS / 2 { 1 } else { ENOUGH_TASKS / tasks };
        let shares = shares.min(elements / LEAST_SHARE).clamp(1, samples);
        Planes { samples, channels, inner, together, samples_together: samples.div_ceil(shares) }
    }

    fn stride(&self) -> usize {
        self.channels * self.inner
    }

    fn shares(&self) -> usize {
        self.samples.div_ceil(self.samples_together)
    }

    /// The tasks: shares of samples, and in each of them channels.
    fn tasks(&self) -> impl Iterator<Item = Task> + use<> {
        let planes = *self;
        parts(0..planes.samples, planes.samples_together).flat_map(move |samples| {
            let channels = parts(0..planes.channels, planes.together);
            channels.map(move |channels| Task { planes, samples: samples.clone(), channels })
        })
    }

    /// The output of each task; nothing where there is none.
    fn blocks<'a>(&self, output: Option<&'a mut [f32]>) -> Vec<Block<'a>> {
        let stride = self.stride();
        match output {
            Some(output) => {
                let all = Block::new(output, self.samples, stride, stride);
                all.grid(self.samples_together, self.together * self.inner)
            }
            None => self.tasks().map(|_| Block::new(&mut [], 0, 0, 0)).collect(),
        }
    }

    /// Of two numbers for each channel in each share, those of each task.
    fn pairs<'a>(&self, data: &'a mut [f32]) -> impl Iterator<Item = &'a mut [f32]> + use<'a> {
        let (channels, together) = (2 * self.channels, 2 * self.together);
        data[..self.shares() * channels].chunks_mut(channels).flat_map(move |share| share.chunks_mut(together))
    }
}

/// Scratch: two numbers for each channel in each share of the samples.
pub(super) fn workspaces(shape: &Shape) -> Vec<u64> {
    let planes = Planes::new(shape);
    vec![8 * (planes.shares() * planes.channels) as u64]
}

#[derive(Clone, Debug)]
struct Task {
    planes: Planes,
    samples: Range<usize>,
    channels: Range<usize>,
}

/// Calls a kernel's constructor with four rows at a time, and then with one.
macro_rules! in_fours {
    ($rows:expr, |$row:ident, $count:ident| $run:expr) => {{
        let rows = $rows;
        let mut $row = rows.start;
        while $row + 4 <= rows.end {
            const $count: usize = 4;
            $run;
            $row += 4;
        }
        while $row < rows.end {
            const $count: usize = 1;
            $run;
            $row += 1;
        }
    }};
}

impl Task {
    fn start(&self) -> usize {
        self.samples.start * self.planes.stride() + self.channels.start * self.planes.inner
    }

    fn view<'a>(&self, tensor: Tensor<'a>, output: &'a Block<'a>) -> View<'a> {
        View { tensor, output, start: self.start(), stride: self.planes.stride() }
    }

    /// Columns that are taken at a time: all, or parts of the only channel.
    fn columns(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        parts(0..self.channels.len() * self.planes.inner, PIECE)
    }

    /// Columns of a channel, of so many.
    fn width(&self, columns: usize) -> usize {
        self.planes.inner.min(columns)
    }

    /// Rows of so many columns that go through the cache together.
    fn rows(&self, columns: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        parts(0..self.samples.len(), (CACHED / columns).clamp(1, MOST_ROWS))
    }

    /// A number for each of the columns that are taken at a time: less than an array of [`PIECE`] where there are few channels.
    fn row(&self) -> Vec<f32> {
        vec![0.0; PIECE.min(self.channels.len() * self.planes.inner)]
    }

    /// Writes the number of each channel to its columns.
    fn spread(&self, to: &mut [f32], number: impl Fn(usize) -> f32) {
        for (channel, to) in to.chunks_mut(self.width(to.len())).enumerate() {
            to.fill(number(channel));
        }
    }

    /// Makes mean and variance of each channel over the samples of the task.
    fn moments(&self, level: Level, x: &View<'_>, pairs: &mut [f32]) {
        let channels = self.channels.len();
        let mut moments = vec![Moments::default(); channels];
        let [mut sums, mut center] = [(); 2].map(|()| self.row());
        let (means, squares) = (&mut vec![0.0; channels][..], &mut vec![0.0; channels][..]);
        for columns in self.columns() {
            let width = self.width(columns.len());
            let (sums, center) = (&mut sums[..columns.len()], &mut center[..columns.len()]);
            for rows in self.rows(columns.len()) {
                let count = (rows.len() * width) as f32;
                sums.fill(0.0);
                in_fours!(rows.clone(), |row, ROWS| {
                    level.run(ColumnSums::<ROWS> { rows: x.rows(row, &columns), sums });
                });
                level.run(Fold { x: sums, width, sums: means });
                means.iter_mut().for_each(|mean| *mean /= count);
                self.spread(center, |channel| means[channel]);
                sums.fill(0.0);
                in_fours!(rows.clone(), |row, ROWS| {
                    level.run(ColumnSquares::<ROWS> { rows: x.rows(row, &columns), center, sums });
                });
                level.run(Fold { x: sums, width, sums: squares });
                for ((moments, &mean), &squares) in moments.iter_mut().zip(&*means).zip(&*squares) {
                    *moments = moments.with(Moments::new(count, mean, squares));
                }
            }
        }
        for (pair, moments) in pairs.chunks_exact_mut(2).zip(moments) {
            pair.copy_from_slice(&[moments.mean as f32, moments.variance() as f32]);
        }
    }

    /// Makes the sums of the gradients of each channel, and of their products with the normalized elements.
    fn sums(&self, level: Level, (x, g): (&View<'_>, &View<'_>), numbers: &Numbers, relu: bool, pairs: &mut [f32]) {
        let channels = self.channels.len();
        let mut totals = vec![[0.0; 2]; channels];
        let [mut sums, mut products] = [(); 2].map(|()| self.row());
        let (folded, folded_products) = (&mut vec![0.0; channels][..], &mut vec![0.0; channels][..]);
        for columns in self.columns() {
            let width = self.width(columns.len());
            let by = numbers.of_columns(columns.len());
            let (sums, products) = (&mut sums[..columns.len()], &mut products[..columns.len()]);
            for rows in self.rows(columns.len()) {
                sums.fill(0.0);
                products.fill(0.0);
                in_fours!(rows, |row, ROWS| {
                    let (x, g) = (x.rows(row, &columns), g.rows(row, &columns));
                    level.run(ColumnGradients::<ROWS> { x, g, by, relu, sums, products });
                });
                level.run(Fold { x: sums, width, sums: folded });
                level.run(Fold { x: products, width, sums: folded_products });
                for ((total, &sum), &product) in totals.iter_mut().zip(&*folded).zip(&*folded_products) {
                    total[0] += f64::from(sum);
                    total[1] += f64::from(product);
                }
            }
        }
        let width = self.width(PIECE);
        for ((channel, pair), total) in pairs.chunks_exact_mut(2).enumerate().zip(totals) {
            pair.copy_from_slice(&[total[0] as f32, (total[1] * f64::from(numbers.rstd[channel * width])) as f32]);
        }
    }

    /// Calls `make` with each piece of the output, and where it begins.
    fn pieces(&self, output: &mut Block<'_>, mut make: impl FnMut(usize, Range<usize>, &mut [f32])) {
        for row in 0..output.rows() {
            let output = output.row(row);
            for columns in self.columns() {
                let start = self.start() + row * self.planes.stride() + columns.start;
                make(start, columns.clone(), &mut output[columns]);
            }
        }
    }

    /// Makes the output.
    fn normalize(&self, with: &With<'_>, x: Tensor<'_>, numbers: &Numbers, output: &mut Block<'_>) {
        let With { level, epilogue, .. } = *with;
        let floor = if with.relu { 0.0 } else { f32::NEG_INFINITY };
        let [mut room, mut values] = [[0.0; PIECE]; 2];
        self.pieces(output, |start, columns, output| {
            let x = x.fetch(start, output, &mut room);
            write(level, epilogue, start, output, &mut values, |output| match self.channels.len() {
                1 => level.run(Normalize { x, by: numbers.of_one(), floor, output }),
                _ => level.run(Normalize { x, by: numbers.of_columns(columns.len()), floor, output }),
            });
        });
    }

    /// Makes the gradient of the input.
    fn gradient(
        &self,
        with: &With<'_>,
        (x, g): (Tensor<'_>, Tensor<'_>),
        numbers: &Numbers,
        means: &[Vec<f32>; 2],
        output: &mut Block<'_>,
    ) {
        let With { level, epilogue, relu } = *with;
        let [mut room, mut room_g, mut values] = [[0.0; PIECE]; 3];
        self.pieces(output, |start, columns, output| {
            let x = x.fetch(start, output, &mut room);
            let g = g.fetch(start, output, &mut room_g);
            write(level, epilogue, start, output, &mut values, |output| {
                if self.channels.len() == 1 {
                    let (by, means) = (numbers.of_one(), Means { gradient: means[0][0], product: means[1][0] });
                    level.run(Gradient { x, g, by, means, relu, output });
                } else {
                    let by = numbers.of_columns(columns.len());
                    let means = Means { gradient: &means[0][..], product: &means[1][..] };
                    level.run(Gradient { x, g, by, means, relu, output });
                }
            });
        });
    }
}

/// What tasks run with.
#[derive(Clone, Copy)]
struct With<'a> {
    level: Level,
    epilogue: &'a Epilogue<'a>,
    relu: bool,
}

/// What the channels of a task are normalized by, for each column.
struct Numbers {
    mean: Vec<f32>,
    rstd: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Numbers {
    /// Of the statistics of each channel of the task, mean and variance.
    fn new(norm: &Normalization, task: &Task, pairs: &[f32], weight: Option<&[f32]>, bias: Option<&[f32]>) -> Self {
        let [mean, rstds, weights, biases] = [(); 4].map(|()| task.row());
        let mut numbers = Numbers { mean, rstd: rstds, weight: weights, bias: biases };
        let first = task.channels.start;
        let parameter = |data: Option<&[f32]>, channel: usize, or| data.map_or(or, |data| data[first + channel]);
        task.spread(&mut numbers.mean, |channel| pairs[2 * channel]);
        task.spread(&mut numbers.rstd, |channel| rstd(pairs[2 * channel + 1], norm.eps));
        task.spread(&mut numbers.weight, |channel| parameter(weight, channel, 1.0));
        task.spread(&mut numbers.bias, |channel| parameter(bias, channel, 0.0));
        numbers
    }

    fn of_one(&self) -> Affine<f32, f32, f32> {
        Affine { mean: self.mean[0], rstd: self.rstd[0], weight: self.weight[0], bias: self.bias[0] }
    }

    fn of_columns(&self, columns: usize) -> Affine<&[f32], &[f32], &[f32]> {
        Affine {
            mean: &self.mean[..columns],
            rstd: &self.rstd[..columns],
            weight: &self.weight[..columns],
            bias: &self.bias[..columns],
        }
    }
}

/// The pairs of a task, of those of all channels.
fn of_task<'a>(pairs: &'a [f32], task: &Task) -> &'a [f32] {
    &pairs[2 * task.channels.start..2 * task.channels.end]
}

/// Forward.
pub(super) fn forward(norm: &Normalization, call: &mut Call<'_, f32>, places: &Places, with: &mut Resources<'_>) {
    let planes = Planes::new(&call.input_descs[0].shape);
    let read = |place: Option<usize>| place.map(|i| call.input(i));
    let x = Tensor::of(call, 0);
    let (mean, variance, weight, bias) =
        (read(places.mean), read(places.variance), read(places.weight), read(places.bias));
    let made = (!norm.frozen).then_some([1, 2]);
    let [output, mean_output, variance_output] =
        reals(&mut call.outputs, [Some(0), made.map(|[mean, _]| mean), made.map(|[_, variance]| variance)]);
    let Resources { cores, workspaces, epilogue } = with;
    let with = With { level: cores.level(), epilogue, relu: norm.relu };
    let pairs = &mut *workspaces[0];
    let mut blocks = planes.blocks(output);
    let finish = |task: &Task, pairs: &[f32], block: &mut Block<'_>| {
        let numbers = Numbers::new(norm, task, pairs, weight, bias);
        task.normalize(&with, x, &numbers, block);
    };
    let is_shared = planes.shares() > 1;
    if let (Some(mean), Some(variance)) = (mean, variance) {
        for (pair, (&mean, &variance)) in pairs.chunks_exact_mut(2).zip(mean.iter().zip(variance)) {
            pair.copy_from_slice(&[mean, variance]);
        }
    } else {
        let mut tasks: Vec<_> = planes.tasks().zip(&mut blocks).zip(planes.pairs(pairs)).collect();
        cores.each(&mut tasks, |_, ((task, block), pairs)| {
            task.moments(with.level, &task.view(x, block), pairs);
            if !is_shared {
                finish(task, pairs, block);
            }
        });
        for channel in (0..planes.channels).filter(|_| is_shared) {
            let mut moments = Moments::default();
            for (share, samples) in parts(0..planes.samples, planes.samples_together).enumerate() {
                let place = 2 * (share * planes.channels + channel);
                let count = (samples.len() * planes.inner) as f32;
                moments = moments.with(Moments::new(count, pairs[place], pairs[place + 1] * count));
            }
            pairs[2 * channel..][..2].copy_from_slice(&[moments.mean as f32, moments.variance() as f32]);
        }
    }
    if norm.frozen || is_shared {
        let mut tasks: Vec<_> = planes.tasks().zip(&mut blocks).collect();
        cores.each(&mut tasks, |_, (task, block)| finish(task, of_task(pairs, task), block));
    }
    for (place, output) in [mean_output, variance_output].into_iter().enumerate() {
        for (channel, to) in output.into_iter().flatten().enumerate() {
            *to = pairs[2 * channel + place];
        }
    }
}

/// Backward; `outputs` are where the gradients of input, weight and bias go.
pub(super) fn backward(
    norm: &Normalization,
    call: &mut Call<'_, f32>,
    places: &Places,
    outputs: [Option<usize>; 3],
    with: &mut Resources<'_>,
) {
    let planes = Planes::new(&call.input_descs[0].shape);
    let read = |place: Option<usize>| place.map(|i| call.input(i));
    let g = Tensor::of(call, places.grad_output.expect("bug: backward reads a gradient"));
    let x = places.input.map(|place| Tensor::of(call, place));
    let (mean, variance, weight, bias) =
        (read(places.mean), read(places.variance), read(places.weight), read(places.bias));
    let [output, weight_output, bias_output] = reals(&mut call.outputs, outputs);
    let Resources { cores, workspaces, epilogue } = with;
    let with = With { level: cores.level(), epilogue, relu: norm.relu };
    let pairs = &mut *workspaces[0];
    let wants_input = output.is_some();
    let wants_sums = (wants_input && !norm.frozen) || weight_output.is_some() || bias_output.is_some();
    let mut blocks = planes.blocks(output);
    let numbers = |task: &Task| {
        let mut pairs = vec![0.0; 2 * task.channels.len()];
        for (pair, channel) in pairs.chunks_exact_mut(2).zip(task.channels.clone()) {
            // Without a variance, 1 / standard deviation is not used.
            let variance = variance.map_or(1.0, |variance| variance[channel]);
            pair.copy_from_slice(&[mean.map_or(0.0, |mean| mean[channel]), variance]);
        }
        Numbers::new(norm, task, &pairs, weight, bias)
    };
    let finish = |task: &Task, numbers: &Numbers, pairs: &[f32], block: &mut Block<'_>| match x {
        _ if !wants_input => {}
        Some(x) => {
            let mut means = [(); 2].map(|()| task.row());
            let count = (planes.samples * planes.inner) as f32;
            for (place, means) in means.iter_mut().enumerate().filter(|_| !norm.frozen) {
                let mean = |channel: usize| {
                    weight.map_or(1.0, |weight| weight[task.channels.start + channel])
                        * (pairs[2 * channel + place] / count)
                };
                task.spread(means, mean);
            }
            task.gradient(&with, (x, g), numbers, &means, block);
        }
        // Without the input, nothing is subtracted: its place is taken by the gradient.
        None => task.normalize(&with, g, numbers, block),
    };
    let is_shared = planes.shares() > 1;
    if wants_sums {
        let mut tasks: Vec<_> = planes.tasks().zip(&mut blocks).zip(planes.pairs(pairs)).collect();
        cores.each(&mut tasks, |_, ((task, block), pairs)| {
            let numbers = numbers(task);
            let (x, g) = (task.view(x.unwrap_or(g), block), task.view(g, block));
            task.sums(with.level, (&x, &g), &numbers, with.relu, pairs);
            if !is_shared {
                finish(task, &numbers, pairs, block);
            }
        });
        let (first, others) = pairs.split_at_mut(2 * planes.channels);
        for others in others.chunks_exact(2 * planes.channels).take(planes.shares() - 1) {
            for (sum, term) in first.iter_mut().zip(others) {
                *sum += term;
            }
        }
    }
    if wants_input && (is_shared || !wants_sums) {
        let mut tasks: Vec<_> = planes.tasks().zip(&mut blocks).collect();
        cores.each(&mut tasks, |_, (task, block)| finish(task, &numbers(task), of_task(pairs, task), block));
    }
    for (place, output) in [bias_output, weight_output].into_iter().enumerate() {
        for (channel, to) in output.into_iter().flatten().enumerate() {
            *to = pairs[2 * channel + place];
        }
    }
}
