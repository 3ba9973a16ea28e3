//! Normalization of each sample over its last axes.

use crate::error::OpError;
use crate::ops::norm::normalization::{Grouping, Normalization, RowCases, normalization_op, row_cases};
use crate::ops::onnx;
use crate::ops::{Affine, Call, Case, Dispatch, Real};
use crate::shader::Target;
use crate::tensor::{TensorDesc, ValueId};

/// `output = (input − mean) / √(var + eps) · weight + bias`; mean and var are those over the last `dims` axes
///
/// | tensor | shape |
/// |---|---|
/// | input | `[…, D₁, …, D_dims]` |
/// | weight, bias, as `affine` says | `[D₁, …, D_dims]` |
/// | output 0 | as input |
/// | outputs 1, 2: mean and var (biased) | the input's without the last `dims` axes |
///
/// **Saved for backward:** the input, the weight, and outputs 1 and 2, which get no gradient: two numbers per row spare
/// backward two passes over it. **In place:** forward on the input, `layer_norm.backward` on the input or the gradient.
/// **Numerics:** f32. Mean and var are made in one pass by Welford's updates, relative to the row's first element, and
/// partial ones are put together in pairs. Orders of sums, those of the gradients of weight and bias too, depend on the
/// shape only.
///
/// # Errors
/// Where `dims` is 0 or takes in the first axis (the batch), weight or bias has another shape than those axes, an input is
/// not f32, or `eps` is not above 0; backward, where outputs 1 or 2 get a gradient.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.LayerNorm.html>, <https://arxiv.org/abs/1607.06450>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// How many last axes are normalized together.
    pub dims: usize,
    /// Added to var.
    pub eps: f32,
    /// Whether there are weight and bias.
    pub affine: Affine,
}

impl LayerNorm {
    pub(in crate::ops) fn normalization(&self) -> Normalization {
        Normalization {
            op: "layer_norm",
            backward: "layer_norm.backward",
            statistics_name: "layer_norm (for its mean and var)",
            grouping: Grouping::Rows(self.dims),
            eps: self.eps,
            centered: true,
            affine: self.affine,
            relu: false,
            frozen: false,
            batch_separable: true,
        }
    }
}

normalization_op!(LayerNorm, {
    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let axes = call.extents(0).split_off(call.rank(0) - self.dims).into_iter().collect::<Option<Vec<_>>>()?;
        let weight = if self.affine.has_weight() {
            call.input(1)
        } else {
            call.floats(axes.clone(), vec![1.0; axes.iter().product()])
        };
        let value = call.input(0);
        let bias = if self.affine.has_bias() { vec![call.input(2)] } else { Vec::new() };
        let inputs: Vec<&str> = [&value, &weight].into_iter().chain(&bias).map(String::as_str).collect();
        let attributes = [("axis", (-(self.dims as i64)).into()), ("epsilon", self.eps.into())];
        Some(vec![call.node("LayerNormalization", &inputs, attributes)])
    }
});

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    use RowCases::{Few, Large, Small};
    let cases = |affine: Affine, kinds: &[RowCases]| {
        row_cases(affine, kinds, |dims, eps, affine| LayerNorm { dims, eps, affine })
    };
    [cases(Affine::Full, &[Few, Small, Large]), cases(Affine::None, &[Few, Small]), cases(Affine::Weight, &[Few])]
        .concat()
}
