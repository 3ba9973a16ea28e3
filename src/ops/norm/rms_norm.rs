//! Normalization of each sample over its last axes by the root of the mean square.

use crate::error::OpError;
use crate::ops::norm::normalization::{Grouping, Normalization, RowCases, normalization_op, row_cases};
use crate::ops::onnx;
use crate::ops::{Affine, Call, Case, Dispatch, Real};
use crate::shader::Target;
use crate::tensor::{TensorDesc, ValueId};

/// `output = input / √(mean of input² + eps) · weight`, the mean being that over the last `dims` axes
///
/// | tensor | shape |
/// |---|---|
/// | input | `[…, D₁, …, D_dims]` |
/// | weight, bias, as `affine` says (PyTorch has no bias) | `[D₁, …, D_dims]` |
/// | output 0 | as input |
/// | output 1: mean of input² | the input's without the last `dims` axes |
///
/// **Saved for backward:** the input, the weight, and output 1, which gets no gradient: a number per row spares backward a
/// pass over it. **In place:** forward on the input, `rms_norm.backward` on the input or the gradient.
/// **Numerics:** f32; orders of sums, that of the gradient of the weight too, depend on the shape only.
///
/// # Errors
/// Where `dims` is 0 or takes in the first axis (the batch), the weight has another shape than those axes, an input is not
/// f32, or `eps` is not above 0; backward, where output 1 gets a gradient.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.RMSNorm.html>, <https://arxiv.org/abs/1910.07467>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm {
    /// How many last axes are normalized together.
    pub dims: usize,
    /// Added to the mean square.
    pub eps: f32,
    /// Whether there is a weight.
    pub affine: Affine,
}

impl RmsNorm {
    fn normalization(&self) -> Normalization {
        Normalization {
            op: "rms_norm",
            backward: "rms_norm.backward",
            statistics_name: "rms_norm (for its mean square)",
            grouping: Grouping::Rows(self.dims),
            eps: self.eps,
            centered: false,
            affine: self.affine,
            relu: false,
            frozen: false,
            batch_separable: true,
        }
    }
}

normalization_op!(RmsNorm, {
    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let rank = call.rank(0);
        let axes: Vec<usize> = (rank - self.dims..rank).collect();
        let (value, two, eps) = (call.input(0), call.number(2.0), call.number(self.eps));
        let squares = call.apply("Pow", &[&value, &two]);
        let mean = call.reduce_of(&squares, rank, "ReduceMean", &axes, true);
        let mean = call.apply("Add", &[&mean, &eps]);
        let root = call.apply("Sqrt", &[&mean]);
        let mut output = call.apply("Div", &[&value, &root]);
        if self.affine.has_weight() {
            let weight = call.input(1);
            output = call.apply("Mul", &[&output, &weight]);
        }
        Some(vec![output])
    }
});

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    use RowCases::{Few, Large, Small};
    let cases = |affine: Affine, kinds: &[RowCases]| {
        row_cases(affine, kinds, |dims, eps, affine| RmsNorm { dims, eps, affine })
    };
    [cases(Affine::Weight, &[Few, Small, Large]), cases(Affine::None, &[Few, Small]), cases(Affine::Full, &[Few])]
        .concat()
}
