//! Teaches a U-Net to find discs and squares in noisy images that it draws itself, in half the memory that training needs
//! without a budget, and measures how well the areas agree (intersection over union).
//!
//! `cargo run --release --example segmentation [STEPS [DEVICE]]`

use std::error::Error;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::models;
use tightfit::plan::{Limits, format_bytes};
use tightfit::train::{Config, FitOptions, Format, MetricKind, Optimizer, StepReport, Target, Trainer, plan};

/// Pixels of a side.
const SIDE: usize = 48;
const CLASSES: [&str; 3] = ["background", "disc", "square"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let max_steps = args.next().map(|steps| steps.parse()).transpose()?;
    let device = args.next();
    let (train, _) = draw(1200, 1)?;
    let (test, truth) = draw(200, 2)?;

    let model = models::unet(CLASSES.len(), 8).with_input([3, SIDE, SIDE]);
    let config = Config::default().optimizer(Optimizer::adam(3e-3)).batch(8).seed(1);
    // Without a device: what training needs, and what it must have at least.
    let need = plan(&model, &config, &Limits::any_device())?.plan.unconstrained_peak_bytes;
    println!("without a budget, training needs {}; it gets half of that", format_bytes(need));
    let mut trainer = Trainer::new(&model, config.budget_bytes(need / 2), device.as_deref())?;
    println!("{}\n\ntraining on {}", trainer.plan(), trainer.device_name());

    let mut on_step = |step: &StepReport| {
        if step.step.is_multiple_of(25) {
            println!("step {:>4}  loss {:.4}  {:.0} ms", step.step, step.loss, step.step_ms);
        }
    };
    trainer.fit(&train, FitOptions { max_steps, on_step: Some(&mut on_step), ..FitOptions::epochs(2) })?;

    let logits = trainer.predict(&test)?.values;
    let format = Format::labels([CLASSES.len(), SIDE, SIDE], CLASSES.len() as u32);
    let mut iou = MetricKind::iou_per_class().build();
    format.samples(&logits, Target::Labels(&truth)).for_each(|sample| iou.add(&sample));
    let iou = iou.value();
    for (class, share) in CLASSES.iter().zip(iou.per_class()) {
        println!("IoU of {class:<10} {:.3}", share.unwrap_or(f64::NAN));
    }
    println!("mean IoU {:.3}", iou.scalar().unwrap_or(f64::NAN));
    println!("measured peak {} bytes, planned {} bytes", trainer.measured_peak_bytes(), trainer.plan().peak_bytes);
    Ok(())
}

/// Images with a disc and a square of any colour on a noisy ground, and the class of each pixel.
fn draw(count: usize, seed: u64) -> Result<(TensorDataset, Vec<u32>), Box<dyn Error>> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let mut map = vec![0u32; SIDE * SIDE];
        for class in [1, 2] {
            let radius = random.random_range(5.0..11.0_f32);
            let [x, y] = [(); 2].map(|()| random.random_range(radius..SIDE as f32 - radius));
            for (place, label) in map.iter_mut().enumerate() {
                let [dx, dy] = [(place % SIDE) as f32 - x, (place / SIDE) as f32 - y];
                let inside = if class == 1 { dx.hypot(dy) < radius } else { dx.abs().max(dy.abs()) < radius };
                *label = if inside { class } else { *label };
            }
        }
        for _channel in 0..3 {
            // The ground is dark, shapes are light.
            let tones = [0.0..0.3, 0.4..1.0, 0.4..1.0_f32].map(|range| random.random_range(range));
            let noisy = |&label: &u32| tones[label as usize] + random.random_range(-0.15..0.15_f32);
            pixels.extend(map.iter().map(noisy));
        }
        labels.extend(map);
    }
    let targets = Targets::label_maps(labels.clone(), CLASSES.len() as u32, [SIDE, SIDE]);
    Ok((TensorDataset::new(Values::F32(pixels), [3, SIDE, SIDE], targets)?, labels))
}
