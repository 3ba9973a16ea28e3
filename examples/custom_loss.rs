//! A loss, a layer and a metric of one's own: the quantiles of a noisy wave, learnt with the pinball loss by a network with a layer of
//! sines.
//!
//! `cargo run --release --example custom_loss [EPOCHS [DEVICE]]`

use std::error::Error;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::error::GraphError;
use tightfit::nn::{Init, Input, Module, Scope, Sequential, Tensor};
use tightfit::tensor::{Shape, ValueId};
use tightfit::train::{Config, Criterion, FitOptions, Loss, Optimizer, Schedule, Trainer};

const QUANTILES: [f32; 3] = [0.1, 0.5, 0.9];

/// `max(q d, (q − 1) d)` for each quantile q, of the difference d from the prediction to the target.
#[derive(Debug)]
struct Pinball;

impl Criterion for Pinball {
    fn name(&self) -> &'static str {
        "pinball"
    }

    // One target, whatever the number of quantiles.
    fn target(&self, _output: &Shape) -> Input {
        Input::values([1])
    }

    fn loss<'a>(&self, prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a> {
        let difference = target - prediction;
        let of = |(i, q): (usize, f32)| {
            let d = difference.index(1, i as isize);
            (d * q).maximum(d * (q - 1.0))
        };
        let [low, middle, high] = [0, 1, 2].map(|i| of((i, QUANTILES[i])));
        low + middle + high
    }
}

/// `sin(ω x + φ)` with a trained frequency and phase for each wave.
struct Waves(usize);

impl Module for Waves {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let frequency = scope.parameter("frequency", [self.0], Init::Normal { std: 3.0 })?;
        let phase = scope.parameter("phase", [self.0], Init::Uniform { bound: 3.0 })?;
        scope.formula([input, frequency, phase], |[x, frequency, phase]| (x * frequency + phase).sin())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let epochs = args.next().map_or(Ok(60), |epochs| epochs.parse())?;
    let device = args.next();
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let x: Vec<f32> = (0..2000).map(|_| random.random_range(-3.0..3.0)).collect();
    let y: Vec<f32> = x.iter().map(|x| (2.0 * x).sin() + random.random_range(-0.5..0.5_f32)).collect();
    let data = TensorDataset::new(Values::F32(x), [1], Targets::Values { values: y.clone(), shape: [1].into() })?;

    let model = Sequential::new("quantiles", [1]).layer("waves", Waves(32)).linear(32).tanh().linear(QUANTILES.len());
    let config = Config::default().loss(Loss::custom(Pinball)).optimizer(Optimizer::adam(5e-3)).batch(100);
    let mut trainer = Trainer::new(model, config.schedule(Schedule::cosine()), device.as_deref())?;
    println!("{}", trainer.plan());
    let report = trainer.fit(&data, FitOptions::epochs(epochs))?;
    println!("training loss {:.4}", report.train_loss);
    let prediction = trainer.predict(&data)?;
    for (i, quantile) in QUANTILES.iter().enumerate() {
        let below = y.iter().zip(prediction.values.chunks(3)).filter(|(y, quantiles)| **y < quantiles[i]).count();
        println!("below the quantile {quantile}: {:.3} of the samples", below as f32 / y.len() as f32);
    }
    Ok(())
}
