//! Long sums of like terms, which rounding moves to one side: the twins in f32 and the kernels against the twins in f64.

use libtest_mimic::Failed;
use tightfit::ops::conv::conv2d::Conv2d;
use tightfit::ops::elementwise::bias_add::BiasAdd;
use tightfit::ops::embedding::embedding::Embedding;
use tightfit::ops::embedding::gather::Gather;
use tightfit::ops::loss::cross_entropy::CrossEntropy;
use tightfit::ops::loss::dice::{Dice, Probabilities};
use tightfit::ops::loss::mean_loss::MeanLoss;
use tightfit::ops::loss::mse::Mse;
use tightfit::ops::loss::soft_cross_entropy::SoftCrossEntropy;
use tightfit::ops::matmul::matmul::MatMul;
use tightfit::ops::norm::batch_norm::BatchNorm;
use tightfit::ops::norm::group_norm::GroupNorm;
use tightfit::ops::norm::layer_norm::LayerNorm;
use tightfit::ops::norm::rms_norm::RmsNorm;
use tightfit::ops::optim::clip::SquaredNorm;
use tightfit::ops::pool::adaptive_avg_pool2d::AdaptiveAvgPool2d;
use tightfit::ops::pool::avg_pool2d::AvgPool2d;
use tightfit::ops::pool::upsample_nearest2d::UpsampleNearest2d;
use tightfit::ops::reduce::mean::Mean;
use tightfit::ops::reduce::softmax::Softmax;
use tightfit::ops::reduce::sum::Sum;
use tightfit::ops::{Affine, Op};
use tightfit::tensor::TensorDesc;
use tightfit::testing::{Case, Fill, RunOptions, run_op};

use crate::Report;
use crate::common::compare::{Tolerance, close};
use crate::common::eval::{Buf, Mini};
use crate::common::fill;
use crate::{gpu, nodes};

/// Of each element.
const TWIN: Tolerance = Tolerance { scale: 1e-7, relative: 1e-6, absolute: 1e-11 };
const KERNEL: Tolerance = Tolerance { scale: 1e-7, relative: 5e-6, absolute: 1e-11 };
/// Of products on devices, which add up thousands of terms in registers.
const PRODUCT: Tolerance = Tolerance { scale: 0.0, relative: 1e-3, absolute: 0.0 };
/// Of the gradients of a norm's weight and bias.
const NORM_SUM: Tolerance = Tolerance { scale: 1e-6, relative: 0.0, absolute: 0.0 };
/// Of what is the difference of like numbers.
const DIFFERENCE: Tolerance = Tolerance { scale: 1e-5, relative: 0.0, absolute: 0.0 };

const CLASSES: usize = 50_257;
const MANY: usize = 1 << 22;

fn case(name: &str, op: impl Op, inputs: &[(&[usize], Fill)]) -> Case {
    let desc = |(shape, fill): &(&[usize], Fill)| match fill {
        Fill::Labels(_) => TensorDesc::u32(*shape),
        _ => TensorDesc::f32(*shape),
    };
    let case = Case::new(name, op, inputs.iter().map(desc));
    inputs.iter().enumerate().fold(case, |case, (i, &(_, fill))| case.fill(i, fill))
}

