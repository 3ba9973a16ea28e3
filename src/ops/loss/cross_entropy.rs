//! Softmax cross-entropy with integer labels.

use crate::error::OpError;
use crate::ops::loss::class_loss::{self, ClassLoss, Coordinate, Options, Positions};
use crate::ops::loss::sample_weights;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Fill, Integers, Native, Op, Real, Resources, expect_count,
};
use crate::shader::Target;
use crate::tensor::{TensorDesc, ValueId};

/// `loss = scale · Σ w_y ((1 − s) ℓ_y) + s/C Σ_c w_c ℓ_c` over all positions, where `ℓ_c = ln Σⱼ exp(inputⱼ) − input_c`, y is the
/// label, s the label smoothing and w the weights of the classes (1 where there are none). Where `sample_weights`, each term is
/// multiplied by the weight of its sample
///
/// | tensor | shape |
/// |---|---|
/// | input (logits) | `[N, C, ...inner]` |
/// | labels, u32 | `[N, ...inner]` |
/// | normalizer, only where `normalized` | `[1]` |
/// | class_weights, only where `weighted` | `[C]` |
/// | sample_weight, only where `sample_weights` | `[W]`, see [`loss`](crate::ops::loss) |
/// | loss | `[1]` |
///
/// `scale` is 1 / (N · inner), or the normalizer: PyTorch's mean has there 1 over the sum of the weights of all labels that
/// are not ignored. It is an input because a micro-batch cannot know it: all of a step count together.
///
/// **Saved for backward:** input and labels; the softmax is recomputed. **In place:** no.
/// **Numerics:** the largest logit of a position is subtracted first. A label that is neither below C nor ignored makes the
/// loss NaN. Sums in f32, in two levels and always in the same order.
///
/// # Errors
/// Where the shapes or types do not fit, there are more than 2²⁰ classes, the smoothing is not in 0..=1, or there are class weights
/// or an ignored label but no normalizer.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html>
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CrossEntropy {
    /// The share of the target that is spread evenly over all classes.
    pub label_smoothing: f32,
    /// Positions with this label do not count.
    pub ignore_index: Option<u32>,
    /// Whether there is an input `normalizer`.
    pub normalized: bool,
    /// Whether there is an input `class_weights`.
    pub weighted: bool,
    /// Whether there is an input `sample_weight`.
    pub sample_weights: bool,
}

impl Op for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let op = "cross_entropy";
        if (self.weighted || self.ignore_index.is_some()) && !self.normalized {
            let reason = "where labels count differently, the sum of their weights must be given".to_owned();
            return Err(OpError::Setting { op, setting: "normalized", value: "false".to_owned(), reason });
        }
        expect_count(op, inputs, self.options().inputs())?;
        Positions::expect(op, &inputs[0])?;
        class_loss::expect_labels(op, inputs)?;
        self.options().expect(op, inputs)?;
        Ok(vec![TensorDesc::f32([1])])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        class_loss::backward(self, graph, forward)
    }

    fn integers(&self, input: usize, inputs: &[TensorDesc]) -> Option<Integers> {
        let &count = inputs[0].shape.get(1).filter(|_| input == 1)?;
        Some(Integers::Indices { count, besides: self.ignore_index })
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        class_loss::cost(inputs, false)
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        class_loss::workspaces(&inputs[0])
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        class_loss::dispatches(self, inputs)
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for CrossEntropy {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        class_loss::run_native(self, call, with);
    }
}

impl CrossEntropy {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        class_loss::forward_twin(self, call);
    }
}

impl ClassLoss for CrossEntropy {
    const NAME: &'static str = "cross_entropy";
    const GRAD_INPUT: &'static str = "cross_entropy.grad_input";

    fn options(&self) -> Options {
        let CrossEntropy { label_smoothing, ignore_index, normalized, weighted, sample_weights } = *self;
        Options { label_smoothing, ignore_index, normalized, weighted, sample_weights }
    }

