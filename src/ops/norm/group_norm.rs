//! Normalization of each sample over groups of channels.

use crate::error::OpError;
use crate::ops::elementwise::activation;
use crate::ops::norm::normalization::{Grouping, Normalization, normalization_op};
use crate::ops::onnx;
use crate::ops::{Affine, Call, Case, Dispatch, Real};
use crate::shader::Target;
use crate::tensor::{TensorDesc, ValueId};

/// `output = (input − mean) / √(var + eps) · weight + bias`; mean and var are those of each sample over `C / groups`
/// neighbouring channels with all their places. With as many groups as channels it is instance normalization.
///
/// | tensor | shape |
/// |---|---|
/// | input | `[N, C, …]` |
/// | weight, bias, as `affine` says | `[C]` |
/// | output 0 | as input |
/// | outputs 1, 2: mean and var (biased) | `[N, groups]` |
///
/// **Saved for backward:** the input, the weight, and outputs 1 and 2, which get no gradient: two numbers per group spare
/// backward two passes over it. **In place:** forward on the input, `group_norm.backward` on the input or the gradient.
/// **Numerics:** f32. Mean and var are made in one pass by Welford's updates, relative to the group's first element, and
/// partial ones are put together in pairs. Orders of sums, those of the gradients of weight and bias too, depend on the
/// shape only. A group of one value becomes its bias.
///
/// # Errors
/// Where `groups` does not divide C, the input has fewer than 2 dimensions, weight or bias is not `[C]`, an input is not
/// f32, or `eps` is not above 0; backward, where outputs 1 or 2 get a gradient.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.GroupNorm.html>, <https://arxiv.org/abs/1803.08494>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNorm {
    /// Groups of channels.
    pub groups: usize,
    /// Added to var.
    pub eps: f32,
    /// Whether there are weight and bias.
    pub affine: Affine,
}

impl GroupNorm {
    fn normalization(&self) -> Normalization {
        Normalization {
            op: "group_norm",
            backward: "group_norm.backward",
            statistics_name: "group_norm (for its mean and var)",
            grouping: Grouping::Groups(self.groups),
            eps: self.eps,
            centered: true,
            affine: self.affine,
            relu: false,
            frozen: false,
            batch_separable: true,
        }
    }
}

normalization_op!(GroupNorm, {
    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let (value, rank) = (call.input(0), call.rank(0));
        let shape = call.output_shape(0)?;
        let (ones, zeros) = (vec![1.0; self.groups], vec![0.0; self.groups]);
        let (ones, zeros) = (call.floats([self.groups], ones), call.floats([self.groups], zeros));
        let groups = call.reshape(&value, [0, self.groups as i64, -1]);
        let inputs = [&groups[..], &ones, &zeros];
        let normalized = call.node("InstanceNormalization", &inputs, [("epsilon", self.eps.into())]);
        let mut output = call.reshape(&normalized, shape);
        for (index, operator) in [(1, "Mul"), (2, "Add")].into_iter().take(self.affine.tensors()) {
            let parameter = call.input(index);
            let parameter = call.over_channels(&parameter, rank);
            output = call.apply(operator, &[&output, &parameter]);
        }
        Some(vec![output])
    }
});

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |affine: Affine, groups: usize, shape: &[usize]| {
        let mut inputs = vec![TensorDesc::f32(shape)];
        inputs.extend(vec![TensorDesc::f32([shape[1]]); affine.tensors()]);
        let name = format!("{}groups{groups}_{}", affine.prefix(), activation::shape_name(shape));
        let terms = shape.iter().product::<usize>() / shape[1] * (shape[1] / groups);
        Case::new(name, GroupNorm { groups, eps: 1e-5, affine }, inputs).reduction(terms)
    };
    let full = |groups: usize, shape: &[usize]| case(Affine::Full, groups, shape);
    vec![
        full(1, &[2, 1]),
        full(2, &[3, 6]),
        full(1, &[2, 5, 3]),
        full(3, &[2, 6, 4]),
        full(2, &[2, 6, 2, 2]),
        full(6, &[2, 6, 3, 3]),
        full(5, &[1, 5, 7]),
        full(2, &[2, 4, 3, 5]),
        case(Affine::None, 2, &[2, 4, 3, 3]),
        case(Affine::Weight, 2, &[2, 4, 4]),
        full(4, &[3, 8, 9, 8]).large(),
        full(3, &[2, 51, 13, 7]).large(),
        full(32, &[5, 64]).large(),
        full(2, &[2, 6, 64, 68]).large(),
        full(1, &[1, 3, 129, 127]).large(),
        case(Affine::None, 1, &[2, 2, 128, 64]).large(),
    ]
}
