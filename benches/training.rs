//! Time of a training step of the built-in models on the default device: `cargo bench --bench training`.
//!
//! Batch sizes are those of the peers' workloads w1, w2 and w3; the batch is on the host before a step begins, and a step
//! ends when its loss is back.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tightfit::data::mnist;
use tightfit::error::{DeviceError, TrainError};
use tightfit::models;
use tightfit::train::{Config, Trainer};

fn training(criterion: &mut Criterion) {
    let (train, _) = mnist::open(concat!(env!("CARGO_MANIFEST_DIR"), "/data/mnist")).expect("bundled data");
    let mut group = criterion.benchmark_group("step");
    group.sample_size(20);
    for (name, batch) in [("mnist-mlp", 128), ("mnist-cnn", 64), ("mnist-lstm", 64)] {
        let model = models::builtin(name).expect("no such model");
        let data = train.clone().with_sample_shape(model.input_shape().clone()).expect("784 pixels");
        let mut trainer = match Trainer::new(model, Config::default().batch(batch), None) {
            Err(TrainError::Device(error @ DeviceError::NoAdapter)) => {
                println!("skipped: {error}");
                return;
            }
            trainer => trainer.expect("trainer"),
        };
        let batches: Vec<Vec<usize>> = (0..16).map(|i| (i * batch..(i + 1) * batch).collect()).collect();
        let mut next = batches.iter().cycle();
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_function(format!("{name}/{}", trainer.device_name().to_owned()), |b| {
            b.iter(|| trainer.step(&data, next.next().expect("endless")).expect("step"));
        });
    }
    group.finish();
}

criterion_group!(benches, training);
criterion_main!(benches);
