//! What freezing all but the last layer saves: `cargo bench --bench frozen [MODEL [BATCH [STEPS [DEVICE]]]]`.
//!
//! Trains a built-in model on random images with all parameters and with those of its last layer alone, in turns: planned peak, bytes of
//! optimizer state, predicted and measured time of a step.

use std::time::Instant;

use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::graph::Role;
use tightfit::models;
use tightfit::plan::{Plan, format_bytes};
use tightfit::train::{Config, Trainer, summary};

const ROUNDS: usize = 2;

fn optimizer_bytes(plan: &Plan) -> u64 {
    let states = plan.persistent.iter().filter(|value| value.role == Role::State);
    states.map(|value| value.desc.size_bytes()).sum()
}

fn main() {
    // `cargo bench` adds a flag of its own.
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let name = args.next().unwrap_or_else(|| "resnet50".to_owned());
    let number = |arg: Option<String>, usual| arg.map_or(usual, |arg| arg.parse().expect("a number"));
    let (batch, steps) = (number(args.next(), 32), number(args.next(), 2));
    let device = args.next();
    let model = models::builtin(&name).expect("a built-in model");
    let (input, output) = (model.input_shape().clone(), model.output_shape().expect("fits together"));
    let pixels = (0..batch * input.numel()).map(|i| (i * 7919 % 251) as u8).collect();
    let labels = (0..batch as u32).map(|i| i % output.numel() as u32).collect();
    let targets = Targets::labels(labels, output.numel() as u32);
    let data = TensorDataset::new(Values::U8(pixels), input, targets).expect("random images");
    let indices: Vec<_> = (0..batch).collect();
    let table = summary(model.clone(), &Config::default()).expect("fits together");
    let last = table.rows().iter().rev().find(|row| row.parameters > 0).expect("a layer with parameters");
    let head = format!("{}.", last.name);
    for round in 1..=ROUNDS {
        for config in [Config::default(), Config::default().train_only(head.as_str())] {
            let what = if config.train_only.is_empty() { "all" } else { head.as_str() };
            let mut trainer = Trainer::new(model.clone(), config.batch(batch), device.as_deref()).expect("a trainer");
            trainer.step(&data, &indices).expect("a step");
            let start = Instant::now();
            for _ in 0..steps {
                trainer.step(&data, &indices).expect("a step");
            }
            let plan = trainer.plan();
            println!(
                "round {round}: trains {what:<5} peak {}, optimizer state {}, predicted {:.1} ms a step, measured {:.1} ms",
                format_bytes(plan.peak_bytes),
                format_bytes(optimizer_bytes(plan)),
                plan.predicted_step_ns as f64 / 1e6,
                start.elapsed().as_secs_f64() * 1e3 / steps as f64
            );
        }
    }
}
