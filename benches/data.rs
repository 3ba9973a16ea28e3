//! What reading files costs a training: `cargo bench --bench data DATA_FOLDER PNG_FOLDER [STEPS [DEVICE]]`.
//!
//! Fits of `mnist-cnn` (batch 64) in turns: on MNIST in memory, and on the same images as PNG files, which
//! `cargo run --release --example mnist_png -- DATA_FOLDER PNG_FOLDER` writes, with 0, 1 and 2 workers. Medians of steps and wall time over
//! whole fits, and what the loader plans to take of host memory. `PNG_FOLDER/train` is read alone too, as fast as it goes.

use std::path::Path;
use std::time::Instant;

use tightfit::data::{DataLoader, EpochOptions, ImageFolder, ImageOptions, mnist};
use tightfit::models;
use tightfit::nn::Normalization;
use tightfit::train::{Config, FitOptions, Trainer};

const BATCH: usize = 64;
const ROUNDS: usize = 3;
const WORKERS: [usize; 3] = [0, 1, 2];

fn folder(path: &Path) -> ImageFolder {
    let options = ImageOptions { channels: 1, ..ImageOptions::sized(28, 28) };
    ImageFolder::open(path, options).expect("a folder of PNG files")
}

/// Milliseconds a step: their median, and of the whole.
fn fit(data: DataLoader<'_>, steps: u64, device: Option<&str>) -> [f64; 2] {
    let model = models::mnist_cnn(10).normalized(Normalization::unit());
    let mut trainer = Trainer::new(model, Config::default().batch(BATCH), device).expect("a trainer");
    let start = Instant::now();
    let report = trainer.fit(data, FitOptions { max_steps: Some(steps), ..FitOptions::epochs(1000) }).expect("trains");
    [report.step_ms_median, start.elapsed().as_secs_f64() * 1e3 / report.steps as f64]
}

/// Samples a second, without a training.
fn read(loader: &DataLoader<'_>, batches: usize) -> f64 {
    let start = Instant::now();
    let samples = std::thread::scope(|scope| {
        let mut epoch = loader.epoch(scope, EpochOptions::new(BATCH).shuffled(0)).expect("begins");
        let mut samples = 0;
        for _ in 0..batches {
            let Some(batch) = epoch.next_batch().expect("reads") else { break };
            samples += batch.len();
            epoch.recycle(batch);
        }
        samples
    });
    samples as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    // `cargo bench` adds a flag of its own.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let [from, png, rest @ ..] = &args[..] else {
        println!("usage: cargo bench --bench data DATA_FOLDER PNG_FOLDER [STEPS [DEVICE]]");
        return;
    };
    let steps = rest.first().map_or(300, |steps| steps.parse().expect("a number of steps"));
    let device = rest.get(1).map(String::as_str);
    let (train, _) = mnist::open(from).expect("MNIST's files");
    let files = folder(&Path::new(png).join("train"));
    let of_files = |workers| DataLoader::new(&files).workers(workers);
    for workers in WORKERS {
        let memory = of_files(workers).memory(BATCH).expect("fits");
        let (speed, bytes) = (read(&of_files(workers), 500), memory.total_bytes());
        println!("{workers} workers: {speed:.0} images a second, {bytes} bytes of host memory ({memory:?})");
    }
    for round in 1..=ROUNDS {
        let [median, wall] = fit((&train).into(), steps, device);
        println!("round {round}: in memory {median:.3} ms a step ({wall:.3} with all)");
        for workers in WORKERS {
            let [of_files, with_all] = fit(of_files(workers), steps, device);
            let share = median / of_files * 100.0;
            println!(
                "round {round}: {workers} workers {of_files:.3} ms a step ({with_all:.3} with all), {share:.1}% of the speed"
            );
        }
    }
}
