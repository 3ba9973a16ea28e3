//! Batch normalization by given statistics, as in evaluation.

use crate::ops::onnx;
use std::sync::Arc;

use crate::error::OpError;
use crate::ops::elementwise::activation;
use crate::ops::norm::normalization::{Grouping, Normalization, normalization_op};
use crate::ops::{Affine, BuiltInActivation, Call, Case, Dispatch, Fill, Op, Real};
use crate::shader::Target;
use crate::tensor::{TensorDesc, ValueId};

/// `output = (input − running_mean) / √(running_var + eps) · weight + bias`, with `relu` `max(output, 0)`
///
/// | tensor | shape |
/// |---|---|
/// | input | `[N, C, …]` |
/// | running_mean, running_var | `[C]` |
/// | weight, bias, as `affine` says | `[C]` |
/// | output | as input |
///
/// **Saved for backward:** running_var and weight; the input and running_mean only for the gradient of the weight or
/// with `relu`, then the bias too: backward finds out again where the output is above 0. The statistics get no gradient.
/// **In place:** forward on the input, backward on the gradient, or on the input where it reads that.
/// **Numerics:** f32; the gradients of weight and bias are sums whose order depends on the shape only. NaN passes `relu`.
///
/// # Errors
/// Where the input has fewer than 2 dimensions, another tensor is not `[C]`, an input is not f32, or `eps` is not above 0.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html> (evaluation)
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormEval {
    /// Added to running_var.
    pub eps: f32,
    /// Whether there are weight and bias.
    pub affine: Affine,
    /// Whether negative outputs become 0.
    pub relu: bool,
}

impl BatchNormEval {
    fn normalization(&self) -> Normalization {
        Normalization {
            op: "batch_norm_eval",
            backward: "batch_norm_eval.backward",
            statistics_name: "batch_norm_eval",
            grouping: Grouping::Channels,
            eps: self.eps,
            centered: true,
            affine: self.affine,
            relu: self.relu,
            frozen: true,
            batch_separable: true,
        }
    }
}

normalization_op!(BatchNormEval, {
    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let channels = call.extents(1)[0]?;
        // Input, mean, var, weight, bias; there weight and bias come first.
        let mut affine = [1.0, 0.0].map(|value| call.floats([channels], vec![value; channels]));
        if self.affine.has_weight() {
            affine[0] = call.input(3);
        }
        if self.affine.has_bias() {
            affine[1] = call.input(4);
        }
        let [value, mean, var] = [0, 1, 2].map(|i| call.input(i));
        let inputs = [&value[..], &affine[0], &affine[1], &mean, &var];
        let output = call.node("BatchNormalization", &inputs, [("epsilon", self.eps.into())]);
        Some(vec![call.with_relu(output, self.relu)])
    }

    fn with_activation(&self, activation: BuiltInActivation) -> Option<Arc<dyn Op>> {
        let BuiltInActivation::Relu = activation;
        (!self.relu).then(|| Arc::new(BatchNormEval { relu: true, ..*self }) as Arc<dyn Op>)
    }
});

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |prefix: &str, affine: Affine, relu: bool, shape: &[usize]| {
        let channel = TensorDesc::f32([shape[1]]);
        let mut inputs = vec![TensorDesc::f32(shape), channel.clone(), channel.clone()];
        inputs.extend(vec![channel; affine.tensors()]);
        let terms = shape.iter().product::<usize>() / shape[1];
        Case::new(
            format!("{prefix}{}", activation::shape_name(shape)),
            BatchNormEval { eps: 1e-5, affine, relu },
            inputs,
        )
        .fill(2, Fill::Uniform(0.2, 3.0))
        .no_grad(1)
        .no_grad(2)
        .reduction(terms)
    };
    let full = |shape: &[usize]| case("", Affine::Full, false, shape);
    vec![
        full(&[1, 1]),
        full(&[5, 3]),
        full(&[2, 3, 5]),
        full(&[2, 3, 4, 5]),
        full(&[2, 2, 2, 3, 3]),
        case("relu_", Affine::Full, true, &[5, 3]),
        case("relu_", Affine::Full, true, &[2, 3, 2, 2]),
        case("plain_", Affine::None, false, &[4, 3, 3]),
        case("plain_relu_", Affine::None, true, &[4, 3, 4]),
        case("weight_", Affine::Weight, false, &[4, 3, 4]),
        case("frozen_", Affine::Full, false, &[3, 5, 7]).no_grad(3).no_grad(4),
        case("frozen_bias_", Affine::Full, false, &[3, 5, 7]).no_grad(3),
        case("frozen_relu_", Affine::Full, true, &[3, 5, 7]).no_grad(3).no_grad(4),
        full(&[131, 17]).large(),
        case("relu_", Affine::Full, true, &[6, 3, 127, 31]).large(),
        case("frozen_bias_", Affine::Full, false, &[6, 3, 64, 64]).no_grad(3).large(),
    ]
}