fn cases() -> Vec<Case> {
    let (tenth, equal, weights) = (Fill::Constant(0.1), Fill::Constant(0.5), Fill::Constant(0.3));
    let smooth = CrossEntropy { label_smoothing: 0.1, ..CrossEntropy::default() };
    let weighted = CrossEntropy { weighted: true, normalized: true, ..smooth };
    let soft = SoftCrossEntropy { label_smoothing: 0.1, ..SoftCrossEntropy::default() };
    let shares = Fill::Constant(1.0 / CLASSES as f32);
    let dice = Dice { probabilities: Probabilities::Sigmoid, smooth: 1.0, ignore_index: None, sample_weights: false };
    let (dims, eps, affine) = (1, 1e-5, Affine::default());
    let layer = LayerNorm { dims, eps, affine };
    let rms = RmsNorm { dims, eps, affine: Affine::Weight };
    let groups = GroupNorm { groups: 2, eps, affine };
    let spread = Fill::Uniform(0.5, 0.6);
    let norm = BatchNorm { eps: 1e-5, affine: Affine::default(), relu: false, ghost: false };
    vec![
        case("smoothing", smooth, &[(&[2, CLASSES], equal), (&[2], Fill::Labels(7))]),
        case("smoothing_unequal", smooth, &[(&[2, CLASSES], Fill::Normal), (&[2], Fill::Labels(7))]),
        case("smoothing_few_classes", smooth, &[(&[2, 500], equal), (&[2], Fill::Labels(7))]),
        case(
            "smoothing_weighted",
            weighted,
            &[(&[2, CLASSES], equal), (&[2], Fill::Labels(7)), (&[1], equal), (&[CLASSES], weights)],
        )
        .no_grad(2)
        .no_grad(3),
        case("shares", soft, &[(&[2, CLASSES], equal), (&[2, CLASSES], shares)]).no_grad(1),
        case("positions", smooth, &[(&[1, 3, 300, 700], Fill::Uniform(0.4, 0.5)), (&[1, 300, 700], Fill::Labels(1))]),
        case("mse", Mse::default(), &[(&[MANY], Fill::Constant(0.0)), (&[MANY], tenth)]),
        case("mean_loss", MeanLoss::default(), &[(&[MANY], tenth)]),
        case("dice", dice, &[(&[1, 1, MANY], equal), (&[1, 1, MANY], tenth)]).no_grad(1),
        case("sum", Sum { axes: vec![0], keepdim: false }, &[(&[MANY], tenth)]),
        case("mean", Mean { axes: vec![0], keepdim: false }, &[(&[MANY / 2, 2], tenth)]),
        case("bias", BiasAdd, &[(&[MANY / 8, 3], tenth), (&[3], tenth)]),
        case("squared_norm", SquaredNorm, &[(&[MANY], tenth)]).forward_only(),
        case("softmax", Softmax { axis: 1, causal: false }, &[(&[2, CLASSES], Fill::Uniform(0.0, 0.1))]),
        case("matmul", MatMul::default(), &[(&[3, 60_000], tenth), (&[60_000, 5], tenth)]),
        case(
            "conv2d",
            Conv2d { bias: true, ..Conv2d::default() },
            &[(&[16, 512, 6, 6], tenth), (&[2, 512, 3, 3], tenth), (&[2], tenth)],
        ),
        case(
            "conv2d_large_image",
            Conv2d { bias: true, ..Conv2d::default() },
            &[(&[1, 1, 700, 700], tenth), (&[1, 1, 3, 3], tenth), (&[1], tenth)],
        ),
        case("embedding", Embedding { padding_idx: None }, &[(&[60_000], Fill::Labels(1)), (&[2, 4], tenth)]),
        case("pool", AdaptiveAvgPool2d { output: [1, 1] }, &[(&[1, 1, 1000, 1000], tenth)]),
        case("batch_norm", norm, &[(&[8192, 2, 16], spread), (&[2], tenth), (&[2], tenth)]),
        case("batch_norm_one_channel", norm, &[(&[4, 1, MANY / 4], spread), (&[1], tenth), (&[1], tenth)]),
        case("batch_norm_rows", norm, &[(&[65_536, 32], spread), (&[32], tenth), (&[32], tenth)]),
        case("layer_norm", layer, &[(&[2, MANY / 4], spread), (&[MANY / 4], tenth), (&[MANY / 4], tenth)]),
        case("layer_norm_rows", layer, &[(&[65_536, 31], spread), (&[31], tenth), (&[31], tenth)]),
        case("rms_norm_rows", rms, &[(&[65_536, 32], spread), (&[32], tenth)]),
        case("group_norm", groups, &[(&[2, 4, MANY / 16], spread), (&[4], tenth), (&[4], tenth)]),
        case("windows", AvgPool2d { kernel: [100, 120], ..AvgPool2d::default() }, &[(&[1, 1, 150, 170], tenth)]),
        case("upsampled", UpsampleNearest2d { scale: [100, 100] }, &[(&[1, 2, 3, 3], tenth)]),
        case("gathered", Gather { axis: 1 }, &[(&[3, 5], tenth), (&[3, 60_000], Fill::Labels(2))]),
    ]
}

/// What the loss changes with an output of so many elements. Norms: where their input is large, so that all sums of like terms
/// have a value.
fn gradient(case: &Case, input: &Buf<f64>, numel: usize) -> Vec<f64> {
    match input {
        Buf::Real(values) if case.name.contains("_norm") && values.len() == numel => {
            values.iter().map(|&x| if x > 0.55 { 0.1 } else { 0.0 }).collect()
        }
        _ => vec![0.1; numel],
    }
}

