//! Ops that take in what follows them give the bits of the two one after the other.

use tightfit::device::testing::device_or_skip;
use tightfit::exec::{RunOptions, run_op};
use tightfit::ops::Op;
use tightfit::ops::conv2d::Conv2d;
use tightfit::ops::relu::Relu;
use tightfit::tensor::TensorDesc;

fn numbers(desc: &TensorDesc, salt: usize) -> (TensorDesc, Vec<u8>) {
    let number = |i: usize| ((i * 7919 + salt * 104_729) % 1999) as f32 / 999.0 - 1.0;
    (desc.clone(), (0..desc.numel()).flat_map(|i| number(i).to_le_bytes()).collect())
}

#[test]
fn a_convolution_with_relu_is_a_convolution_and_relu() {
    let Some(device) = device_or_skip() else { return };
    for (groups, weight) in [(1, [10, 6, 3, 3]), (2, [10, 3, 3, 3]), (6, [6, 1, 3, 3]), (1, [33, 6, 1, 1])] {
        for bias in [false, true] {
            let conv = Conv2d { groups, bias, ..Conv2d::default() };
            let mut descs = vec![TensorDesc::f32([2, 6, 9, 8]), TensorDesc::f32(weight)];
            descs.extend(bias.then(|| TensorDesc::f32([weight[0]])));
            let inputs: Vec<_> = descs.iter().enumerate().map(|(salt, desc)| numbers(desc, salt)).collect();
            let run = |op: &dyn Op, inputs: &[(TensorDesc, Vec<u8>)]| {
                run_op(&device, op, inputs, RunOptions::default()).expect("runs").remove(0)
            };
            let output = conv.outputs(&descs).expect("fits").remove(0);
            let apart = run(&Relu, &[(output, run(&conv, &inputs))]);
            let fused = conv.followed_by("relu").expect("convolutions take in ReLU");
            assert!(apart.chunks_exact(4).any(|x| x == [0; 4]), "some outputs are cut off");
            assert_eq!(run(&*fused, &inputs), apart, "{fused:?}");
        }
    }
}
