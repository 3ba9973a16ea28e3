//! Time to plan the built-in models, without a device: `cargo bench --bench planner`.

use criterion::{Criterion, criterion_group, criterion_main};
use tightfit::models;
use tightfit::plan::Limits;
use tightfit::train::{Config, plan};

fn planner(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan");
    for (name, batch) in [("mnist-mlp", 128), ("mnist-cnn", 256), ("mnist-lstm", 64)] {
        let model = models::builtin(name).expect("no such model");
        let config = Config::default().batch(batch);
        let unlimited = plan(&model, &config, &Limits::default()).expect("plan").plan;
        group.bench_function(format!("{name}/no budget"), |b| {
            b.iter(|| plan(&model, &config, &Limits::default()).expect("plan"));
        });
        let tight = config.budget_bytes(unlimited.minimum_budget_bytes);
        group.bench_function(format!("{name}/minimum"), |b| {
            b.iter(|| plan(&model, &tight, &Limits::default()).expect("plan"));
        });
    }
    group.finish();
}

criterion_group!(benches, planner);
criterion_main!(benches);
