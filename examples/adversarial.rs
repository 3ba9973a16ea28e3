//! Adversarial training on MNIST: each batch is moved a little in the direction that makes the loss larger (the fast gradient sign
//! method, <https://arxiv.org/abs/1412.6572>), and trained on as it is and moved. A loop of one's own with gradients of the samples.
//!
//! `cargo run --release --example adversarial [STEPS [DEVICE]]`

use std::error::Error;

use tightfit::data::{Batch, Batches, Dataset, INPUT, Order, TARGET, Targets, TensorDataset, Values, mnist};
use tightfit::nn::{Model, Sequential};
use tightfit::train::{Config, Optimizer, Trainer};

const BATCH: usize = 64;
/// How far a pixel, from 0 to 1, is moved.
const EPSILON: f32 = 0.15;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let steps: usize = args.next().map_or(Ok(200), |steps| steps.parse())?;
    let device = args.next();
    let (train, test) = mnist::open("data/mnist")?;
    let test = test.take(512)?;
    for hardened in [false, true] {
        let config = || Config::default().batch(BATCH).optimizer(Optimizer::adam(1e-3)).seed(1);
        let mut trainer = Trainer::new(model(), config(), device.as_deref())?;
        let mut attacker = Trainer::for_gradients(model(), config(), device.as_deref())?;
        let order = Batches::new(train.len(), BATCH, Order::Shuffled { seed: 1 }, true)?;
        let epochs: Vec<_> = (0..steps.div_ceil(order.per_epoch())).map(|epoch| order.epoch(epoch as u64)).collect();
        let all: Vec<usize> = (0..BATCH).collect();
        for indices in epochs.iter().flatten().take(steps) {
            trainer.step(&train, indices)?;
            if hardened {
                let moved = attack(&mut trainer, &mut attacker, &train, indices)?;
                trainer.step(&moved, &all)?;
            }
        }
        let (mut right, mut attacked) = (0.0, 0.0);
        for first in (0..test.len()).step_by(BATCH) {
            let batch = test.subset(first..first + BATCH)?;
            let moved = attack(&mut trainer, &mut attacker, &batch, &all)?;
            attacked += trainer.evaluate(&moved)?.accuracy.unwrap_or_default();
            right += trainer.evaluate(&batch)?.accuracy.unwrap_or_default();
        }
        let share = |sum: f64| 100.0 * sum / (test.len() / BATCH) as f64;
        let how = if hardened { "trained on attacks, too" } else { "trained as usual" };
        println!("{how}: accuracy {:.1}%, under attack {:.1}%", share(right), share(attacked));
    }
    Ok(())
}

fn model() -> Model {
    Sequential::new("digits", [1, 28, 28])
        .conv2d(8, 5)
        .relu()
        .max_pool2d(2)
        .flatten()
        .linear(64)
        .relu()
        .linear(10)
        .into()
}

/// The samples at these places, each pixel moved by epsilon where that makes the loss larger.
fn attack(
    trainer: &mut Trainer,
    attacker: &mut Trainer,
    data: &TensorDataset,
    indices: &[usize],
) -> Result<TensorDataset, Box<dyn Error>> {
    for (name, (_, values)) in trainer.parameters()? {
        attacker.set_parameter(&name, &values)?;
    }
    let gradient = attacker.gradients(data, indices)?.input.ok_or("the samples are numbers")?;
    let mut batch = Batch::default();
    data.read(indices, &mut batch)?;
    let moved = |(x, g): (&f32, &f32)| (x + EPSILON * g.signum()).clamp(0.0, 1.0);
    let moved = batch.values(INPUT).iter().zip(&gradient.values).map(moved).collect();
    Ok(TensorDataset::new(Values::F32(moved), [1, 28, 28], Targets::labels(batch.ints(TARGET), 10))?)
}
