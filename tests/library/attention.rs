//! Attention and dropout in training: PyTorch's values and gradients of `MultiheadAttention`, and random numbers that are the
//! same whatever the budget and however the batch is split.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use serde::Deserialize;
use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::nn::{
    Dropout, Embedding, Input, Linear, Model, MultiheadAttention, PositionalEmbedding, StochasticDepth,
};
use tightfit::plan::Levers;
use tightfit::train::{Config, Loss, Optimizer, Trainer};

use crate::common::compare::{Tolerance, close};
use crate::common::golden;

const TIME: usize = 7;
const WORDS: u32 = 11;
const CLASSES: u32 = 5;
const BATCH: usize = 12;

/// SGD's momentum after the first step is the gradient.
const SGD: Optimizer = Optimizer::Sgd { lr: 0.05, momentum: 0.9, nesterov: false, weight_decay: 0.0 };

/// `gpu` where there is one, and always the CPU.
fn devices() -> Vec<String> {
    crate::common::gpu().into_iter().chain(["cpu".to_owned()]).collect()
}

/// A small transformer of two blocks that drops in every way with probability `p`.
fn transformer(p: f32) -> Model {
    Model::new("transformer", Input::tokens([TIME]), move |tokens| {
        let mut x =
            tokens.layer("tokens", Embedding::new(WORDS as usize, 8)).layer("positions", PositionalEmbedding::new(9));
        for block in ["0", "1"] {
            x = x.within(block, |x| {
                let attention = MultiheadAttention::new(2).causal(true).dropout(p);
                let x = x + x.layer("attention", attention).dropout(p);
                let y = x.layer("linear1", Linear::new(16)).relu6().apply(Dropout::new(p));
                x + y.layer("linear2", Linear::new(8)).apply(StochasticDepth::new(p))
            });
        }
        x.flatten().layer("head", Linear::new(CLASSES as usize))
    })
}

fn sentences(count: usize) -> TensorDataset {
    let mut rng = crate::common::fill::rng("sentences");
    let tokens: Vec<u32> = (0..count * TIME).map(|_| rand::RngExt::random_range(&mut rng, 0..WORDS)).collect();
    let labels = tokens.chunks(TIME).map(|sentence| sentence[1] % CLASSES).collect();
    TensorDataset::new(Values::U32(tokens), [TIME], Targets::labels(labels, CLASSES)).unwrap()
}

fn trainer(p: f32, config: Config, device: &str) -> Trainer {
    Trainer::new(transformer(p), config, Some(device)).unwrap()
}

fn step(trainer: &mut Trainer, data: &TensorDataset, number: usize) -> f32 {
    trainer.step(data, &(number * BATCH..(number + 1) * BATCH).collect::<Vec<_>>()).unwrap().loss
}

#[test]
fn no_budget_changes_one_bit_of_what_is_dropped() {
    let data = sentences(3 * BATCH);
    let all = Levers::default();
    let recompute = Levers { offload: false, compression: false, ..all };
    for device in devices() {
        for (micro_batches, ways) in [(1, &[recompute, all][..]), (2, &[all])] {
            let config = Config::default().batch(BATCH).micro_batches(micro_batches).seed(3);
            let run = |config: Config| {
                let mut trainer = trainer(0.3, config.clone(), &device);
                let losses: Vec<_> = (0..3).map(|number| step(&mut trainer, &data, number).to_bits()).collect();
                assert_eq!(trainer.measured_peak_bytes(), trainer.plan().peak_bytes, "on {device}");
                assert!(config.budget_bytes.is_none_or(|budget| trainer.plan().peak_bytes <= budget));
                (losses, trainer.parameters_sha256().unwrap())
            };
            let expected = run(config.clone());
            for levers in ways {
                let config = config.clone().levers(*levers);
                let plan = trainer(0.3, config.clone(), &device).plan().clone();
                let (need, least) = (plan.peak_bytes, plan.minimum_budget_bytes);
                for budget in [least, least.midpoint(need)] {
                    let found = run(config.clone().budget_bytes(budget));
                    assert_eq!(found, expected, "on {device}, {levers:?}, {micro_batches} parts, {budget} bytes");
                    println!("{device}, {levers:?}, {micro_batches} parts: {budget} of {need} bytes");
                }
            }
        }
    }
}

/// The gradients of all parameters in one step of `micro_batches` parts.
fn gradients(micro_batches: usize, seed: u64, device: &str) -> BTreeMap<String, Vec<f64>> {
    let config = Config::default().batch(BATCH).micro_batches(micro_batches).optimizer(SGD).seed(seed);
    let mut trainer = trainer(0.5, config, device);
    assert_eq!(trainer.plan().micro_batches.len(), micro_batches);
    step(&mut trainer, &sentences(BATCH), 0);
    momenta(&mut trainer)
}

fn momenta(trainer: &mut Trainer) -> BTreeMap<String, Vec<f64>> {
    let names: Vec<_> = trainer.parameters().unwrap().into_keys().collect();
    let gradient = |name: String| {
        let gradient = trainer.optimizer_state(&name, "momentum_buffer").unwrap().unwrap();
        (name, gradient.into_iter().map(f64::from).collect())
    };
    names.into_iter().map(gradient).collect()
}

