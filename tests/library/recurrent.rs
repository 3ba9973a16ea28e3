//! LSTM, GRU and simple recurrent layers: against PyTorch, cut into chunks and windows, stateful, in micro-batches, and on long sequences.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Deserialize;
use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::nn::{Gru, Layer, Lstm, Model, Sequential};
use tightfit::train::{Config, DeviceSelector, FitOptions, Loss, Optimizer, Trainer};

use crate::common::compare::{Tolerance, close};
use crate::common::golden::Tensor;

#[derive(Deserialize)]
struct Entry {
    name: String,
    layer: Layer,
    batch: usize,
    input: Tensor,
    lengths: Option<Tensor>,
    target: Tensor,
    predicted: Tensor,
    parameters: BTreeMap<String, (Vec<usize>, Vec<f64>)>,
}

const TOLERANCE: Tolerance = Tolerance { scale: 2e-6, relative: 2e-5, absolute: 1e-6 };

fn f32s(tensor: &Tensor) -> Vec<f32> {
    tensor.data.as_ref().unwrap().iter().map(|&x| x as f32).collect()
}

fn f64s(data: &[f32]) -> Vec<f64> {
    data.iter().map(|&x| f64::from(x)).collect()
}

fn dataset(entry: &Entry) -> TensorDataset {
    let targets = Targets::Values { values: f32s(&entry.target), shape: entry.target.shape[1..].into() };
    let data = TensorDataset::new(Values::F32(f32s(&entry.input)), &entry.input.shape[1..], targets).unwrap();
    match &entry.lengths {
        Some(lengths) => data.with_input("lengths", Values::U32(lengths.ints.clone().unwrap()), Vec::new()).unwrap(),
        None => data,
    }
}

fn config(batch: usize, micro_batches: usize) -> Config {
    Config::default().optimizer(Optimizer::sgd(1.0)).loss(Loss::Mse).batch(batch).micro_batches(micro_batches)
}

/// Predictions with the first parameters, then all parameters after the steps, against PyTorch's.
fn check(entry: &Entry, device: &str, micro_batches: usize) {
    let label = format!("{} on {device} in {micro_batches} micro-batches", entry.name);
    let model = Sequential::new("golden", &entry.input.shape[1..]).push(entry.layer.clone());
    let mut trainer = Trainer::new(model, config(entry.batch, micro_batches), Some(device)).unwrap();
    // weight_hh is [G·hidden, hidden].
    let hidden = entry.parameters.iter().find(|(name, _)| name.contains("weight_hh_l0")).unwrap().1.0[1];
    for (name, (shape, _)) in &entry.parameters {
        let data = crate::common::recipe::weights(name, shape.iter().product(), hidden);
        trainer.set_parameter(name, &data).unwrap();
    }
    let data = dataset(entry);
    let compare = |what: &str, found: &[f32], expected: &[f64]| {
        close(&f64s(found), expected, TOLERANCE).unwrap_or_else(|error| panic!("{label}: {what}: {error}"));
    };
    let expected = entry.predicted.data.as_ref().unwrap();
    compare("predictions", &trainer.predict(&data).unwrap().values, expected);
    let steps = data.len() / entry.batch;
    trainer.reset_state().unwrap();
    for step in 0..steps {
        let indices: Vec<_> = (step * entry.batch..(step + 1) * entry.batch).collect();
        trainer.step(&data, &indices).unwrap();
        // Evaluation in between leaves the states that training goes on from.
        trainer.evaluate(&data).unwrap();
    }
    let parameters = trainer.parameters().unwrap();
    assert_eq!(parameters.len(), entry.parameters.len(), "{label}");
    for (name, (shape, expected)) in &entry.parameters {
        let (desc, found) = &parameters[name];
        assert_eq!(desc.shape[..], shape[..], "{label}: {name}");
        compare(name, found, expected);
    }
}

fn golden() -> Vec<Entry> {
    serde_json::from_str(include_str!("../golden/recurrent.json")).unwrap()
}

#[test]
fn training_is_that_of_pytorch() {
    for entry in golden() {
        for device in ["cpu", "reference"] {
            check(&entry, device, 1);
            if entry.batch > 1 {
                check(&entry, device, 2);
            }
        }
    }
}

#[test]
fn training_is_that_of_pytorch_on_the_gpu() {
    let Some(device) = crate::common::gpu() else { return };
    for entry in golden() {
        let stateful = entry.name.ends_with("stateful");
        if stateful || ["lstm_window", "gru_bidirectional_lengths", "rnn_long", "rnn_relu_last"].contains(&&*entry.name)
        {
            check(&entry, &device, if stateful { 2 } else { 1 });
        }
    }
}

