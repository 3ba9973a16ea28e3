use std::sync::Arc;

use super::*;
use crate::ops::norm::batch_norm::BatchNorm;
use crate::ops::norm::batch_norm_eval::BatchNormEval;
use crate::ops::norm::group_norm::GroupNorm;
use crate::ops::norm::layer_norm::LayerNorm;
use crate::ops::norm::rms_norm::RmsNorm;

const EPS: f32 = 1e-5;

fn refusal(op: &impl Op, shapes: &[&[usize]]) -> String {
    let descs: Vec<_> = shapes.iter().map(|&shape| TensorDesc::f32(shape)).collect();
    op.outputs(&descs).expect_err("must be refused").to_string()
}

#[test]
fn what_does_not_fit_is_refused_in_a_sentence() {
    let batch = |affine| BatchNorm { eps: EPS, affine, relu: false, ghost: false };
    for (found, expected) in [
        (
            refusal(&batch(Affine::None), &[&[1, 3, 1, 1]]),
            "batch_norm: `input` must be of more than one value per channel, because one alone has no variance, found f32[1, 3, 1, 1]",
        ),
        (refusal(&batch(Affine::None), &[&[3]]), "batch_norm: `input` must be of at least 2 dimensions, found f32[3]"),
        (
            refusal(&batch(Affine::None), &[&[3, 0]]),
            "batch_norm: `input` must be of at least one element, found f32[3, 0]",
        ),
        (refusal(&batch(Affine::Full), &[&[3, 2], &[2]]), "batch_norm takes 3 inputs, got 2"),
        (
            refusal(&batch(Affine::Full), &[&[3, 2], &[2], &[3]]),
            "batch_norm: `bias` must be of shape [2], found f32[3]",
        ),
        (
            refusal(&BatchNorm { eps: f32::NAN, ..batch(Affine::None) }, &[&[3, 2]]),
            "batch_norm: eps = NaN is not possible: it must be a number above 0",
        ),
        (
            refusal(&BatchNormEval { eps: EPS, affine: Affine::None, relu: false }, &[&[3, 2], &[2], &[1]]),
            "batch_norm_eval: `running_var` must be of shape [2], found f32[1]",
        ),
        (
            refusal(&GroupNorm { groups: 2, eps: EPS, affine: Affine::None }, &[&[3, 5, 2]]),
            "group_norm: groups = 2 is not possible: it must divide the 5 channels of f32[3, 5, 2]",
        ),
        (
            refusal(&LayerNorm { dims: 2, eps: EPS, affine: Affine::None }, &[&[3, 5]]),
            "layer_norm: dims = 2 is not possible: it must be 1 to 1, all axes of f32[3, 5] but the first",
        ),
        (
            refusal(&RmsNorm { dims: 1, eps: EPS, affine: Affine::Weight }, &[&[3, 5], &[3]]),
            "rms_norm: `weight` must be of shape [5], found f32[3]",
        ),
    ] {
        assert_eq!(found, expected);
    }
    let given = BatchNormEval { eps: EPS, affine: Affine::None, relu: false };
    let shapes: [&[usize]; 3] = [&[1, 3], &[3], &[3]];
    assert!(given.outputs(&shapes.map(TensorDesc::f32)).is_ok(), "given statistics do for one value");
}

#[test]
fn only_exact_batch_statistics_mix_samples() {
    let batch = |ghost| BatchNorm { eps: EPS, affine: Affine::None, relu: false, ghost }.flags().batch_separable;
    assert!(batch(true) && !batch(false));
    assert!(BatchNormEval { eps: EPS, affine: Affine::None, relu: false }.flags().batch_separable);
    assert!(GroupNorm { groups: 1, eps: EPS, affine: Affine::None }.flags().batch_separable);
    assert!(LayerNorm { dims: 1, eps: EPS, affine: Affine::None }.flags().batch_separable);
    assert!(RmsNorm { dims: 1, eps: EPS, affine: Affine::None }.flags().batch_separable);
}

/// What backward of a frozen batch norm keeps alive: the input only where it must.
#[test]
fn given_statistics_need_the_input_for_the_weight_alone() {
    let reads_input = |relu: bool, wanted: [bool; 5]| {
        let mut graph = crate::graph::Graph::new();
        let channel = TensorDesc::f32([3]);
        let descs = [TensorDesc::f32([2, 3]), channel.clone(), channel.clone(), channel.clone(), channel];
        let inputs = descs.map(|desc| graph.input("x", desc));
        let op: Arc<dyn Op> = Arc::new(BatchNormEval { eps: EPS, affine: Affine::Full, relu });
        let outputs = crate::ops::Builder::apply(&mut graph, op.clone(), &inputs).expect("fits");
        let grad = graph.input("g", TensorDesc::f32([2, 3]));
        let forward = crate::ops::Backward {
            inputs: &inputs,
            outputs: &outputs,
            grad_outputs: &[Some(grad)],
            wanted: &wanted,
            saved: crate::ops::SavedActivations::Full,
            kept: &std::collections::BTreeSet::new(),
        };
        op.backward(&mut graph, &forward).expect("differentiable");
        graph.nodes().last().expect("a node").inputs.contains(&inputs[0])
    };
    assert!(!reads_input(false, [true, false, false, false, false]));
    assert!(!reads_input(false, [true, false, false, false, true]));
    assert!(reads_input(false, [true, false, false, true, false]));
    assert!(reads_input(true, [true, false, false, false, false]));
}
