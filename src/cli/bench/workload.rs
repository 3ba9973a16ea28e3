//! What `tightfit bench` trains: models, batches and data that other frameworks are measured with too.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tightfit::data::{Batch, Batches, Dataset, INPUT, Order, TARGET, Targets, TensorDataset, Values, mnist};
use tightfit::models::{self, Block, Stem};
use tightfit::nn::{Linear, Lstm, Model, Sequential};
use tightfit::train::Loss;

use super::super::data::folder;
use super::super::failure::Failure;

/// Decides random data and which images of MNIST are taken.
const SEED: u64 = 42;

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    W1,
    W2,
    W3,
    W3b,
    W4,
    W5,
    // Too large for software devices; `scripts/gpu-check` runs them.
    #[value(hide = true)]
    Gemm4096,
    #[value(hide = true)]
    Resnet50,
    #[value(hide = true)]
    Lstm1024,
}

impl Workload {
    /// Those that help lists.
    pub(super) fn names() -> Vec<String> {
        let shown = Workload::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        shown.filter(|value| !value.is_hide_set()).map(|value| value.get_name().to_owned()).collect()
    }

    pub(super) fn name(self) -> String {
        self.to_possible_value().expect("bug: a workload without a name").get_name().to_owned()
    }

    pub(super) fn model(self) -> Model {
        match self {
            Workload::W1 => models::mnist_mlp(10),
            Workload::W2 => models::mnist_cnn(10),
            Workload::W3 => models::mnist_lstm(10),
            Workload::W3b => lstms(128, 64, 256, 64),
            Workload::W4 => models::resnet18(10, Stem::Cifar),
            Workload::W5 => {
                let model = models::resnet("w5", Block::Basic, [3, 3, 3, 3], [16, 32, 64, 128], 10, Stem::Cifar);
                model.with_input([3, 256, 256])
            }
            Workload::Gemm4096 => Sequential::new("gemm4096", [4096]).linear(4096).linear(4096).into(),
            Workload::Resnet50 => models::resnet50(1000, Stem::ImageNet),
            Workload::Lstm1024 => lstms(128, 256, 1024, 64),
        }
    }

    /// Samples of a step.
    pub(super) fn batch(self) -> usize {
        match self {
            Workload::W1 => 128,
            Workload::W2 | Workload::W3 | Workload::Resnet50 | Workload::Lstm1024 => 64,
            Workload::W3b | Workload::W4 => 32,
            Workload::W5 => 8,
            Workload::Gemm4096 => 4096,
        }
    }

    /// Different batches, which come again and again: few where they are large.
    fn batches(self) -> usize {
        match self {
            Workload::W5 | Workload::Resnet50 => 4,
            Workload::Gemm4096 => 2,
            _ => 16,
        }
    }

    pub(super) fn loss(self) -> Loss {
        match self {
            Workload::W3b | Workload::Gemm4096 | Workload::Lstm1024 => Loss::Mse,
            _ => Loss::default(),
        }
    }

    /// The samples of all batches, one batch after the other, as they are uploaded.
    pub(super) fn data(self, model: &Model, batch: usize, dir: Option<&Path>) -> Result<TensorDataset, Failure> {
        let samples = self.batches().saturating_mul(batch);
        match self {
            Workload::W1 | Workload::W2 | Workload::W3 => {
                images(model, samples, &dir.map_or_else(mnist_dir, Path::to_owned))
            }
            _ => self.random(model, samples),
        }
    }

    /// Numbers of a normal distribution, and labels or numbers to go with them.
    fn random(self, model: &Model, samples: usize) -> Result<TensorDataset, Failure> {
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let output = model.output_shape()?;
        let input = normal(&mut rng, samples, model.input_shape().numel())?;
        let targets = if self.loss() == Loss::Mse {
            Targets::Values { values: normal(&mut rng, samples, output.numel())?, shape: output }
        } else {
            let classes = output.numel() as u32;
            Targets::labels((0..samples).map(|_| rng.next_u32() % classes).collect(), classes)
        };
        Ok(TensorDataset::new(Values::F32(input), model.input_shape().clone(), targets)?)
    }
}

