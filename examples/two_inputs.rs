//! Two inputs, two outputs and weights of samples: from a noisy picture of two bars and the day of the week, how high the bars are and
//! which of them is the day's.
//!
//! `cargo run --release --example two_inputs [EPOCHS [DEVICE]]`

use std::error::Error;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::nn::{Conv2d, Embedding, Input, Linear, Model};
use tightfit::train::{Config, EarlyStopping, FitOptions, Head, Loss, Optimizer, StopEarly, Trainer};

const SIDE: usize = 12;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let epochs = args.next().map_or(Ok(30), |epochs| epochs.parse())?;
    let device = args.next();
    let (train, test) = (draw(1500, 1)?, draw(300, 2)?);

    let model = Model::new("bars", [1, SIDE, SIDE], |image| {
        let day = image.input("day", Input::tokens([1])).layer("day", Embedding::new(7, 8)).flatten();
        let seen = image.layer("conv1", Conv2d::new(8, 3)).relu().max_pool2d(2).flatten();
        let both = seen.layer("seen", Linear::new(48)).relu().concat(day, 1).layer("both", Linear::new(48)).relu();
        both.layer("heights", Linear::new(2)).output("heights");
        both.layer("answer", Linear::new(2))
    });
    let config = Config::default()
        .batch(50)
        .optimizer(Optimizer::adam(3e-3))
        .head(Head::new("heights", "heights", Loss::Mse).weight(0.5))
        .sample_weights(true);
    let mut trainer = Trainer::new(model, config, device.as_deref())?;
    println!("{}", trainer.plan());
    let mut early = StopEarly::new(EarlyStopping { patience: 5, restore_best: true, ..EarlyStopping::default() });
    let callbacks: Vec<&mut dyn tightfit::train::Callback> = vec![&mut early];
    let report = trainer
        .fit(&train, FitOptions { validation: Some((&test).into()), callbacks, ..FitOptions::epochs(epochs) })?;
    println!("{} epochs{}", report.epochs, report.stopped.map(|why| format!(": {why}")).unwrap_or_default());
    println!("test: {}", trainer.evaluate(&test)?);
    let outputs = trainer.predict_all(&test.take(1)?)?;
    println!("heights {:?}, answer {:?}", outputs["heights"].values, outputs["output"].values);
    Ok(())
}

/// Pictures with two bars; on the first four days the higher one is asked for, on others the lower. Weekends count twice.
fn draw(count: usize, seed: u64) -> Result<TensorDataset, Box<dyn Error>> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut pixels, mut days, mut heights, mut answers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        let day = random.random_range(0..7_u32);
        let bars = [(); 2].map(|()| random.random_range(1..SIDE));
        for place in 0..SIDE * SIDE {
            let (row, bar) = (SIDE - 1 - place / SIDE, place % SIDE * 2 / SIDE);
            pixels.push(if row < bars[bar] { 1.0 } else { 0.0 } + random.random_range(-0.3..0.3_f32));
        }
        answers.push(u32::from((bars[1] > bars[0]) == (day < 4)));
        heights.extend(bars.map(|bar| bar as f32 / SIDE as f32));
        days.push(day);
    }
    let weights = days.iter().map(|day| if *day >= 5 { 2.0 } else { 1.0 }).collect();
    let data = TensorDataset::new(Values::F32(pixels), [1, SIDE, SIDE], Targets::labels(answers, 2))?;
    let data = data.with_input("day", Values::U32(days), [1])?.with_input("heights", Values::F32(heights), [2])?;
    Ok(data.with_sample_weights(weights)?)
}
