//! How many positions a classifier gets right.

use std::sync::Arc;

use crate::error::OpError;
use crate::native::lanes::largest;
use crate::native::{Kernel, Simd};
use crate::ops::loss::class_loss::{Positions, expect_labels, label_shape};
use crate::ops::loss::sample_weights::{self, Repeated};
use crate::ops::place::sum_tasks;
use crate::ops::reduce::reduction;
use crate::ops::{Call, Case, Cost, Dispatch, Fill, Integers, Native, Op, Real, Resources, Slot, expect_count};
use crate::shader::Target;
use crate::tensor::TensorDesc;

/// `correct = number of positions whose first largest logit is at the label`, of samples whose weight is not 0
///
/// | tensor | shape |
/// |---|---|
/// | input (logits) | `[N, C, ...inner]` |
/// | labels, u32 | `[N, ...inner]` |
/// | sample_weight, only where `sample_weights` | `[W]`, see [`loss`](crate::ops::loss) |
/// | correct | `[1]` |
///
/// A sample of any other weight counts in full. It has no gradient. **Numerics:** exact up to 2²⁴ positions.
///
/// # Errors
/// Where the shapes do not fit, input or weights are not f32, the labels are not u32, or there are more than 2²⁰ classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accuracy {
    /// Positions with this label do not count.
    pub ignore_index: Option<u32>,
    /// Whether there is an input `sample_weight`.
    pub sample_weights: bool,
}

params! {
    struct Params {
        positions: u32,
        classes: u32,
        inner: u32,
        splits: u32,
        steps: u32,
        ignores: u32,
        ignore_index: u32,
    }
}

impl Op for Accuracy {
    fn name(&self) -> &'static str {
        "accuracy"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("accuracy", inputs, 2 + usize::from(self.sample_weights))?;
        Positions::expect("accuracy", &inputs[0])?;
        expect_labels("accuracy", inputs)?;
        if self.sample_weights {
            sample_weights::expect("accuracy", inputs)?;
        }
        Ok(vec![TensorDesc::f32([1])])
    }

    fn integers(&self, input: usize, inputs: &[TensorDesc]) -> Option<Integers> {
        let &count = inputs[0].shape.get(1).filter(|_| input == 1)?;
        Some(Integers::Indices { count, besides: self.ignore_index })
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        Cost { flops: inputs[0].numel() as u64, bytes_moved: inputs[0].size_bytes() + inputs[1].size_bytes() }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        vec![4 * Positions::of(&inputs[0]).splits(1).0 as u64]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let positions = Positions::of(&inputs[0]);
        let (splits, steps) = positions.splits(1);
        let params = Params {
            positions: positions.count as u32,
            classes: positions.classes as u32,
            inner: positions.inner as u32,
            splits: splits as u32,
            steps: steps as u32,
            ignores: u32::from(self.ignore_index.is_some()),
            ignore_index: self.ignore_index.unwrap_or(0),
        };
        let mut count = Dispatch::new("accuracy", "count", [Slot::Input(0), Slot::Input(1), Slot::Workspace(0)])
            .params(&params)
            .loops(steps * positions.iterations(1));
        if self.sample_weights {
            count = sample_weights::bind(count, inputs, 2, positions.count);
        }
        vec![
            reduction::over_rows(count, splits, positions.lanes()),
            reduction::combine(Slot::Workspace(0), Slot::Output(0), 1, splits, 1.0),
        ]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

/// How many of some positions are right: positions whose classes are neighbours (`inner` is 1), or neighbours of which each class
/// is a row. `counts` says whether one counts.
struct Count<'a> {
    x: &'a [f32],
    inner: usize,
    labels: &'a [u32],
    counts: &'a dyn Fn(usize) -> bool,
}

/// Positions that are taken together where classes are rows.
const TOGETHER: usize = 64;

