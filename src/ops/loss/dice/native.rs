//! Dice loss on the vectors and threads of a CPU: at neighbouring positions, where classes are rows.

use super::{Dice, Layout, Positions};
use crate::native::lanes::{larger, sum};
use crate::native::{Block, Fast, Kernel, Simd};
use crate::ops::elementwise::sigmoid::sigmoid;
use crate::ops::loss::sample_weights::Repeated;
use crate::ops::place::{Tensor, columns_of_task, parts};
use crate::ops::reduce::softmax_rows::exp;
use crate::ops::{Call, Input, Resources};
use crate::tensor::TensorDesc;

/// Positions that are taken together.
const TOGETHER: usize = 64;

/// A number for each of these positions.
type Numbers = [f32; TOGETHER];

/// What pixels are compared with.
#[derive(Clone, Copy)]
struct Targets<'a> {
    positions: Positions,
    /// A label for each position, or else a number for each logit.
    labels: Option<&'a [u32]>,
    numbers: &'a [f32],
    ignored: Option<u32>,
    is_softmax: bool,
}

impl<'a> Targets<'a> {
    fn of(dice: &Dice, call: &Call<'a, f32>) -> Self {
        let (labels, numbers) = match call.inputs[1] {
            Input::Int(labels) => (Some(labels), &[][..]),
            _ => (None, call.input(1)),
        };
        let positions = Positions::of(&call.input_descs[0]);
        Targets { positions, labels, numbers, ignored: dice.ignore_index, is_softmax: dice.is_softmax() }
    }
}

/// Neighbouring positions of a sample.
#[derive(Clone, Copy)]
struct Pixels<'a> {
    targets: &'a Targets<'a>,
    sample: usize,
    first: usize,
    count: usize,
}

impl Pixels<'_> {
    /// The number of the first logit of a class.
    #[inline(always)]
    fn start(&self, class: usize) -> usize {
        let Positions { classes, inner, .. } = self.targets.positions;
        (self.sample * classes + class) * inner + self.first
    }

    #[inline(always)]
    fn label(&self, labels: &[u32], i: usize) -> u32 {
        labels[self.sample * self.targets.positions.inner + self.first + i]
    }

    /// 1 for positions that count, 0 for others.
    #[inline(always)]
    fn counts(&self) -> Numbers {
        let mut counts = [0.0; TOGETHER];
        for (i, counts) in counts.iter_mut().enumerate().take(self.count) {
            let label = self.targets.labels.map(|labels| self.label(labels, i));
            *counts = if label.is_some() && label == self.targets.ignored { 0.0 } else { 1.0 };
        }
        counts
    }

    /// The targets of a class.
    #[inline(always)]
    fn of_class(&self, class: usize) -> Numbers {
        let mut targets = [0.0; TOGETHER];
        if let Some(labels) = self.targets.labels {
            for (i, target) in targets.iter_mut().enumerate().take(self.count) {
                let label = self.label(labels, i) as usize;
                let is_there = label < self.targets.positions.classes;
                *target = if label == class { 1.0 } else { 0.0 };
                *target = if is_there { *target } else { f32::NAN };
            }
        } else {
            targets[..self.count].copy_from_slice(&self.targets.numbers[self.start(class)..][..self.count]);
        }
        targets
    }

    /// The largest of the logits at each position, and the sum of exponentials of what others are below it.
    #[inline(always)]
    fn softmax<'a>(&self, row: impl Fn(usize) -> &'a [f32]) -> (Numbers, Numbers) {
        let (mut largest, mut sums) = ([f32::NEG_INFINITY; TOGETHER], [0.0; TOGETHER]);
        for class in 0..self.targets.positions.classes {
            for (largest, &x) in largest.iter_mut().zip(row(class)) {
                *largest = larger(*largest, x);
            }
        }
        for class in 0..self.targets.positions.classes {
            for ((sum, &largest), &x) in sums.iter_mut().zip(&largest).zip(row(class)) {
                *sum += exp(x - largest);
            }
        }
        (largest, sums)
    }

    /// The probabilities of a class, from its logits.
    #[inline(always)]
    fn probabilities(&self, x: &[f32], (largest, sums): &(Numbers, Numbers)) -> Numbers {
        let mut probabilities = [0.0; TOGETHER];
        if self.targets.is_softmax {
            for (i, &x) in x.iter().enumerate() {
                probabilities[i] = exp(x - largest[i]) / sums[i];
            }
        } else {
            for (p, &x) in probabilities.iter_mut().zip(x) {
                *p = sigmoid(Fast(x)).0;
            }
        }
        probabilities
    }
}

