//! Layers of sequences, images and volumes: their outputs and the gradients of what they take and train, against PyTorch.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::nn::{Layer, PositionalEmbedding, Sequential};
use tightfit::train::{Config, Loss, Optimizer, Trainer};

use crate::common::compare::{Tolerance, close};
use crate::common::golden;

/// SGD's momentum after the first step is the gradient.
const SGD: Optimizer = Optimizer::Sgd { lr: 0.05, momentum: 0.9, nesterov: false, weight_decay: 0.0 };

#[derive(Deserialize)]
struct Entry {
    case: String,
    layer: Layer,
    shape: Vec<usize>,
    input: golden::Tensor,
    target: golden::Tensor,
    output: golden::Tensor,
    parameters: BTreeMap<String, golden::Tensor>,
    gradients: BTreeMap<String, golden::Tensor>,
}

fn entries() -> Vec<Entry> {
    golden::load("modules/layers").expect("tests/golden/modules/layers.json is missing")
}

fn floats(tensor: &golden::Tensor) -> Vec<f32> {
    tensor.input::<f32>().reals().to_vec()
}

/// What a layer makes of samples to which a trained tensor is added, and all gradients, in so many micro-batches.
fn check(entry: &Entry, device: &str, micro_batches: usize) {
    let tolerance = Tolerance { scale: 2e-6, relative: 2e-5, absolute: 1e-7 };
    let label = format!("{} on {device} in {micro_batches} micro-batches", entry.case);
    let rows = [entry.shape[0], entry.shape[1..].iter().product()];
    let model = Sequential::new("golden", rows)
        .push(PositionalEmbedding::new(rows[0]))
        .reshape(entry.shape.clone())
        .push(entry.layer.clone());
    assert_eq!(model.output_shape().unwrap()[..], entry.output.shape[1..], "{label}");
    let targets = Targets::Values { values: floats(&entry.target), shape: entry.target.shape[1..].into() };
    let data = TensorDataset::new(Values::F32(floats(&entry.input)), rows, targets).unwrap();
    let samples = data.len();
    let config = Config::default().batch(samples).micro_batches(micro_batches).loss(Loss::Mse).optimizer(SGD);
    let mut trainer = Trainer::new(model, config, Some(device)).unwrap_or_else(|error| panic!("{label}: {error}"));
    assert!(trainer.parameters().unwrap().keys().eq(entry.parameters.keys()), "{label}: other parameters");
    for (name, value) in &entry.parameters {
        trainer.set_parameter(name, &floats(value)).unwrap();
    }
    let compare = |what: &str, found: &[f32], expected: &golden::Tensor| {
        let found: Vec<_> = found.iter().map(|&x| f64::from(x)).collect();
        close(&found, expected.data.as_ref().unwrap(), tolerance)
            .unwrap_or_else(|error| panic!("{label}: {what}: {error}"));
    };
    compare("output", &trainer.predict(&data).unwrap().values, &entry.output);
    trainer.step(&data, &(0..samples).collect::<Vec<_>>()).unwrap();
    for (name, gradient) in &entry.gradients {
        let found = trainer.optimizer_state(name, "momentum_buffer").unwrap().unwrap();
        compare(name, &found, gradient);
    }
}

#[test]
fn layers_are_those_of_pytorch() {
    for entry in entries() {
        check(&entry, "cpu", 1);
        check(&entry, "reference", 2);
    }
}

#[test]
fn layers_are_those_of_pytorch_on_the_gpu() {
    let Some(device) = crate::common::gpu() else { return };
    let mut kinds = BTreeSet::new();
    // One of each kind and all volumes: the suites of ops compare the rest with the CPU.
    for entry in entries().iter().filter(|entry| kinds.insert(entry.layer.kind()) || entry.shape.len() == 4) {
        check(entry, &device, 1);
    }
}