impl Kernel for Count<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> usize {
        let Count { x, inner, labels, counts } = self;
        let mut correct = 0;
        if inner == 1 {
            let classes = x.len() / labels.len();
            for (i, (x, &label)) in x.chunks_exact(classes).zip(labels).enumerate() {
                let is_correct = match x.get(label as usize) {
                    // A first logit that is not a number is never exceeded.
                    _ if x[0].is_nan() => label == 0,
                    Some(&found) => found == largest(simd, x) && !x[..label as usize].contains(&found),
                    None => false,
                };
                correct += usize::from(is_correct && counts(i));
            }
            return correct;
        }
        let together = labels.len();
        let (mut best, mut place) = ([0.0; TOGETHER], [0; TOGETHER]);
        best[..together].copy_from_slice(&x[..together]);
        for (class, x) in x.chunks(inner).enumerate().skip(1) {
            for ((best, place), &x) in best.iter_mut().zip(&mut place).zip(&x[..together]) {
                let is_better = x > *best;
                *best = if is_better { x } else { *best };
                *place = if is_better { class as u32 } else { *place };
            }
        }
        for (i, (&place, &label)) in place.iter().zip(labels).enumerate() {
            correct += usize::from(place == label && counts(i));
        }
        correct
    }
}

impl Native for Accuracy {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let (x, labels) = (call.input(0), call.ints(1));
        let Positions { count, classes, inner } = Positions::of(&call.input_descs[0]);
        let weights = Repeated::of_samples(call, self.sample_weights, count);
        let level = with.cores.level();
        let correct = sum_tasks(with.cores, count, classes, |range| {
            let mut correct = 0;
            let mut position = range.start;
            while position < range.end {
                // Neighbours of one sample.
                let together = if inner == 1 { range.len() } else { (inner - position % inner).min(TOGETHER) };
                let end = range.end.min(position + together);
                let labels = &labels[position..end];
                let start = position / inner * classes * inner + position % inner;
                let length = if inner == 1 { labels.len() * classes } else { (classes - 1) * inner + labels.len() };
                let counts = |i: usize| self.ignore_index != Some(labels[i]) && weights.at(position + i) != 0.0;
                correct += level.run(Count { x: &x[start..start + length], inner, labels, counts: &counts });
                position = end;
            }
            correct as f64
        });
        call.output(0)[0] = correct as f32;
    }
}

impl Accuracy {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, labels, positions) = (call.input(0), call.ints(1), Positions::of(&call.input_descs[0]));
        let first_largest = |position: usize| {
            let values = positions.elements(position).map(|i| input[i]).enumerate();
            values.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(class, _)| class)
        };
        let weight = sample_weights::factors(call, self.sample_weights, positions.count);
        let counts = labels.iter().enumerate().filter(|&(position, &label)| {
            self.ignore_index != Some(label)
                && weight(position) != T::ZERO
                && first_largest(position) == Some(label as usize)
        });
        let correct = counts.count();
        call.output(0)[0] = T::from_f64(correct as f64);
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, ignore_index: Option<u32>, shape: &[usize]| {
        let inputs = [TensorDesc::f32(shape), TensorDesc::u32(label_shape(&shape.into()))];
        Case::new(name, Accuracy { ignore_index, sample_weights: false }, inputs)
            .fill(1, Fill::Labels(shape[1] as u32))
            .forward_only()
    };
    // Weights of 0, 1 and 2.
    let samples = |count: usize, rest: &str, ignore_index: Option<u32>, shape: &[usize]| {
        let mut case = case(&format!("samples{count}_{rest}"), ignore_index, shape);
        case.op = Arc::new(Accuracy { ignore_index, sample_weights: true });
        let weights = case.inputs.len();
        sample_weights::case(case, count).fill(weights, Fill::Labels(3))
    };
    vec![
        case("1x2", None, &[1, 2]),
        case("7x3", None, &[7, 3]),
        case("64x10", None, &[64, 10]),
        case("131x17", None, &[131, 17]),
        case("pixels_2x3x5x7", None, &[2, 3, 5, 7]),
        case("ignoring_13x3", Some(1), &[13, 3]),
        case("ignoring_pixels_2x3x5x7", Some(2), &[2, 3, 5, 7]),
        samples(7, "7x3", None, &[7, 3]),
        samples(8, "64x10", None, &[64, 10]),
        samples(1, "4x3", None, &[4, 3]),
        samples(3, "ignoring_pixels_6x3x5x7", Some(2), &[6, 3, 5, 7]),
        samples(5, "many_classes_5x1031", None, &[5, 1031]),
        case("more_positions_than_sums_1x2x300x301", Some(0), &[1, 2, 300, 301]),
        case("many_classes_5x1031", None, &[5, 1031]),
        case("ties_many_classes_3x517x2", None, &[3, 517, 2]).fill(0, Fill::Constant(0.5)),
        case("ties_5x4", None, &[5, 4]).fill(0, Fill::Constant(0.5)),
    ]
}