/// Adds to two sums of each class, `Σ p t` and `Σ p + Σ t`.
struct Sums<'a> {
    pixels: Pixels<'a>,
    x: &'a [f32],
    sums: &'a mut [f32],
}

impl Kernel for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Sums { pixels, x, sums } = self;
        let row = |class| &x[pixels.start(class)..][..pixels.count];
        let made = if pixels.targets.is_softmax { pixels.softmax(row) } else { ([0.0; TOGETHER], [1.0; TOGETHER]) };
        let counts = pixels.counts();
        for (class, sums) in sums.chunks_exact_mut(2).enumerate() {
            let (p, t) = (pixels.probabilities(row(class), &made), pixels.of_class(class));
            let (mut both, mut total) = ([0.0; TOGETHER], [0.0; TOGETHER]);
            for i in 0..TOGETHER {
                both[i] = if counts[i] == 0.0 { 0.0 } else { p[i] * t[i] };
                total[i] = if counts[i] == 0.0 { 0.0 } else { p[i] + t[i] };
            }
            sums[0] += sum(&both);
            sums[1] += sum(&total);
        }
    }
}

/// Makes gradients, of logits or else of what is in the block, which has a row for each class.
struct Gradient<'a, 'b> {
    pixels: Pixels<'a>,
    /// For each class, what the gradient for a probability is, and what a target adds to it times itself.
    classes: &'a dyn Fn(usize) -> [f32; 2],
    x: Option<&'a [f32]>,
    block: Block<'b>,
}

impl Kernel for Gradient<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Gradient { pixels, classes, x, mut block } = self;
        let count = block.rows();
        if let Some(x) = x {
            for class in 0..count {
                block.row(class).copy_from_slice(&x[pixels.start(class)..][..pixels.count]);
            }
        }
        let mut made = ([0.0; TOGETHER], [1.0; TOGETHER]);
        let mut means = [0.0; TOGETHER];
        if pixels.targets.is_softmax {
            made = pixels.softmax(|class| block.look(class));
            for class in 0..count {
                let (p, t) = (pixels.probabilities(block.look(class), &made), pixels.of_class(class));
                let [plain, by_target] = classes(class);
                for i in 0..TOGETHER {
                    means[i] += p[i] * (plain + by_target * t[i]);
                }
            }
        }
        let counts = pixels.counts();
        for class in 0..count {
            let (p, t) = (pixels.probabilities(block.look(class), &made), pixels.of_class(class));
            let [plain, by_target] = classes(class);
            for (i, x) in block.row(class).iter_mut().enumerate() {
                let by_probability = plain + by_target * t[i];
                let gradient = if pixels.targets.is_softmax {
                    p[i] * (by_probability - means[i])
                } else {
                    by_probability * p[i] * (1.0 - p[i])
                };
                *x = if counts[i] == 0.0 { 0.0 } else { gradient };
            }
        }
    }
}

/// Positions of a task, and tasks of a sample.
fn shares(positions: Positions) -> (usize, usize) {
    let samples = positions.count / positions.inner.max(1);
    let together = columns_of_task(samples, positions.inner);
    (together, positions.inner.div_ceil(together))
}

