//! Ops that take in what follows them, or change places with it, give the bits of the two one after the other.

use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::nn::{Conv2d, Linear, Model};
use tightfit::ops::conv::conv2d::Conv2d as Conv2dOp;
use tightfit::ops::elementwise::relu::Relu;
use tightfit::ops::{BuiltInActivation, Op};
use tightfit::plan::Limits;
use tightfit::tensor::TensorDesc;
use tightfit::testing::{RunOptions, device_or_skip, run_op};
use tightfit::train::{Config, FitOptions, Trainer, plan};

fn numbers(desc: &TensorDesc, salt: usize) -> (TensorDesc, Vec<u8>) {
    let number = |i: usize| ((i * 7919 + salt * 104_729) % 1999) as f32 / 999.0 - 1.0;
    (desc.clone(), (0..desc.numel()).flat_map(|i| number(i).to_le_bytes()).collect())
}

#[test]
fn a_convolution_with_relu_is_a_convolution_and_relu() {
    let Some(device) = device_or_skip() else { return };
    for (groups, weight) in [(1, [10, 6, 3, 3]), (2, [10, 3, 3, 3]), (6, [6, 1, 3, 3]), (1, [33, 6, 1, 1])] {
        for bias in [false, true] {
            let conv = Conv2dOp { groups, bias, ..Conv2dOp::default() };
            let mut descs = vec![TensorDesc::f32([2, 6, 9, 8]), TensorDesc::f32(weight)];
            descs.extend(bias.then(|| TensorDesc::f32([weight[0]])));
            let inputs: Vec<_> = descs.iter().enumerate().map(|(salt, desc)| numbers(desc, salt)).collect();
            let run = |op: &dyn Op, inputs: &[(TensorDesc, Vec<u8>)]| {
                run_op(&device, op, inputs, RunOptions::default()).expect("runs").remove(0)
            };
            let output = conv.outputs(&descs).expect("fits").remove(0);
            let apart = run(&Relu, &[(output, run(&conv, &inputs))]);
            let fused = conv.with_activation(BuiltInActivation::Relu).expect("convolutions have it built in");
            assert!(apart.chunks_exact(4).any(|x| x == [0; 4]), "some outputs are cut off");
            assert_eq!(run(&*fused, &inputs), apart, "{fused:?}");
        }
    }
}

/// A convolution, ReLU and max pooling; `is_fixed` lets something else read what ReLU makes, so that it stays where it is.
fn pooled(is_fixed: bool) -> Model {
    Model::new("pooled", [1, 12, 10], move |x| {
        let relu = x.apply(Conv2d::new(4, 3)).relu();
        let output = relu.max_pool2d(2).flatten().apply(Linear::new(6));
        // All zeros, and so are its gradients.
        if is_fixed { output + relu.flatten().slice(1, 0, 6).clamp(-1.0, 0.0) } else { output }
    })
}

#[test]
fn relu_after_max_pooling_trains_to_the_same_bits_as_before_it() {
    let relu_shape = |is_fixed| {
        let graphs = plan(pooled(is_fixed), &Config::default().batch(8).micro_batches(1), &Limits::default());
        let graph = graphs.expect("plan").graphs.swap_remove(0);
        let relu = graph.nodes().iter().find(|node| node.op.name() == "relu").map(|node| node.outputs[0]);
        relu.map(|value| graph.value(value).desc.shape.to_vec())
    };
    assert_eq!(relu_shape(false), Some(vec![8, 4, 5, 4]), "it follows the pooling");
    assert_eq!(relu_shape(true), None, "the convolution takes it in");
    // Whole numbers, so that many elements of a window are equal.
    let pixels = (0..64 * 120).map(|i| ((i * 7919) % 5) as f32 - 2.0).collect();
    let labels = Targets::labels((0..64).map(|i| i % 6).collect(), 6);
    let data = TensorDataset::new(Values::F32(pixels), [1, 12, 10], labels).expect("dataset");
    for device in crate::common::gpu().into_iter().chain(["cpu".to_owned()]) {
        let trained = |is_fixed| {
            let config = Config::default().batch(8).seed(3);
            let mut trainer = Trainer::new(pooled(is_fixed), config, &device).expect("trainer");
            trainer.fit(&data, FitOptions::epochs(2)).expect("fit");
            trainer.parameters_sha256().expect("hash")
        };
        assert_eq!(trained(false), trained(true), "on {device}");
    }
}
