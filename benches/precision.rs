//! What 16 bits save: `cargo bench --bench precision [MODEL:BATCH[:SHAPE] [STEPS [DEVICE]]]`, such as `unet:8:3x512x512 1 cpu`.
//!
//! Trains a model on random samples in f32, f16, bf16 and in f32 with activations saved in bf16, in turns: bytes of activations,
//! planned and measured peak, and the time of a step. `lstm` is two LSTM layers of 256 over 128 steps of 64 numbers.

use std::time::Instant;

use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::models;
use tightfit::nn::{Linear, Lstm, Model};
use tightfit::plan::format_bytes;
use tightfit::tensor::Half;
use tightfit::train::{Config, Loss, Precision, Trainer, summary};

const ROUNDS: usize = 3;

fn lstm() -> Model {
    Model::new("lstm", [128, 64], |x| x.layer("lstm", Lstm::new(256).num_layers(2)).layer("head", Linear::new(64)))
}

/// Samples that go with a model, and its loss.
fn data(model: &Model, batch: usize) -> (TensorDataset, Loss) {
    let (input, output) = (model.input_shape().clone(), model.output_shape().expect("fits together"));
    let count = batch * input.numel();
    let (values, targets, loss) = match model.name() {
        "lstm" => {
            let values = (0..batch * output.numel()).map(|i| (i * 31 % 17) as f32 / 17.0).collect();
            let targets = Targets::Values { values, shape: output };
            (Values::F32((0..count).map(|i| (i * 7919 % 251) as f32 / 125.0 - 1.0).collect()), targets, Loss::Mse)
        }
        "gpt" => {
            let classes = output[output.len() - 1] as u32;
            let labels = (0..count as u32).map(|i| i * 7 % classes).collect();
            let targets = Targets::label_maps(labels, classes, input.to_vec());
            (
                Values::U32((0..count as u32).map(|i| i * 31 % classes).collect()),
                targets,
                Loss::cross_entropy_of_sequences(),
            )
        }
        _ => {
            let classes = output[0] as u32;
            let labels = (0..(batch * output.numel()) as u32 / classes).map(|i| i % classes).collect();
            let targets = Targets::label_maps(labels, classes, output[1..].to_vec());
            (Values::U8((0..count).map(|i| (i * 7919 % 251) as u8).collect()), targets, Loss::default())
        }
    };
    (TensorDataset::new(values, input, targets).expect("samples that fit"), loss)
}

fn main() {
    // `cargo bench` adds a flag of its own.
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let name = args.next().unwrap_or_else(|| "resnet18_cifar:32".to_owned());
    let mut parts = name.split(':');
    let name = parts.next().unwrap_or_default();
    let batch: usize = parts.next().map_or(32, |batch| batch.parse().expect("a number"));
    let mut model = if name == "lstm" { lstm() } else { models::builtin(name).expect("a built-in model") };
    if let Some(shape) = parts.next() {
        model =
            model.with_input(shape.split('x').map(|extent| extent.parse().expect("a number")).collect::<Vec<usize>>());
    }
    let steps: usize = args.next().map_or(3, |steps| steps.parse().expect("a number"));
    let device = args.next();
    let (data, loss) = data(&model, batch);
    let indices: Vec<_> = (0..batch).collect();
    let config = || Config::default().batch(batch).micro_batches(1).loss(loss.clone());
    let ways = [
        ("f32", config()),
        ("f16", config().precision(Precision::F16)),
        ("bf16", config().precision(Precision::Bf16)),
        ("f32, bf16 saved", config().save_activations(Half::Bf16)),
    ];
    for round in 1..=ROUNDS.min(steps) {
        for (what, config) in &ways {
            let table = summary(model.clone(), config).expect("fits together");
            let activations: u64 = table.rows().iter().map(|row| row.saved_bytes).sum();
            let mut trainer = Trainer::new(model.clone(), config.clone(), device.as_deref()).expect("a trainer");
            let mut times: Vec<f64> = (0..=steps)
                .map(|_| {
                    let start = Instant::now();
                    trainer.step(&data, &indices).expect("a step");
                    start.elapsed().as_secs_f64() * 1e3
                })
                .collect();
            // The first compiles kernels.
            times.remove(0);
            times.sort_by(f64::total_cmp);
            println!(
                "round {round}: {name} {what:<16} activations {}, planned {} bytes, measured {} bytes, {:.1} ms a step",
                format_bytes(activations),
                trainer.plan().peak_bytes,
                trainer.measured_peak_bytes(),
                times[times.len() / 2]
            );
        }
    }
}
