//! Batch norm in training: what running statistics become, against PyTorch's rule computed here in f64, which statistics
//! evaluation uses, and what splits of a batch do to them.

use std::collections::BTreeMap;

use tightfit::data::{Batch, Dataset, Targets, TensorDataset, Values};
use tightfit::error::TrainError;
use tightfit::nn::{BatchNorm, Sequential, Statistics};
use tightfit::train::{Config, DeviceSelector, Loss, Optimizer, Trainer};

const CHANNELS: usize = 3;
const PLACES: usize = 4;
const BATCH: usize = 5;
const MOMENTUM: f64 = 0.1;

fn devices() -> Vec<String> {
    crate::common::gpu().into_iter().chain(["cpu".to_owned()]).collect()
}

/// Samples of channels that differ in mean and deviation, and targets of their shape.
fn data(count: usize) -> (TensorDataset, Vec<f32>) {
    let mut random = crate::common::fill::rng("batch_norm");
    let mut draw = |i: usize| {
        let channel = i / PLACES % CHANNELS;
        crate::common::fill::normal(&mut random) * (1 + channel) as f32 + 10.0 * channel as f32
    };
    let samples: Vec<f32> = (0..count * CHANNELS * PLACES).map(&mut draw).collect();
    let values = (0..samples.len()).map(draw).collect();
    let targets = Targets::Values { values, shape: [CHANNELS, PLACES].into() };
    (TensorDataset::new(Values::F32(samples.clone()), [CHANNELS, PLACES], targets).expect("dataset"), samples)
}

fn model() -> Sequential {
    Sequential::new("bn", [CHANNELS, PLACES]).batch_norm()
}

fn config() -> Config {
    Config::default().batch(BATCH).loss(Loss::Mse).optimizer(Optimizer::sgd(0.01))
}

/// Mean and unbiased variance of each channel of some samples.
fn statistics(samples: &[f32]) -> [Vec<f64>; 2] {
    let channel = |c: usize| -> Vec<f64> {
        let of_channel = samples.iter().enumerate().filter(|(i, _)| i / PLACES % CHANNELS == c);
        of_channel.map(|(_, &x)| f64::from(x)).collect()
    };
    let mean = |xs: &[f64]| xs.iter().sum::<f64>() / xs.len() as f64;
    let var = |xs: &[f64]| {
        let mean = mean(xs);
        xs.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (xs.len() - 1) as f64
    };
    [(0..CHANNELS).map(|c| mean(&channel(c))).collect(), (0..CHANNELS).map(|c| var(&channel(c))).collect()]
}

/// Running mean and variance after steps on these samples in order, each cut into parts of these sizes.
fn running(samples: &[f32], parts: &[usize]) -> [Vec<f64>; 2] {
    let mut running = [vec![0.0; CHANNELS], vec![1.0; CHANNELS]];
    for step in samples.chunks(BATCH * CHANNELS * PLACES) {
        let mut rest = step;
        let mut of_step = [vec![0.0; CHANNELS], vec![0.0; CHANNELS]];
        for &part in parts {
            let (samples, after) = rest.split_at(part * CHANNELS * PLACES);
            rest = after;
            for (sums, of_part) in of_step.iter_mut().zip(statistics(samples)) {
                sums.iter_mut().zip(of_part).for_each(|(sum, x)| *sum += x * part as f64 / BATCH as f64);
            }
        }
        for (running, of_step) in running.iter_mut().zip(of_step) {
            running.iter_mut().zip(of_step).for_each(|(r, x)| *r = (1.0 - MOMENTUM) * *r + MOMENTUM * x);
        }
    }
    running
}

fn step(trainer: &mut Trainer, data: &TensorDataset, number: usize) -> Result<(), TrainError> {
    trainer.step(data, &(number * BATCH..(number + 1) * BATCH).collect::<Vec<_>>()).map(|_| ())
}

fn tensors(trainer: &mut Trainer) -> BTreeMap<String, Vec<f64>> {
    let tensors = trainer.state_dict().expect("device");
    tensors.into_iter().map(|(name, (_, data))| (name, data.into_iter().map(f64::from).collect())).collect()
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= 2e-5 * (1.0 + b.abs()), "{what}: {found:?} instead of {expected:?}");
    }
}

fn assert_running(trainer: &mut Trainer, expected: &[Vec<f64>; 2], what: &str) {
    let found = tensors(trainer);
    assert_close(&found["bn1.running_mean"], &expected[0], what);
    assert_close(&found["bn1.running_var"], &expected[1], what);
}