/// Scratch: two sums of each class in each task.
pub(super) fn workspaces(input: &TensorDesc) -> Vec<u64> {
    let Layout { positions, rows, .. } = Layout::of(input);
    vec![8 * (rows * shares(positions).1) as u64]
}

/// Runs the loss.
pub(super) fn forward(dice: &Dice, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
    let Layout { positions, rows, .. } = Layout::of(&call.input_descs[0]);
    let (targets, x) = (Targets::of(dice, call), call.input(0));
    let weights = Repeated::of_samples(call, dice.sample_weights, rows);
    let (together, shares) = shares(positions);
    let Positions { classes, inner, .. } = positions;
    let level = with.cores.level();
    let parts_of_sums = &mut with.workspaces[0][..2 * rows * shares];
    let mut tasks: Vec<_> = parts_of_sums.chunks_exact_mut(2 * classes).enumerate().collect();
    with.cores.each(&mut tasks, |_, (task, sums)| {
        sums.fill(0.0);
        let (sample, start) = (*task / shares, *task % shares * together);
        for columns in parts(start..inner.min(start + together), TOGETHER) {
            let pixels = Pixels { targets: &targets, sample, first: columns.start, count: columns.len() };
            level.run(Sums { pixels, x, sums });
        }
    });
    let [loss, sums] = call.split_outputs();
    let mut total = 0.0;
    for (row, sums) in sums.chunks_exact_mut(2).enumerate() {
        let (sample, class) = (row / classes, row % classes);
        for (place, sum) in sums.iter_mut().enumerate() {
            let part =
                |share: usize| f64::from(parts_of_sums[2 * ((sample * shares + share) * classes + class) + place]);
            *sum = (0..shares).map(part).sum::<f64>() as f32;
        }
        let all = sums[1] + dice.smooth;
        let term = if all == 0.0 { 0.0 } else { 1.0 - (2.0 * sums[0] + dice.smooth) / all };
        total += f64::from(weights.at(row) * term);
    }
    loss[0] = (total / rows as f64) as f32;
}

/// Runs the gradient; inputs `input, target, sums, grad_loss`.
pub(super) fn grad_input(dice: &Dice, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
    let Layout { positions, rows, .. } = Layout::of(&call.input_descs[0]);
    let (targets, x) = (Targets::of(dice, call), Tensor::of(call, 0));
    let x = match x {
        Tensor::Apart(data) => Some(data),
        Tensor::InOutput => None,
    };
    let (sums, factor) = (call.input(2), call.input(3)[0] / rows as f32);
    let weights = Repeated::of_samples(call, dice.sample_weights, rows);
    let (together, _) = shares(positions);
    let Positions { classes, inner, .. } = positions;
    let level = with.cores.level();
    let samples = call.output(0).chunks_exact_mut(classes * inner).enumerate();
    let mut tasks: Vec<_> = samples
        .flat_map(|(sample, output)| {
            let blocks = Block::new(output, classes, inner, inner).grid(classes, together);
            blocks.into_iter().enumerate().map(move |(i, block)| (sample, i * together, block))
        })
        .collect();
    with.cores.each(&mut tasks, |_, (sample, start, block)| {
        let by_class = |class: usize| {
            let row = *sample * classes + class;
            let (both, total) = (sums[2 * row], sums[2 * row + 1] + dice.smooth);
            let factor = factor * weights.at(row) / total;
            let plain = factor * ((2.0 * both + dice.smooth) / total);
            if total == 0.0 { [0.0; 2] } else { [plain, -2.0 * factor] }
        };
        for columns in parts(0..block.columns(), TOGETHER) {
            let first = *start + columns.start;
            let pixels = Pixels { targets: &targets, sample: *sample, first, count: columns.len() };
            let block = block.part(0..classes, columns);
            level.run(Gradient { pixels, classes: &by_class, x, block });
        }
    });
}
