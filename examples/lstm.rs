//! Forecasts the sunspot number of the next month from the last two years with an LSTM, and compares the error with two
//! forecasts that need no model.
//!
//! `cargo run --release --example lstm [STEPS [DEVICE]]`

use std::error::Error;

use tightfit::data::series::{self, Scale};
use tightfit::nn::Sequential;
use tightfit::train::{Config, FitOptions, Loss, Optimizer, StepReport, Trainer};

/// Months that the model sees.
const WINDOW: usize = 24;
/// Months of a solar cycle, about eleven years.
const CYCLE: usize = 132;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let max_steps = args.next().map(|steps| steps.parse()).transpose()?;
    let device = args.next();
    let sunspots = series::read_csv("data/sunspots/monthly-sunspots.csv", "sunspots")?;
    // The last fifth is for the test. Scaling must not know it either.
    let split = sunspots.len() * 4 / 5;
    let scale = Scale::fit(&sunspots[..split])?;
    let scaled: Vec<f32> = sunspots.iter().map(|&x| scale.apply(x)).collect();
    let train = series::windows(&scaled[..split], WINDOW, 1)?;
    let test = series::windows(&scaled[split - WINDOW..], WINDOW, 1)?;

    let model = Sequential::new("sunspots", [WINDOW, 1]).lstm(32).linear(1);
    let config = Config::default().loss(Loss::Mse).optimizer(Optimizer::adam(2e-3)).batch(64).budget_bytes(8 << 20);
    let mut trainer = Trainer::new(model, config, device.as_deref())?;
    println!("{}\n\ntraining on {}", trainer.plan(), trainer.device_name());

    let mut on_step = |step: &StepReport| {
        if step.step.is_multiple_of(step.steps_per_epoch) {
            println!("epoch {:>2}  loss {:.4}", step.epoch, step.loss);
        }
    };
    trainer.fit(&train, FitOptions { max_steps, on_step: Some(&mut on_step), ..FitOptions::epochs(30) })?;

    let model: Vec<f32> = trainer.predict(&test)?.values.into_iter().map(|y| scale.invert(y)).collect();
    let truth = &sunspots[split..];
    println!("\n{} months, {:>28} {:>8}", truth.len(), "RMSE", "MAE");
    let model = report("LSTM", &model, truth);
    let last = report("the month before", &sunspots[split - 1..sunspots.len() - 1], truth);
    let cycle = report("one solar cycle before", &sunspots[split - CYCLE..sunspots.len() - CYCLE], truth);
    println!("LSTM beats both: {}", model < last && model < cycle);
    Ok(())
}

/// Prints the errors of a forecast; returns the root mean square error.
fn report(name: &str, forecast: &[f32], truth: &[f32]) -> f32 {
    let errors = || forecast.iter().zip(truth).map(|(forecast, truth)| forecast - truth);
    let n = truth.len() as f32;
    let rmse = (errors().map(|e| e * e).sum::<f32>() / n).sqrt();
    let mae = errors().map(f32::abs).sum::<f32>() / n;
    println!("{name:<32} {rmse:>8.2} {mae:>8.2}");
    rmse
}
