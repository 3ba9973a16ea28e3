//! Evidence link 7: the first losses of each built-in model against PyTorch's, from the same weights and batches.

use serde::Deserialize;
use std::collections::BTreeMap;
use tightfit::data::{TensorDataset, mnist};
use tightfit::models;
use tightfit::train::{Config, Optimizer, Trainer};

#[derive(Deserialize)]
struct Golden {
    batch: usize,
    parameters: Vec<Parameter>,
    losses: Vec<f64>,
}

#[derive(Deserialize)]
struct Parameter {
    name: String,
    shape: Vec<usize>,
    fan: usize,
    first: Vec<f32>,
}

fn check(name: &str, device: &str, micro_batches: usize, steps: usize) {
    let golden: BTreeMap<String, Golden> =
        serde_json::from_str(include_str!("../golden/losses.json")).expect("losses.json is not what it should be");
    let golden = &golden[name];
    let model = models::builtin(name).expect("no such model");
    let (train, _) = mnist::open(concat!(env!("CARGO_MANIFEST_DIR"), "/data/mnist")).expect("bundled data");
    let train: TensorDataset = train.with_sample_shape(model.input_shape().clone()).expect("784 pixels");
    let config = Config::default().optimizer(Optimizer::adam(1e-3)).batch(golden.batch).micro_batches(micro_batches);
    let mut trainer = Trainer::new(model, config, Some(device)).expect("trainer");
    for parameter in &golden.parameters {
        let numel = parameter.shape.iter().product();
        let data = crate::common::recipe::weights(&parameter.name, numel, parameter.fan);
        assert_eq!(data[..parameter.first.len()], parameter.first, "the recipe differs for {}", parameter.name);
        trainer.set_parameter(&parameter.name, &data).expect("parameter");
    }
    assert_eq!(trainer.parameters().expect("parameters").len(), golden.parameters.len(), "{name}: other parameters");
    let mut worst = 0.0f64;
    for (i, &expected) in golden.losses.iter().take(steps).enumerate() {
        let indices: Vec<usize> = (i * golden.batch..(i + 1) * golden.batch).collect();
        let loss = trainer.step(&train, &indices).expect("step").loss;
        worst = worst.max((f64::from(loss) - expected).abs() / expected);
    }
    println!("{name} on {device}, {micro_batches} micro-batches: {steps} losses within {worst:.1e} of PyTorch's");
    assert!(worst <= 1e-3, "{name}: losses differ by {worst:e} from PyTorch's");
}

fn check_on_gpu(name: &str, micro_batches: usize) {
    if let Some(device) = crate::common::gpu() {
        check(name, &device, micro_batches, 20);
    }
}

#[test]
fn mnist_mlp() {
    check_on_gpu("mnist-mlp", 1);
}

#[test]
fn mnist_cnn() {
    check_on_gpu("mnist-cnn", 1);
}

#[test]
fn mnist_lstm() {
    check_on_gpu("mnist-lstm", 1);
}

#[test]
fn mnist_cnn_in_micro_batches() {
    check_on_gpu("mnist-cnn", 3);
}

#[test]
fn all_on_the_cpu() {
    for (name, micro_batches) in
        [("mnist-mlp", 1), ("mnist-cnn", 1), ("mnist-cnn", 3), ("mnist-lstm", 1), ("mnist-lstm", 5)]
    {
        check(name, "cpu", micro_batches, 20);
    }
}

/// The reference runs the same plan: enough steps to see the updates.
#[test]
fn mnist_mlp_on_the_reference() {
    check("mnist-mlp", "reference", 1, 5);
}

#[test]
fn mnist_lstm_on_the_reference() {
    check("mnist-lstm", "reference", 5, 3);
}