/// Other random numbers would make quite other gradients.
#[test]
fn the_same_is_dropped_however_a_batch_is_split() {
    let tolerance = Tolerance { scale: 1e-5, relative: 1e-5, absolute: 1e-9 };
    for device in devices() {
        let whole = gradients(1, 5, &device);
        for parts in [2, 5, BATCH] {
            for (name, found) in gradients(parts, 5, &device) {
                close(&found, &whole[&name], tolerance)
                    .unwrap_or_else(|e| panic!("{device}, {parts} parts, {name}: {e}"));
            }
        }
    }
}

#[test]
fn nothing_is_dropped_in_evaluation() {
    let data = sentences(BATCH);
    let config = Config::default().batch(BATCH).seed(1);
    for device in devices() {
        let [mut dropping, mut plain] = [0.4, 0.0].map(|p| trainer(p, config.clone(), &device));
        assert_eq!(dropping.predict(&data).unwrap(), plain.predict(&data).unwrap());
        assert_ne!(step(&mut dropping, &data, 0).to_bits(), step(&mut plain, &data, 0).to_bits());
        // Each step draws anew.
        let frozen = Config {
            optimizer: Optimizer::Sgd { lr: 0.0, momentum: 0.0, nesterov: false, weight_decay: 0.0 },
            ..config.clone()
        };
        let mut frozen = trainer(0.4, frozen, &device);
        assert_ne!(step(&mut frozen, &data, 0).to_bits(), step(&mut frozen, &data, 0).to_bits());
    }
}

#[test]
fn a_token_that_is_no_row_is_named() {
    for device in devices() {
        let mut tokens = vec![3; BATCH * TIME];
        tokens[20] = WORDS;
        let labels = Targets::labels(vec![0; BATCH], CLASSES);
        let data = TensorDataset::new(Values::U32(tokens), [TIME], labels).unwrap();
        let mut trainer = trainer(0.0, Config::default().batch(BATCH), &device);
        let error = trainer.step(&data, &(0..BATCH).collect::<Vec<_>>()).expect_err("there is no such row");
        let expected = format!("`input` of sample {} holds {WORDS} at [{}]", 20 / TIME, 20 % TIME);
        assert!(error.to_string().contains(&expected) && error.to_string().contains("tokens"), "{error}");
    }
}

#[derive(Deserialize)]
struct Entry {
    case: String,
    settings: Settings,
    input: golden::Tensor,
    target: golden::Tensor,
    output: golden::Tensor,
    parameters: BTreeMap<String, golden::Tensor>,
    gradients: BTreeMap<String, golden::Tensor>,
}

#[derive(Clone, Copy, Deserialize)]
struct Settings {
    batch: usize,
    time: usize,
    features: usize,
    heads: usize,
    causal: bool,
    bias: bool,
}

#[test]
fn attention_is_that_of_pytorch() {
    let tolerance = Tolerance { scale: 2e-6, relative: 2e-5, absolute: 1e-7 };
    let entries: Vec<Entry> =
        golden::load("modules/attention").expect("tests/golden/modules/attention.json is missing");
    let floats = |tensor: &golden::Tensor| tensor.input::<f32>().reals().to_vec();
    for (device, entry) in devices().iter().flat_map(|device| entries.iter().map(move |entry| (device, entry))) {
        let Settings { batch, time, features, heads, causal, bias } = entry.settings;
        let model = Model::new("attention", [time, features], move |x| {
            let attention = MultiheadAttention::new(heads).causal(causal).bias(bias);
            x.layer("positions", PositionalEmbedding::new(time + 2)).layer("attention", attention)
        });
        let targets = Targets::Values { values: floats(&entry.target), shape: [time, features].into() };
        let data = TensorDataset::new(Values::F32(floats(&entry.input)), [time, features], targets).unwrap();
        let config = Config { loss: Loss::Mse, ..Config::default().batch(batch).optimizer(SGD) };
        let mut trainer = Trainer::new(model, config, device).unwrap();
        assert!(trainer.parameters().unwrap().keys().eq(entry.parameters.keys()), "{}: other parameters", entry.case);
        for (name, value) in &entry.parameters {
            trainer.set_parameter(name, &floats(value)).unwrap();
        }
        let check = |what: &str, found: &[f64], expected: &golden::Tensor| {
            close(found, &expected.buf::<f64>().to_f64(), tolerance)
                .unwrap_or_else(|error| panic!("{device}, {}, {what}: {error}", entry.case));
        };
        let output: Vec<f64> = trainer.predict(&data).unwrap().values.into_iter().map(f64::from).collect();
        check("output", &output, &entry.output);
        trainer.step(&data, &(0..batch).collect::<Vec<_>>()).unwrap();
        for (name, gradient) in momenta(&mut trainer) {
            check(&name, &gradient, &entry.gradients[&name]);
        }
    }
}