fn random(numel: usize, key: &str) -> Vec<f32> {
    let mut rng = crate::common::fill::rng(key);
    (0..numel).map(|_| crate::common::fill::normal(&mut rng)).collect()
}

fn regression(input: Vec<f32>, shape: [usize; 2], width: usize) -> TensorDataset {
    let samples = input.len() / (shape[0] * shape[1]);
    let targets = Targets::Values { values: random(samples * width, "targets"), shape: [width].into() };
    TensorDataset::new(Values::F32(input), shape, targets).unwrap()
}

#[test]
fn a_sequence_in_batches_is_the_whole_sequence() {
    const TIME: usize = 30;
    let whole = random(2 * TIME * 3, "whole");
    // Part k of sample i is sample i of batch k.
    let parts: Vec<f32> = (0..3)
        .flat_map(|part| (0..2).flat_map(move |sample| (0..30).map(move |i| sample * TIME * 3 + part * 30 + i)))
        .map(|at| whole[at])
        .collect();
    let layer = || Lstm::new(5).num_layers(2);
    let predict = |layer: Lstm, input: Vec<f32>, time: usize, micro_batches: usize| {
        let model = Sequential::new("parts", [time, 3]).push(layer);
        let data = regression(input, [time, 3], 5);
        Trainer::new(model, config(2, micro_batches), DeviceSelector::Cpu).unwrap().predict(&data).unwrap().values
    };
    let expected = predict(layer(), whole, TIME, 1);
    for micro_batches in [1, 2] {
        let found = predict(layer().stateful(true), parts.clone(), TIME / 3, micro_batches);
        assert_eq!(found[found.len() - expected.len()..], expected);
    }
}

#[test]
fn states_stay_as_they_are_where_the_loss_is_not_finite() {
    let model = Sequential::new("guarded", [4, 3]).push(Gru::new(5).stateful(true));
    let mut input = random(4 * 4 * 3, "guarded");
    let good = regression(input.clone(), [4, 3], 5);
    input[3] = f32::NAN;
    let bad = regression(input, [4, 3], 5);
    let mut trainer = Trainer::new(model, config(4, 2), DeviceSelector::Cpu).unwrap();
    let all: Vec<_> = (0..4).collect();
    trainer.step(&good, &all).unwrap();
    let mut other = trainer.parameters_sha256().unwrap();
    trainer.step(&bad, &all).unwrap_err();
    assert_eq!(trainer.parameters_sha256().unwrap(), other);
    let loss = trainer.step(&good, &all).unwrap().loss;
    assert!(loss.is_finite());
    other = trainer.parameters_sha256().unwrap();

    let model = Sequential::new("guarded", [4, 3]).push(Gru::new(5).stateful(true));
    let mut trainer = Trainer::new(model, config(4, 2), DeviceSelector::Cpu).unwrap();
    trainer.step(&good, &all).unwrap();
    assert_eq!(trainer.step(&good, &all).unwrap().loss, loss);
    assert_eq!(trainer.parameters_sha256().unwrap(), other);
}

#[test]
fn each_epoch_starts_from_zeros() {
    let train = |epochs: &[u64]| {
        let model = Sequential::new("epochs", [4, 3]).push(Lstm::new(5).stateful(true));
        let data = regression(random(6 * 4 * 3, "epochs"), [4, 3], 5);
        let mut trainer = Trainer::new(model, config(2, 1), DeviceSelector::Cpu).unwrap();
        for &epochs in epochs {
            trainer.fit(&data, FitOptions::epochs(epochs)).unwrap();
        }
        trainer.parameters_sha256().unwrap()
    };
    assert_eq!(train(&[2]), train(&[1, 1]));
}

#[test]
fn dropout_between_layers_drops_in_training_only() {
    let data = regression(random(4 * 70 * 3, "dropout"), [70, 3], 5);
    let loss = |p: f32, micro_batches: usize| {
        let model = Sequential::new("dropout", [70, 3]).push(Gru::new(5).num_layers(2).dropout(p));
        let mut trainer = Trainer::new(model, config(4, micro_batches), DeviceSelector::Cpu).unwrap();
        let evaluated = trainer.evaluate(&data).unwrap().loss;
        let loss = trainer.step(&data, &[0, 1, 2, 3]).unwrap().loss;
        (evaluated, f64::from(loss))
    };
    let (evaluated, trained) = loss(0.0, 1);
    assert!((evaluated - trained).abs() < 1e-5);
    let (same, dropped) = loss(0.5, 1);
    assert_eq!(same, evaluated);
    assert!((dropped - trained).abs() > 1e-4);
    assert!((loss(0.5, 2).1 - dropped).abs() < 1e-5);
}

