//! Batch normalization by the statistics of the batch at hand, with or without a rectified linear unit after it.

use std::sync::Arc;

use crate::error::OpError;
use crate::ops::elementwise::activation;
use crate::ops::norm::normalization::{Grouping, Normalization, normalization_op};
use crate::ops::{Affine, BuiltInActivation, Call, Case, Dispatch, Fill, Op, Real};
use crate::shader::Target;
use crate::tensor::{TensorDesc, ValueId};

/// `output = (input − mean) / √(var + eps) · weight + bias`, with `relu` `max(output, 0)`; mean and var are those of each
/// channel over all samples and places
///
/// | tensor | shape |
/// |---|---|
/// | input | `[N, C, …]` |
/// | weight, bias, as `affine` says | `[C]` |
/// | output 0 | as input |
/// | outputs 1, 2: mean and var, the sum of squares around the mean divided by their number (biased) | `[C]` |
///
/// **Saved for backward:** the input, outputs 1 and 2, the weight, and with `relu` the bias: backward finds out again
/// where the output is above 0. Outputs 1 and 2 get no gradient. **In place:** forward on the input, `batch_norm.backward`
/// on the input or the gradient.
/// **Numerics:** f32. Mean and var are made in one pass by Welford's updates, relative to the channel's first element, and
/// partial ones are put together in pairs, so that a mean far from 0 costs no digits of var. A channel of many values is
/// split over up to 1024 workgroups (more beyond a billion values); all orders depend on the shape only. NaN passes `relu`.
///
/// It mixes samples: a batch that is split has other statistics in each part. `ghost` says that this is accepted.
///
/// # Errors
/// Where the input has fewer than 2 dimensions or only one value per channel (whose variance would always be 0), weight or
/// bias is not `[C]`, an input is not f32, or `eps` is not above 0; backward, where outputs 1 or 2 get a gradient.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html>, <https://arxiv.org/abs/1502.03167>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNorm {
    /// Added to var.
    pub eps: f32,
    /// Whether there are weight and bias.
    pub affine: Affine,
    /// Whether negative outputs become 0.
    pub relu: bool,
    /// Whether a micro-batch's own statistics are accepted.
    pub ghost: bool,
}

impl BatchNorm {
    fn normalization(&self) -> Normalization {
        Normalization {
            op: "batch_norm",
            backward: "batch_norm.backward",
            statistics_name: "batch_norm (for its mean and var)",
            grouping: Grouping::Channels,
            eps: self.eps,
            centered: true,
            affine: self.affine,
            relu: self.relu,
            frozen: false,
            batch_separable: self.ghost,
        }
    }
}

normalization_op!(BatchNorm, {
    fn with_activation(&self, activation: BuiltInActivation) -> Option<Arc<dyn Op>> {
        let BuiltInActivation::Relu = activation;
        (!self.relu).then(|| Arc::new(BatchNorm { relu: true, ..*self }) as Arc<dyn Op>)
    }

    fn split_advice(&self) -> Option<&'static str> {
        Some(
            "let each micro-batch have its own statistics (--batch-norm ghost), or use the running ones (--batch-norm frozen)",
        )
    }
});

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |prefix: &str, affine: Affine, relu: bool, shape: &[usize]| {
        let mut inputs = vec![TensorDesc::f32(shape)];
        inputs.extend(vec![TensorDesc::f32([shape[1]]); affine.tensors()]);
        let terms = shape.iter().product::<usize>() / shape[1];
        // Of two values, gradients are what is left of numbers that all but cancel: less so with a large eps.
        let eps = if terms == 2 { 0.1 } else { 1e-5 };
        let op = BatchNorm { eps, affine, relu, ghost: false };
        Case::new(format!("{prefix}{}", activation::shape_name(shape)), op, inputs).reduction(terms)
    };
    let full = |shape: &[usize]| case("", Affine::Full, false, shape);
    let relu = |shape: &[usize]| case("relu_", Affine::Full, true, shape);
    vec![
        full(&[2, 1]),
        full(&[5, 3]),
        full(&[3, 17]),
        full(&[2, 3, 5]),
        full(&[1, 2, 8]),
        full(&[2, 3, 4, 5]),
        full(&[2, 3, 7, 7]),
        full(&[1, 4, 1, 2]),
        full(&[33, 9]),
        relu(&[5, 3]),
        relu(&[2, 3, 4, 5]),
        relu(&[2, 2, 3, 3]),
        case("plain_", Affine::None, false, &[4, 3, 2, 3]),
        case("plain_relu_", Affine::None, true, &[4, 3, 2, 3]),
        case("weight_", Affine::Weight, false, &[4, 3, 5]),
        relu(&[2, 2, 3, 4, 4]).large(),
        // Means far from 0.
        full(&[41, 9]).fill(0, Fill::Uniform(100.0, 101.0)).large(),
        full(&[4, 2, 31, 29]).fill(0, Fill::Uniform(-101.0, -100.0)).large(),
        full(&[65, 8]).large(),
        full(&[257, 3]).large(),
        full(&[1031, 70]).large(),
        full(&[6, 3, 257]).large(),
        relu(&[4, 3, 64, 36]).large(),
        relu(&[5, 2, 127, 31]).large(),
        case("plain_", Affine::None, false, &[3, 2, 64, 64]).large(),
        relu(&[9001, 3]).large(),
        full(&[2, 1, 1024, 521]).large(),
    ]
}
