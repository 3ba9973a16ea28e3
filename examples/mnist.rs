//! Trains a small convolutional network on MNIST inside 8 MiB of device memory.
//!
//! `cargo run --release --example mnist [STEPS [DEVICE]]`

use std::error::Error;

use tightfit::data::mnist;
use tightfit::nn::Sequential;
use tightfit::train::{Config, FitOptions, Optimizer, StepReport, Trainer};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let max_steps = args.next().map(|steps| steps.parse()).transpose()?;
    let device = args.next();
    let (train, test) = mnist::open("data/mnist")?;

    let model = Sequential::new("my-cnn", [1, 28, 28])
        .conv2d(16, 3)
        .relu()
        .max_pool2d(2)
        .conv2d(32, 3)
        .relu()
        .max_pool2d(2)
        .flatten()
        .linear(64)
        .relu()
        .linear(10);
    println!("{}", model.summary()?);

    // Nothing runs yet: the plan says what training will take, and why it fits.
    let config = Config::default().optimizer(Optimizer::adam(1e-3)).batch(64).seed(1).budget_bytes(8 << 20);
    let mut trainer = Trainer::new(model, config, device.as_deref())?;
    println!("{}\n\ntraining on {}", trainer.plan(), trainer.device_name());

    let mut on_step = |step: &StepReport| {
        if step.step.is_multiple_of(50) {
            println!("step {:>4}  loss {:.4}  {:.1} ms", step.step, step.loss, step.step_ms);
        }
    };
    trainer.fit(&train, FitOptions { max_steps, on_step: Some(&mut on_step), ..FitOptions::epochs(3) })?;

    println!("test: {}", trainer.evaluate(&test)?);
    println!("measured peak {} bytes, planned {} bytes", trainer.measured_peak_bytes(), trainer.plan().peak_bytes);
    let path = std::env::temp_dir().join("my-cnn.safetensors");
    trainer.save(&path)?;
    println!("saved to {}", path.display());
    Ok(())
}