#[test]
fn parameters_are_named_as_in_pytorch() {
    let model = Model::from(Sequential::new("names", [7, 3]).push(Gru::new(4).num_layers(2).bidirectional(true)));
    let names: Vec<_> =
        model.state_dict().unwrap().into_iter().map(|(name, shape)| format!("{name} {shape}")).collect();
    assert_eq!(
        names[..4],
        ["gru1.weight_ih_l0 [12, 3]", "gru1.weight_hh_l0 [12, 4]", "gru1.bias_ih_l0 [12]", "gru1.bias_hh_l0 [12]"]
    );
    assert_eq!(names[4], "gru1.weight_ih_l0_reverse [12, 3]");
    assert_eq!(names[12], "gru1.weight_ih_l1_reverse [12, 8]");
    assert_eq!(names.len(), 16);
    assert_eq!(model.output_shape().unwrap()[..], [8]);
}

#[test]
fn layers_refuse_what_makes_no_sense() {
    let error =
        |layer: Layer| Model::from(Sequential::new("m", [7, 3]).push(layer)).output_shape().unwrap_err().to_string();
    let lstm = || Lstm::new(4);
    assert!(error(lstm().bidirectional(true).stateful(true).into()).contains("bidirectional and stateful exclude"));
    assert!(error(lstm().bidirectional(true).window(2).into()).contains("bidirectional and window exclude"));
    assert!(error(lstm().window(0).into()).contains("window must be at least 1"));
    assert!(error(lstm().num_layers(0).into()).contains("num_layers must be at least 1"));
    assert!(error(lstm().dropout(1.5).into()).contains("dropout must be from 0 to 1"));
    let gru: Layer = serde_json::from_str(r#"{"kind":"gru","hidden":4,"unit_forget_bias":true}"#).unwrap();
    assert!(error(gru).contains("forget gate"));
    assert!(serde_json::from_str::<Layer>(r#"{"kind":"gru","hidden":4,"cell":1}"#).is_err());
}

#[test]
fn biases_of_forget_gates_may_start_at_one() {
    let model = Sequential::new("biases", [7, 3]).push(Lstm::new(2).unit_forget_bias(true).orthogonal(true));
    let mut trainer = Trainer::new(model, config(1, 1), DeviceSelector::Cpu).unwrap();
    let parameters = trainer.parameters().unwrap();
    let of = |name: &str| parameters[name].1.clone();
    assert_eq!(of("lstm1.bias_ih_l0")[2..4], [1.0, 1.0]);
    assert_eq!(of("lstm1.bias_hh_l0")[2..4], [0.0, 0.0]);
    assert!(of("lstm1.bias_ih_l0").iter().filter(|&&b| b == 1.0).count() == 2);
    let weight = of("lstm1.weight_hh_l0");
    let product = |a: usize, b: usize| (0..8).map(|row| weight[2 * row + a] * weight[2 * row + b]).sum::<f32>();
    assert!((product(0, 0) - 1.0).abs() < 1e-5 && product(0, 1).abs() < 1e-5);
}

/// A sequence of 20,000 steps in a twentieth of what it would take.
#[test]
fn a_long_sequence_trains_in_a_small_budget() {
    let Some(device) = crate::common::gpu() else { return };
    let model = Model::from(Sequential::new("long", [20_000, 1]).push(Lstm::new(32)).linear(1));
    let data = regression(random(20_000, "long"), [20_000, 1], 1);
    let config = Config::default().optimizer(Optimizer::adam(1e-3)).loss(Loss::Mse).batch(1);
    let plan = Trainer::new(&model, config.clone(), &device).unwrap().plan().clone();
    // What the device takes for itself, whatever is trained, is no activation.
    let unconstrained = plan.unconstrained_peak_bytes - plan.baseline_bytes;
    let budget = plan.baseline_bytes + unconstrained / 20;
    let begin = Instant::now();
    let mut trainer = Trainer::new(&model, config.budget_bytes(budget), &device).unwrap();
    let planned = begin.elapsed();
    let begin = Instant::now();
    let losses = [0, 1].map(|_| trainer.step(&data, &[0]).unwrap().loss);
    println!(
        "unconstrained {unconstrained} B, budget {budget} B, planned in {planned:.1?}, two steps in {:.1?}: {losses:?}",
        begin.elapsed()
    );
    assert!(losses.iter().all(|loss| loss.is_finite()) && losses[1] < losses[0]);
    assert!(trainer.measured_peak_bytes() <= budget);
}
