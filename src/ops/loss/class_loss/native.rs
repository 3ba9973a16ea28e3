//! Cross-entropies on the vectors and threads of a CPU.

use std::ops::Range;

use super::column_kernels::{self, Neighbours, TOGETHER};
use super::kernels::{self, Targets};
use super::{ClassLoss, Positions};
use crate::native::Block;
use crate::ops::place::{PIECE, Tensor, columns_of_task, parts, sum_tasks};
use crate::ops::{Call, Input, Resources};

/// Fewest logits of a task.
const LEAST_TASK: usize = 4096;

/// What positions are compared with; `first` is the number of the first input behind the fixed ones.
fn targets<'a, L: ClassLoss>(loss: &L, call: &Call<'a, f32>, first: usize) -> Targets<'a> {
    let (options, positions) = (loss.options(), Positions::of(&call.input_descs[0]));
    let (labels, numbers) = match call.inputs[1] {
        Input::Int(labels) => (Some(labels), &[][..]),
        _ => (None, call.input(1)),
    };
    let samples = options.sample_weights.then(|| {
        let weights = call.input(call.inputs.len() - 1);
        (weights, positions.count / weights.len())
    });
    Targets {
        classes: positions.classes,
        labels,
        numbers,
        ignored: options.ignore_index,
        weights: options.weighted.then(|| call.input(first + usize::from(options.normalized))),
        kept: 1.0 - options.label_smoothing,
        spread: options.label_smoothing / positions.classes as f32,
        samples,
    }
}

impl Positions {
    /// Neighbours among the positions of a sample: those that are taken together.
    fn neighbours(self, sample: usize, columns: &Range<usize>) -> Neighbours {
        Neighbours {
            position: sample * self.inner + columns.start,
            start: sample * self.classes * self.inner + columns.start,
            inner: self.inner,
            count: columns.len(),
        }
    }
}

/// Runs the loss.
pub(in crate::ops) fn forward<L: ClassLoss>(loss: &L, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
    let positions = Positions::of(&call.input_descs[0]);
    let Positions { count, classes, inner } = positions;
    let (x, targets) = (call.input(0), targets(loss, call, 2));
    let level = with.cores.level();
    let by_sample = inner.div_ceil(TOGETHER);
    let (units, logits) = if inner == 1 { (count, classes) } else { (count / inner * by_sample, classes * TOGETHER) };
    let targets = &targets;
    let sum = sum_tasks(with.cores, units, logits, |units| {
        if inner == 1 {
            let x = &x[units.start * classes..units.end * classes];
            return level.run(kernels::Loss { targets, first: units.start, x });
        }
        let loss = |unit: usize| {
            let start = unit % by_sample * TOGETHER;
            let at = positions.neighbours(unit / by_sample, &(start..inner.min(start + TOGETHER)));
            level.run(column_kernels::Loss { targets, at, x })
        };
        units.map(loss).sum()
    });
    let scale = super::scale(loss, call, positions, 2);
    call.output(0)[0] = sum as f32 * scale;
}

/// Runs the gradient; inputs `input, target, grad_loss`, then as forward.
pub(in crate::ops) fn grad_input<L: ClassLoss>(loss: &L, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
    let positions = Positions::of(&call.input_descs[0]);
    let Positions { count, classes, inner } = positions;
    let (x, targets) = (Tensor::of(call, 0), targets(loss, call, 3));
    let factor = super::scale(loss, call, positions, 3) * call.input(2)[0];
    let spread_total = targets.spread_total();
    let level = with.cores.level();
    let targets = &targets;
    if inner == 1 {
        with.cores.pieces_of(call.output(0), classes, LEAST_TASK, |start, output| {
            // A few rows at a time, which stay in the cache between being copied and being read.
            for part in parts(0..output.len() / classes, (PIECE / classes).max(1)) {
                let (first, output) =
                    (start / classes + part.start, &mut output[part.start * classes..part.end * classes]);
                if let Tensor::Apart(data) = x {
                    output.copy_from_slice(&data[first * classes..][..output.len()]);
                }
                level.run(kernels::Gradient { targets, first, factor, spread_total, rows: output });
            }
        });
        return;
    }
    let together = columns_of_task(count / inner, inner);
    let samples = call.output(0).chunks_exact_mut(classes * inner).enumerate();
    let mut tasks: Vec<_> = samples
        .flat_map(|(sample, output)| {
            let blocks = Block::new(output, classes, inner, inner).grid(classes, together);
            blocks.into_iter().enumerate().map(move |(i, block)| (sample, i * together, block))
        })
        .collect();
    let x = match x {
        Tensor::Apart(data) => Some(data),
        Tensor::InOutput => None,
    };
    with.cores.each(&mut tasks, |_, (sample, first, block)| {
        for columns in parts(0..block.columns(), TOGETHER) {
            let at = positions.neighbours(*sample, &(*first + columns.start..*first + columns.end));
            let block = block.part(0..classes, columns);
            level.run(column_kernels::Gradient { targets, at, factor, spread_total, x, block });
        }
    });
}