#[test]
fn running_statistics_follow_the_batches_and_evaluation_uses_them() {
    let (data, samples) = data(3 * BATCH);
    for device in devices() {
        let mut trainer = Trainer::new(model(), config(), &device).expect("trainer");
        (0..3).for_each(|number| step(&mut trainer, &data, number).expect("step"));
        assert_running(&mut trainer, &running(&samples, &[BATCH]), &device);

        let state = tensors(&mut trainer);
        let predict = |(i, &x): (usize, &f32)| {
            let of = |name: &str| state[&format!("bn1.{name}")][i / PLACES % CHANNELS];
            (f64::from(x) - of("running_mean")) / (of("running_var") + 1e-5).sqrt() * of("weight") + of("bias")
        };
        let expected: Vec<_> = samples.iter().enumerate().map(predict).collect();
        let found: Vec<_> = trainer.predict(&data).expect("predict").values.into_iter().map(f64::from).collect();
        assert_close(&found, &expected, &device);
        assert_ne!(state["bn1.weight"], [1.0; CHANNELS], "the weight is trained");
    }
}

#[test]
fn a_loss_that_is_not_finite_leaves_running_statistics_as_they_were() {
    let (good, mut samples) = data(2 * BATCH);
    samples[BATCH * CHANNELS * PLACES + 1] = f32::NAN;
    let mut batch = Batch::default();
    good.read(&(0..2 * BATCH).collect::<Vec<_>>(), &mut batch).expect("in range");
    let targets = Targets::Values { values: batch.values("target"), shape: [CHANNELS, PLACES].into() };
    let data = TensorDataset::new(Values::F32(samples), [CHANNELS, PLACES], targets).expect("dataset");
    for device in devices() {
        let mut trainer = Trainer::new(model(), config(), &device).expect("trainer");
        step(&mut trainer, &data, 0).expect("finite");
        let before = tensors(&mut trainer);
        let error = step(&mut trainer, &data, 1).expect_err("a sample is NaN");
        assert!(matches!(error, TrainError::NonFinite { .. }), "on {device}: {error}");
        assert_eq!(tensors(&mut trainer), before, "on {device}");
    }
}

#[test]
fn a_batch_is_split_only_where_its_statistics_may_be() {
    let (data, samples) = data(3 * BATCH);
    let split = config().micro_batches(2);
    let error = Trainer::new(model(), split.clone(), DeviceSelector::Cpu).expect_err("exact statistics").to_string();
    assert!(error.contains("bn1") && error.contains("mixes the samples"), "{error}");
    for device in devices() {
        let train = |config: Config| {
            let mut trainer = Trainer::new(model(), config, &device).expect("trainer");
            (0..3).for_each(|number| step(&mut trainer, &data, number).expect("step"));
            trainer
        };
        let mut ghost = train(split.clone().statistics(Statistics::Ghost));
        assert_eq!(ghost.plan().micro_batches, [3, 2]);
        assert_running(&mut ghost, &running(&samples, &[3, 2]), &device);

        let mut whole = train(config().micro_batches(1).statistics(Statistics::Ghost));
        let exact = train(config()).parameters_sha256().expect("device");
        assert_eq!(whole.parameters_sha256().expect("device"), exact, "on {device}");

        let mut frozen = train(split.clone().statistics(Statistics::Frozen));
        assert_eq!(frozen.plan().micro_batches, [3, 2]);
        assert_running(&mut frozen, &[vec![0.0; CHANNELS], vec![1.0; CHANNELS]], &device);
        assert_ne!(tensors(&mut frozen)["bn1.weight"], [1.0; CHANNELS], "weights are trained all the same");
    }
}

#[test]
fn micro_batches_of_one_value_per_channel_are_passed_over() {
    let model = Sequential::new("bn", [4]).linear(3).push(BatchNorm::new().relu(true)).linear(2);
    let config = Config::default().batch(4).statistics(Statistics::Ghost);
    let trainer = Trainer::new(model.clone(), config.clone(), DeviceSelector::Cpu).expect("larger ones remain");
    assert!(trainer.plan().micro_batches.iter().all(|&samples| samples > 1));
    let error =
        Trainer::new(model, config.micro_batches(4), DeviceSelector::Cpu).expect_err("one value each").to_string();
    assert!(error.contains("more than one value per channel"), "{error}");
}