    fn share<T: Real>(&self, call: &Call<'_, T>, at: Coordinate) -> Option<T> {
        let label = call.ints(1)[at.position];
        match label as usize {
            _ if self.ignore_index == Some(label) => None,
            label if label >= at.classes => Some(T::from_f64(f64::NAN)),
            label => Some(if label == at.class { T::ONE } else { T::ZERO }),
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, op: CrossEntropy, shape: &[usize]| {
        let labels = TensorDesc::u32(class_loss::label_shape(&shape.into()));
        let positions = labels.numel();
        let mut case = Case::new(name, op, [TensorDesc::f32(shape), labels])
            .fill(1, Fill::Labels(shape[1] as u32))
            .reduction(positions.max(shape[1]));
        if op.normalized {
            case.inputs.push((TensorDesc::f32([1]), Fill::Uniform(0.05, 0.5)));
        }
        if op.weighted {
            case.inputs.push((TensorDesc::f32([shape[1]]), Fill::Uniform(0.25, 4.0)));
        }
        case.wanted.resize(case.inputs.len(), false);
        case
    };
    let plain = CrossEntropy::default();
    let normalized = CrossEntropy { normalized: true, ..plain };
    let smooth = CrossEntropy { label_smoothing: 0.1, ..plain };
    let ignoring = CrossEntropy { ignore_index: Some(1), ..normalized };
    let weighted = CrossEntropy { weighted: true, ..normalized };
    let all = CrossEntropy { label_smoothing: 0.2, ignore_index: Some(1), ..weighted };
    let samples = |count: usize, rest: &str, op: CrossEntropy, shape: &[usize]| {
        let op = CrossEntropy { sample_weights: true, ..op };
        sample_weights::case(case(&format!("samples{count}_{rest}"), op, shape), count)
    };
    vec![
        case("1x2", plain, &[1, 2]),
        case("4x10", plain, &[4, 10]),
        case("7x3", plain, &[7, 3]),
        case("2x300", plain, &[2, 300]),
        case("3x1", plain, &[3, 1]),
        case("extreme_4x5", plain, &[4, 5]).fill(0, Fill::Uniform(-100.0, 100.0)),
        case("pixels_2x3x4x5", plain, &[2, 3, 4, 5]),
        case("steps_3x4x7", plain, &[3, 4, 7]),
        case("smooth_4x10", smooth, &[4, 10]),
        case("smooth_extreme_4x5", smooth, &[4, 5]).fill(0, Fill::Uniform(-100.0, 100.0)),
        case("normalized_7x3", normalized, &[7, 3]),
        case("ignoring_13x3", ignoring, &[13, 3]),
        case("ignoring_smooth_13x3", CrossEntropy { label_smoothing: 0.1, ..ignoring }, &[13, 3]),
        case("weighted_7x5", weighted, &[7, 5]),
        case("all_2x3x5x7", all, &[2, 3, 5, 7]),
        samples(7, "7x3", plain, &[7, 3]),
        samples(3, "6x5", plain, &[6, 5]),
        samples(1, "4x10", smooth, &[4, 10]),
        samples(3, "steps_3x4x7", plain, &[3, 4, 7]),
        samples(2, "normalized_4x3", normalized, &[4, 3]),
        samples(2, "all_4x3x5x7", all, &[4, 3, 5, 7]),
        case("131x10", plain, &[131, 10]).large(),
        case("label_out_of_range_4x3", plain, &[4, 3]).fill(1, Fill::Constant(3.0)).large(),
        case("label_far_out_of_range_4x3", ignoring, &[4, 3]).fill(1, Fill::Constant(3e9)).large(),
        case("all_ignored_4x3", all, &[4, 3]).fill(1, Fill::Constant(1.0)).large(),
        case("long_rows_5x1031", plain, &[5, 1031]).large(),
        case("long_rows_all_2x517x3", all, &[2, 517, 3]).large(),
        samples(2, "long_rows_all_4x517x3", all, &[4, 517, 3]).large(),
        case("pixels_all_3x21x65x67", all, &[3, 21, 65, 67]).large(),
        case("more_positions_than_sums_1x2x300x301", all, &[1, 2, 300, 301]).large(),
    ]
}