/// Two LSTM layers over sequences; the last state gives numbers.
fn lstms(length: usize, features: usize, hidden: usize, outputs: usize) -> Model {
    Model::new("lstms", [length, features], move |x| {
        x.layer("lstm", Lstm::new(hidden).num_layers(2)).layer("head", Linear::new(outputs))
    })
}

fn mnist_dir() -> PathBuf {
    std::env::var_os("TIGHTFIT_DATA").map_or_else(|| folder(None), |dir| PathBuf::from(dir).join("mnist"))
}

/// Images of MNIST in shuffled order, as floats; again from the first where there are too few.
fn images(model: &Model, samples: usize, dir: &Path) -> Result<TensorDataset, Failure> {
    let (train, _) = mnist::open_as(dir, model.input_shape().clone())?;
    let order = Batches::new(train.len(), train.len(), Order::Shuffled { seed: SEED }, false)?.epoch(0);
    let indices: Vec<usize> = order.iter().flatten().copied().cycle().take(samples).collect();
    let mut batch = Batch::default();
    train.read(&indices, &mut batch)?;
    let targets = Targets::labels(batch.ints(TARGET), mnist::CLASSES);
    Ok(TensorDataset::new(Values::F32(batch.values(INPUT)), model.input_shape().clone(), targets)?)
}

/// Box and Muller's way to normal numbers.
fn normal(rng: &mut ChaCha8Rng, samples: usize, numel: usize) -> Result<Vec<f32>, Failure> {
    let count = samples.saturating_mul(numel);
    let mut values = Vec::new();
    if values.try_reserve_exact(count).is_err() {
        return Err(Failure::bad_input(format!(
            "{samples} samples do not fit into this machine's memory: use a smaller --batch"
        )));
    }
    let mut unit = || (rng.next_u32() as f32 + 0.5) / 2f32.powi(32);
    values.extend((0..count).map(|_| (-2.0 * unit().ln()).sqrt() * (std::f32::consts::TAU * unit()).cos()));
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_as_large_as_those_of_other_frameworks() {
        for (workload, parameters) in [
            (Workload::W1, 669_706),
            (Workload::W2, 1_199_882),
            (Workload::W3, 82_186),
            (Workload::W3b, 872_512),
            (Workload::W4, 11_173_962),
            (Workload::W5, 1_094_106),
            (Workload::Gemm4096, 2 * (4096 * 4096 + 4096)),
            (Workload::Resnet50, 25_557_032),
            (Workload::Lstm1024, 13_713_472),
        ] {
            assert_eq!(workload.model().parameter_count().expect("builds"), parameters, "{workload:?}");
        }
    }

    #[test]
    fn random_data_is_normal_and_the_same_each_time() {
        let model = Workload::W3b.model();
        let data = Workload::W3b.data(&model, 2, None).expect("fits");
        assert_eq!(data.len(), 32);
        assert_eq!(data, Workload::W3b.data(&model, 2, None).expect("fits"));
        let mut batch = Batch::default();
        data.read(&(0..32).collect::<Vec<_>>(), &mut batch).expect("in range");
        let values = batch.values(INPUT);
        let mean =
            |power: i32| values.iter().map(|value| f64::from(*value).powi(power)).sum::<f64>() / values.len() as f64;
        assert!(mean(1).abs() < 0.01 && (mean(2) - 1.0).abs() < 0.02 && (mean(4) - 3.0).abs() < 0.1);
    }

    #[test]
    fn help_does_not_list_what_software_devices_cannot_do() {
        assert_eq!(Workload::names(), ["w1", "w2", "w3", "w3b", "w4", "w5"]);
    }
}
