//! What callbacks, logs, checkpoints and snapshots cost a training: `cargo bench --bench callbacks [STEPS [PARTS [DEVICE]]]`.
//!
//! Fits of `mnist-mlp` (batch 128, workload w1) in turns, plain and with everything on: early stopping, a plateau, all three logs, moving
//! averages, gradient norms, a checkpoint every 500 steps, snapshots every 100; or with the parts that are named, with commas between
//! them. Validation, where there is one, is on in both. Wall time over whole fits, and the process's memory as it goes.

use std::path::Path;
use std::time::Instant;

use tightfit::data::{TensorDataset, mnist};
use tightfit::models;
use tightfit::train::{
    Callback, Checkpoints, Config, EarlyStopping, FitOptions, Logger, LowerOnPlateau, Recovery, ReduceOnPlateau,
    Schedule, StepReport, StopEarly, Trainer,
};

const BATCH: usize = 128;
const ROUNDS: usize = 4;
const PARTS: &str = "early,plateau,logs,ema,norm,checkpoints,snapshots,validation";

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// Milliseconds a step, and the memory after 500 steps and at the end.
fn fit(
    [train, test]: [&TensorDataset; 2],
    steps: u64,
    parts: &str,
    folder: &Path,
    device: Option<&str>,
) -> (f64, [u64; 2]) {
    let has = |part: &str| parts.split(',').any(|named| named == part);
    let mut config = Config::default().batch(BATCH).schedule(Schedule::cosine());
    config.recovery = Recovery { snapshot_every: if has("snapshots") { 100 } else { u64::MAX }, ..config.recovery };
    config.ema_decay = has("ema").then_some(0.999);
    config.grad_norm = has("norm");
    let mut trainer = Trainer::new(models::mnist_mlp(10), config, device).expect("a trainer");
    let epochs = steps.div_ceil((train.len() / BATCH) as u64);
    let mut early = StopEarly::new(EarlyStopping { patience: 1_000_000, restore_best: true, ..Default::default() });
    let mut plateau = LowerOnPlateau::new(ReduceOnPlateau { patience: 1_000_000, ..Default::default() });
    let mut logger = Logger::new();
    logger = logger.csv(folder).jsonl(folder.join("log.jsonl")).tensorboard(folder.join("tensorboard"));
    let mut callbacks: Vec<&mut dyn Callback> = Vec::new();
    if has("early") {
        callbacks.push(&mut early);
    }
    if has("plateau") {
        callbacks.push(&mut plateau);
    }
    if has("logs") {
        callbacks.push(&mut logger);
    }
    let checkpoints = Checkpoints::new(folder.join("checkpoints")).every_steps(500).each_epoch(false);
    let mut memory = [0; 2];
    let mut on_step = |step: &StepReport| {
        if step.step == 500.min(steps) {
            memory[0] = resident_kib();
        }
        memory[1] = if step.step.is_multiple_of(100) { memory[1].max(resident_kib()) } else { memory[1] };
    };
    let start = Instant::now();
    let options = FitOptions {
        max_steps: Some(steps),
        validation: (has("validation") || has("early") || has("plateau")).then(|| test.into()),
        callbacks,
        checkpoints: has("checkpoints").then_some(checkpoints),
        on_step: Some(&mut on_step),
        ..FitOptions::epochs(epochs)
    };
    let report = trainer.fit(train, options).expect("trains");
    (start.elapsed().as_secs_f64() * 1e3 / report.steps as f64, memory)
}

fn main() {
    // `cargo bench` adds a flag of its own.
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let steps = args.next().map_or(1000, |steps| steps.parse().expect("a number of steps"));
    let parts = args.next().unwrap_or_else(|| PARTS.to_owned());
    let device = args.next();
    let (train, test) = mnist::open(concat!(env!("CARGO_MANIFEST_DIR"), "/data/mnist")).expect("bundled data");
    let shape = models::mnist_mlp(10).input_shape().clone();
    let [train, test] = [train, test].map(|data| data.with_sample_shape(shape.clone()).expect("784 pixels"));
    let test = test.take(256).expect("some");
    // Validation is no callback, though some need it.
    let validates = ["validation", "early", "plateau"].iter().any(|part| parts.split(',').any(|named| named == *part));
    let plain_parts = if validates { "validation" } else { "" };
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        let folder = std::env::temp_dir().join(format!("tightfit-callbacks-{}-{round}", std::process::id()));
        let (plain, _) = fit([&train, &test], steps, plain_parts, &folder, device.as_deref());
        let (all, memory) = fit([&train, &test], steps, &parts, &folder, device.as_deref());
        let _ = std::fs::remove_dir_all(&folder);
        ratios.push(all / plain);
        println!(
            "round {round}: plain {plain:.3} ms a step, with {parts} {all:.3} ms ({:+.1}%); process {} KiB after 500 steps, at most {} KiB",
            (all / plain - 1.0) * 100.0,
            memory[0],
            memory[1]
        );
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.3}", ratios[ROUNDS / 2]);
}
