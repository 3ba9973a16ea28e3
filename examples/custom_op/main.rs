//! Trains a model with two ops that are not part of tightfit, within a budget, on a device and on their CPU twins, and
//! compares the two. The ops and their kernels are in `swish.rs` and the WGSL files beside it.
//!
//! `cargo run --release --example custom_op [DEVICE]`

mod swish;

use std::error::Error;

use swish::{Swish, TrainedSwish};
use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::error::GraphError;
use tightfit::nn::{Conv2d, Init, Linear, Model, Module, Scope};
use tightfit::ops::check_launches;
use tightfit::tensor::{TensorDesc, ValueId};
use tightfit::train::{Config, FitOptions, Optimizer, Trainer};

const SIZE: usize = 12;
const CLASSES: u32 = 4;
const STEPS: u64 = 30;

/// A layer with the parameter `beta`, which begins as ones.
struct TrainedSwishLayer;

impl Module for TrainedSwishLayer {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let beta = scope.parameter("beta", [scope.shape(input)[1]], Init::Constant { value: 1.0 })?;
        scope.apply(TrainedSwish, &[input, beta])
    }
}

fn model() -> Model {
    Model::new("stripes", [1, SIZE, SIZE], |x| {
        let x = x.apply(Conv2d::new(8, 3)).layer("swish", TrainedSwishLayer).max_pool2d(2).flatten();
        // An op without parameters needs no layer. Its gradient is fused with the product before it.
        let x = x.layer("hidden", Linear::new(32)).with_ops("gate", |scope, x| scope.apply(Swish { beta: 1.7 }, &[x]));
        x.layer("classes", Linear::new(CLASSES as usize))
    })
}

/// Stripes of four widths.
fn stripes(samples: usize) -> Result<TensorDataset, Box<dyn Error>> {
    let label = |i: usize| (i % CLASSES as usize) as u32;
    let pixel = |i: usize, x: usize| ((x + i / 3) as f32 * 0.5 * (label(i) + 1) as f32).sin();
    let pixels = (0..samples).flat_map(|i| (0..SIZE * SIZE).map(move |at| pixel(i, at % SIZE))).collect();
    let labels = Targets::labels((0..samples).map(label).collect(), CLASSES);
    Ok(TensorDataset::new(Values::F32(pixels), [1, SIZE, SIZE], labels)?)
}

/// The losses of all steps.
fn train(data: &TensorDataset, device: Option<&str>) -> Result<Vec<f32>, Box<dyn Error>> {
    let config = Config::default().batch(64).optimizer(Optimizer::adam(3e-3)).budget_bytes(6 << 20);
    let mut trainer = Trainer::new(model(), config, device)?;
    let mut losses = Vec::new();
    let mut on_step = |step: &tightfit::train::StepReport| losses.push(step.loss);
    let options = FitOptions { max_steps: Some(STEPS), on_step: Some(&mut on_step), ..FitOptions::epochs(STEPS) };
    trainer.fit(data, options)?;
    let (peak, name) = (trainer.measured_peak_bytes(), trainer.device_name());
    println!("{name}: at most {:.2} MiB at once, losses {losses:.3?}", peak as f64 / 1048576.0);
    Ok(losses)
}

fn main() -> Result<(), Box<dyn Error>> {
    // What the ops launch fits what their kernels declare, parameter by parameter, in every variant. Needs no device.
    let images = TensorDesc::f32([64, 8, 10, 10]);
    let variants = check_launches(&TrainedSwish, &[images, TensorDesc::f32([8])])?;
    println!("trained_swish compiles in {variants} variants");

    let data = stripes(256)?;
    let device = std::env::args().nth(1);
    let on_device = train(&data, device.as_deref())?;
    let on_twins = train(&data, Some("cpu"))?;
    let largest = on_device.iter().zip(&on_twins).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("largest difference between their losses: {largest:.1e}");
    Ok(())
}
