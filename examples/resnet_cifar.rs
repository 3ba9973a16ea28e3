//! Trains ResNet-18 on CIFAR-10 in less memory than it needs without a budget: in less than half of it on a GPU, which offloads.
//!
//! `cargo run --release --example resnet_cifar [FOLDER|- [STEPS [BATCH [DEVICE]]]]`: the folder is cifar-10-batches-bin,
//! unpacked from cifar-10-binary.tar.gz. Without it, images are drawn: stripes, checks, rings and the like, in ten classes.

use std::error::Error;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tightfit::data::{Targets, TensorDataset, Values, cifar};
use tightfit::models::{Stem, resnet18};
use tightfit::plan::format_bytes;
use tightfit::train::{Config, FitOptions, Optimizer, Processor, StepReport, Trainer, plan_for, summary};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (train, test) = match args.next().filter(|folder| folder != "-") {
        Some(folder) => cifar::open(folder)?,
        None => (draw(2000, 1)?, draw(200, 2)?),
    };
    let steps: u64 = args.next().map_or(Ok(30), |steps| steps.parse())?;
    let batch: usize = args.next().map_or(Ok(16), |batch| batch.parse())?;
    let device = args.next();

    let model = resnet18(10, Stem::Cifar);
    let config = Config::default().optimizer(Optimizer::adamw(1e-3)).batch(batch).seed(1);
    println!("{}", summary(&model, &config)?.depth(1));
    let machine = Processor::open(&device.as_deref().into(), None)?.machine();
    let planned = plan_for(&model, &config, &machine)?.plan;
    let (need, least) = (planned.unconstrained_peak_bytes, planned.minimum_budget_bytes);
    println!("training needs {} without a budget, {} at least", format_bytes(need), format_bytes(least));
    let config = config.budget_bytes((need * 45 / 100).max(least));
    let mut trainer = Trainer::new(&model, config, device.as_deref())?;
    println!("{}\n\ntraining on {}", trainer.plan(), trainer.device_name());
    let mut on_step = |step: &StepReport| {
        if step.step.is_multiple_of(5) {
            println!("step {:>4}  loss {:.3}  {:.0} ms", step.step, step.loss, step.step_ms);
        }
    };
    let options = FitOptions { max_steps: Some(steps), on_step: Some(&mut on_step), ..FitOptions::epochs(1000) };
    trainer.fit(&train, options)?;
    println!("test: {}", trainer.evaluate(&test)?);
    println!("measured peak {} bytes, planned {} bytes", trainer.measured_peak_bytes(), trainer.plan().peak_bytes);
    Ok(())
}

/// Ten patterns in any two colours, shifted, with noise.
fn draw(count: usize, seed: u64) -> Result<TensorDataset, Box<dyn Error>> {
    const SIDE: usize = 32;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for i in 0..count {
        let class = i % 10;
        let [dx, dy] = [(); 2].map(|()| random.random_range(0.0..8.0_f32));
        for _channel in 0..3 {
            let tones = [0.5..1.0, 0.0..0.5_f32].map(|range| random.random_range(range));
            for place in 0..SIDE * SIDE {
                let [x, y] = [(place % SIDE) as f32 + dx, (place / SIDE) as f32 + dy];
                let radius = (x - 20.0).hypot(y - 20.0);
                let stripe = |t: f32| (t / 4.0) as i32 % 2 == 0;
                let light = match class {
                    0 => stripe(x),
                    1 => stripe(y),
                    2 => stripe(x + y),
                    3 => stripe(x - y + 64.0),
                    4 => stripe(x) == stripe(y),
                    5 => stripe(radius),
                    6 => radius < 10.0,
                    7 => (x - 20.0).abs().max((y - 20.0).abs()) < 9.0,
                    8 => (x - 20.0).abs().min((y - 20.0).abs()) < 3.0,
                    _ => x > 20.0,
                };
                pixels.push(tones[usize::from(!light)] + random.random_range(-0.1..0.1_f32));
            }
        }
        labels.push(class as u32);
    }
    Ok(TensorDataset::new(Values::F32(pixels), [3, SIDE, SIDE], Targets::labels(labels, 10))?)
}
