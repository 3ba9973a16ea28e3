//! Learns to write text character by character with two LSTM layers, or with a small transformer, and then writes some.
//!
//! `cargo run --release --example char_lm [FILE [lstm|gpt [STEPS [DEVICE]]]]`; without a file it reads this project's own
//! documentation.

use std::error::Error;
use std::fs;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tightfit::data::text::{CHARACTERS, character, pieces, token};
use tightfit::data::{TensorDataset, Values};
use tightfit::models;
use tightfit::train::{Config, FitOptions, Loss, Optimizer, StepReport, Trainer};

/// Characters that the model sees.
const LENGTH: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let text = match args.next() {
        Some(path) => fs::read_to_string(path)?,
        None => ["docs/models.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
            .map(fs::read_to_string)
            .into_iter()
            .collect::<Result<_, _>>()?,
    };
    let model = match args.next().as_deref() {
        None | Some("lstm") => models::char_lstm(LENGTH, models::CHARACTERS),
        Some("gpt") => models::gpt(LENGTH, models::CHARACTERS),
        Some(other) => return Err(format!("`{other}` is neither lstm nor gpt").into()),
    };
    let steps: u64 = args.next().map_or(Ok(150), |steps| steps.parse())?;
    let device = args.next();
    let train = pieces(&text, LENGTH, 16)?;
    let config = Config::default()
        .loss(Loss::cross_entropy_of_sequences())
        .optimizer(Optimizer::adam(3e-3))
        .clip_norm(1.0)
        .batch(16)
        .budget_bytes(24 << 20);
    let mut trainer = Trainer::new(&model, config, device.as_deref())?;
    println!("{}\n\ntraining on {}", trainer.plan(), trainer.device_name());
    let mut on_step = |step: &StepReport| {
        if step.step.is_multiple_of(25) {
            println!("step {:>4}  loss {:.3} a character  {:.0} ms", step.step, step.loss, step.step_ms);
        }
    };
    let options = FitOptions { max_steps: Some(steps), on_step: Some(&mut on_step), ..FitOptions::epochs(1000) };
    trainer.fit(&train, options)?;

    println!("\n{}\n", write(&mut trainer, "tightfit trains ", 120)?);
    println!("measured peak {} bytes, planned {} bytes", trainer.measured_peak_bytes(), trainer.plan().peak_bytes);
    Ok(())
}

/// Goes on from `start`, each character drawn by its probability.
fn write(trainer: &mut Trainer, start: &str, count: usize) -> Result<String, Box<dyn Error>> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut text: Vec<u32> = start.chars().map(token).collect();
    for _ in 0..count {
        let seen = &text[text.len().saturating_sub(LENGTH)..];
        // What comes after the last character does not change what follows it.
        let sample = seen.iter().copied().chain(std::iter::repeat(0)).take(LENGTH).collect();
        let logits = trainer.predict(&TensorDataset::unlabeled(Values::U32(sample), [LENGTH])?)?.values;
        let classes = CHARACTERS as usize;
        let last = &logits[(seen.len() - 1) * classes..seen.len() * classes];
        // A temperature of 0.7 keeps to what is likely.
        let weights: Vec<f32> = last.iter().map(|logit| (logit / 0.7).exp()).collect();
        let mut left = random.random_range(0.0..1.0_f32) * weights.iter().sum::<f32>();
        let drawn = weights.iter().position(|weight| {
            left -= weight;
            left <= 0.0
        });
        text.push(drawn.unwrap_or(0) as u32);
    }
    Ok(text.into_iter().map(character).collect())
}