pub fn check() -> Result<(), Failed> {
    let mut report = Report::default();
    let device = gpu::device();
    for case in cases() {
        let descs: Vec<_> = case.inputs.iter().map(|(desc, _)| desc.clone()).collect();
        let mini = Mini::new(&case.op, &descs, &[true], &case.wanted).expect(&case.name);
        let grads = mini.grad_outputs.iter();
        let inputs = fill::inputs("sums", &case);
        let grads = grads.map(|id| Some(Buf::Real(gradient(&case, &inputs[0], mini.graph.value((*id)?).desc.numel()))));
        let mut values = mini.sources::<f64>(&inputs, &grads.collect::<Vec<_>>());
        values.iter_mut().flatten().for_each(|value| *value = value.round_to_f32());
        for node in mini.graph.nodes().iter().filter(|node| !node.op.is_view()) {
            let (expected, _) = mini.run_node(node, &values);
            let label = format!("{} {}", case.name, node.op.name());
            let [twin, kernel] = match node.op.name() {
                name if name.contains("_norm") && name != "clip.squared_norm" => [DIFFERENCE; 2],
                name if name.starts_with("matmul") || name.starts_with("conv2d") => [TWIN, PRODUCT],
                _ => [TWIN, KERNEL],
            };
            let single: Vec<_> = values.iter().map(|value| value.as_ref().map(to_single)).collect();
            // Behind the gradient of a norm's input are sums.
            let of_output = |tolerance, output: usize| {
                if output > 0 && label.contains("_norm.backward") { NORM_SUM } else { tolerance }
            };
            for (i, (found, expected)) in mini.run_node(node, &single).0.iter().zip(&expected).enumerate() {
                report.check(
                    format!("{label} {i} in f32"),
                    close(&found.to_f64(), &expected.to_f64(), of_output(twin, i)),
                );
            }
            if let Some(device) = &device {
                let value = |&id| values[tightfit::tensor::ValueId::index(id)].as_ref().expect("made before");
                let inputs = node.inputs.iter().map(|id| (mini.graph.value(*id).desc.clone(), value(id).to_bytes()));
                let found = run_op(device, &*node.op, &inputs.collect::<Vec<_>>(), RunOptions::default());
                for (i, ((found, expected), &id)) in
                    found.expect(&label).iter().zip(&expected).zip(&node.outputs).enumerate()
                {
                    let found = nodes::decode(&mini.graph.value(id).desc, found);
                    report.check(
                        format!("{label} {i} on the device"),
                        close(&found, &expected.to_f64(), of_output(kernel, i)),
                    );
                }
            }
            for (&id, data) in node.outputs.iter().zip(expected) {
                values[id.index()] = Some(data.round_to_f32());
            }
        }
    }
    report.require(report.checks > 0, "nothing was checked");
    report.finish()
}

fn to_single(value: &Buf<f64>) -> Buf<f32> {
    match value {
        Buf::Real(data) => Buf::Real(data.iter().map(|&x| x as f32).collect()),
        Buf::Int(data) => Buf::Int(data.clone()),
    }
}

/// With equal logits the loss is ln C at any smoothing.
pub fn smoothing_of_equal_logits() -> Result<(), Failed> {
    let mut report = Report::default();
    for smoothing in [0.0, 0.1, 0.5, 1.0] {
        let op = CrossEntropy { label_smoothing: smoothing, ..CrossEntropy::default() };
        let case = case("equal", op, &[(&[1, CLASSES], Fill::Constant(0.5)), (&[1], Fill::Labels(7))]);
        let descs: Vec<_> = case.inputs.iter().map(|(desc, _)| desc.clone()).collect();
        let mini = Mini::new(&case.op, &descs, &[true], &[false, false]).expect("fits");
        let inputs = fill::inputs("equal", &case);
        let right = (CLASSES as f64).ln();
        let values = mini.run::<f32>(&inputs.iter().map(to_single).collect::<Vec<_>>(), &[], false);
        let loss = values[mini.outputs[0].index()].as_ref().expect("made").to_f64();
        report.check(format!("smoothing {smoothing}"), close(&loss, &[right], TWIN));
        if let Some(device) = &gpu::device() {
            let inputs: Vec<_> = descs.iter().cloned().zip(inputs.iter().map(Buf::to_bytes)).collect();
            let found = run_op(device, &op, &inputs, RunOptions::default()).expect("runs");
            let found = nodes::decode(&TensorDesc::f32([1]), &found[0]);
            report.check(format!("smoothing {smoothing} on the device"), close(&found, &[right], TWIN));
        }
    }
    report.finish()
}
