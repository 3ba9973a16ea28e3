//! Softmax cross-entropy with probabilities as targets.

use crate::error::OpError;
use crate::ops::loss::class_loss::{self, ClassLoss, Coordinate, Options, Positions};
use crate::ops::loss::sample_weights;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Fill, Native, Op, Real, Resources, expect_count, expect_dtype,
    expect_shape,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// `loss = mean over positions of Σ_c w_c q_c (ln Σⱼ exp(inputⱼ) − input_c)`, where `q = (1 − s) target + s/C`, s is the label
/// smoothing and w the weights of the classes (1 where there are none). Where `sample_weights`, each position is multiplied by the
/// weight of its sample
///
/// | tensor | shape |
/// |---|---|
/// | input (logits), target | `[N, C, ...inner]`, both alike |
/// | class_weights, only where `weighted` | `[C]` |
/// | sample_weight, only where `sample_weights` | `[W]`, see [`loss`](crate::ops::loss) |
/// | loss | `[1]` |
///
/// There are N · inner positions. Targets need not add up to 1. **Saved for backward:** input and target; the softmax is
/// recomputed. **In place:** no.
/// **Numerics:** the largest logit of a position is subtracted first. Sums in f32, in two levels and always in the same
/// order. The target gets no gradient.
///
/// # Errors
/// Where the shapes or types do not fit, there are more than 2²⁰ classes, or the smoothing is not in 0..=1; backward, where a
/// gradient for the target or weights is wanted.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html>
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SoftCrossEntropy {
    /// The share of the target that is spread evenly over all classes.
    pub label_smoothing: f32,
    /// Whether there is an input `class_weights`.
    pub weighted: bool,
    /// Whether there is an input `sample_weight`.
    pub sample_weights: bool,
}

impl Op for SoftCrossEntropy {
    fn name(&self) -> &'static str {
        "soft_cross_entropy"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let op = "soft_cross_entropy";
        expect_count(op, inputs, self.options().inputs())?;
        Positions::expect(op, &inputs[0])?;
        expect_dtype(op, "target", &inputs[1], DType::F32)?;
        expect_shape(op, "target", &inputs[1], inputs[0].shape.clone())?;
        self.options().expect(op, inputs)?;
        Ok(vec![TensorDesc::f32([1])])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        class_loss::backward(self, graph, forward)
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

impl Native for SoftCrossEntropy {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        class_loss::run_native(self, call, with);
    }
}

impl SoftCrossEntropy {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        class_loss::forward_twin(self, call);
    }
}

impl ClassLoss for SoftCrossEntropy {
    const NAME: &'static str = "soft_cross_entropy";
    const GRAD_INPUT: &'static str = "soft_cross_entropy.grad_input";

    fn options(&self) -> Options {
        let SoftCrossEntropy { label_smoothing, weighted, sample_weights } = *self;
        Options { label_smoothing, ignore_index: None, normalized: false, weighted, sample_weights }
    }

    fn share<T: Real>(&self, call: &Call<'_, T>, at: Coordinate) -> Option<T> {
        Some(call.input(1)[at.element])
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, op: SoftCrossEntropy, shape: &[usize]| {
        let desc = TensorDesc::f32(shape);
        let positions = desc.numel() / shape[1];
        let mut case = Case::new(name, op, [desc.clone(), desc])
            .fill(1, Fill::Uniform(0.0, 1.0))
            .no_grad(1)
            .reduction(positions.max(shape[1]));
        if op.weighted {
            case.inputs.push((TensorDesc::f32([shape[1]]), Fill::Uniform(0.25, 4.0)));
            case.wanted.push(false);
        }
        case
    };
    let plain = SoftCrossEntropy::default();
    let smooth = SoftCrossEntropy { label_smoothing: 0.1, ..plain };
    let weighted = SoftCrossEntropy { weighted: true, ..plain };
    let all = SoftCrossEntropy { label_smoothing: 0.2, ..weighted };
    let samples = |count: usize, rest: &str, op: SoftCrossEntropy, shape: &[usize]| {
        let op = SoftCrossEntropy { sample_weights: true, ..op };
        sample_weights::case(case(&format!("samples{count}_{rest}"), op, shape), count)
    };
    vec![
        case("1x2", plain, &[1, 2]),
        case("4x10", plain, &[4, 10]),
        case("2x300", plain, &[2, 300]),
        case("3x1", plain, &[3, 1]).large(),
        case("extreme_4x5", plain, &[4, 5]).fill(0, Fill::Uniform(-100.0, 100.0)),
        case("pixels_2x3x4x5", plain, &[2, 3, 4, 5]),
        case("steps_3x4x7", smooth, &[3, 4, 7]),
        case("smooth_4x10", smooth, &[4, 10]),
        case("weighted_7x5", weighted, &[7, 5]),
        case("all_2x3x5x7", all, &[2, 3, 5, 7]),
        samples(7, "7x3", plain, &[7, 3]),
        samples(3, "6x5", plain, &[6, 5]),
        samples(1, "4x10", smooth, &[4, 10]),
        samples(2, "all_4x3x5x7", all, &[4, 3, 5, 7]),
        case("long_rows_all_2x517x3", all, &[2, 517, 3]).large(),
        samples(2, "long_rows_all_4x517x3", all, &[4, 517, 3]).large(),
        case("pixels_all_3x21x65x67", all, &[3, 21, 65, 67]).large(),
    ]
}
