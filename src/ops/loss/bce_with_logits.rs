//! Binary cross-entropy of logits.

use crate::ops::elementwise::sigmoid::sigmoid;
use crate::ops::loss::elementwise_loss::{self, ElementwiseLoss, elementwise_loss};
use crate::ops::loss::sample_weights;
use crate::ops::{Case, Fill, Real};
use crate::tensor::TensorDesc;

/// `loss = mean((1 − t) x + (1 + (w − 1) t) (ln(1 + exp(−|x|)) + max(−x, 0)))` over all elements: binary cross-entropy of
/// `sigmoid(x)` and t in which a positive example counts w times. Where `sample_weights`, each element is multiplied by the weight of
/// its sample
///
/// | tensor | shape |
/// |---|---|
/// | input x, target t in 0..1 | any, both alike |
/// | pos_weight w, only where `weighted` | `[1]`, or `[C]` for an input `[N, C, ...]` |
/// | sample_weight, only where `sample_weights` | `[W]`, see [`loss`](crate::ops::loss) |
/// | loss | `[1]` |
///
/// Without `pos_weight` w is 1. **Saved for backward:** input and target. **In place:** no.
/// **Numerics:** finite for every finite input; sums in f32, in two levels and always in the same order. The target
/// gets no gradient.
///
/// # Errors
/// Where the shapes do not fit or an input is not f32; backward, where a gradient for the target or weights is wanted.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BceWithLogits {
    /// Whether there is an input `pos_weight`.
    pub weighted: bool,
    /// Whether there is an input `sample_weight`.
    pub sample_weights: bool,
}

impl ElementwiseLoss for BceWithLogits {
    const NAME: &'static str = "bce_with_logits";
    const GRAD_INPUT: &'static str = "bce_with_logits.grad_input";
    const FLOPS: u64 = 14;
    const OF_DIFFERENCE: bool = false;

    fn weighted(&self) -> bool {
        self.weighted
    }

    fn sample_weights(&self) -> bool {
        self.sample_weights
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T, t: T, weight: T) -> T {
        (T::ONE - t) * x + factor(t, weight) * ((-x.abs()).exp().ln_1p() + (-x).max(T::ZERO))
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, x: T, t: T, weight: T) -> T {
        factor(t, weight) * sigmoid(x) - weight * t
    }
}

#[inline(always)]
fn factor<T: Real>(t: T, weight: T) -> T {
    T::ONE + (weight - T::ONE) * t
}

elementwise_loss!(BceWithLogits);

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let shares = Fill::Uniform(0.0, 1.0);
    let plain = BceWithLogits::default();
    let mut cases = elementwise_loss::cases(plain, "", shares);
    let extreme = Fill::Uniform(-100.0, 100.0);
    cases.push(elementwise_loss::case(plain, "extreme", &[13], shares).fill(0, extreme));
    cases.extend(elementwise_loss::sample_cases(BceWithLogits { sample_weights: true, ..plain }, "", shares));
    let of_op = |op: BceWithLogits, name: &str, shape: &[usize], weights: usize| {
        let mut case = elementwise_loss::case(op, name, shape, shares);
        case.inputs.push((TensorDesc::f32([weights]), Fill::Uniform(0.25, 4.0)));
        case.wanted.push(false);
        case
    };
    let op = BceWithLogits { weighted: true, ..plain };
    let weighted = |name: &str, shape: &[usize], weights: usize| of_op(op, name, shape, weights);
    let samples = |samples: usize, rest: &str, shape: &[usize], weights: usize| {
        let op = BceWithLogits { sample_weights: true, ..op };
        sample_weights::case(of_op(op, &format!("samples{samples}_{rest}"), shape, weights), samples)
    };
    cases.extend([
        weighted("one_weight_7", &[7], 1),
        weighted("weighted_4x5", &[4, 5], 5),
        weighted("weighted_2x3x5x7", &[2, 3, 5, 7], 3),
        weighted("weighted_extreme_3x13", &[3, 13], 13).fill(0, extreme),
        weighted("weighted_3x17x67", &[3, 17, 67], 17),
        samples(2, "one_weight_4x5", &[4, 5], 1),
        samples(2, "weighted_4x3x5x7", &[4, 3, 5, 7], 3),
    ]);
    cases
}
