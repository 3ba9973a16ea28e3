//! Trains on samples that are made while it trains: once from a dataset, which has a length and is read at any place, and once from an
//! endless iterator.
//!
//! `cargo run --release --example generator [STEPS [DEVICE]]`

use std::error::Error;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tightfit::data::{DataLoader, Dataset, Sample, Stream};
use tightfit::error::DataError;
use tightfit::nn::Sequential;
use tightfit::train::{Config, FitOptions, Optimizer, Trainer};

/// Points, and whether they are in a ring around (0, 0).
struct Ring {
    count: usize,
}

impl Dataset for Ring {
    fn len(&self) -> usize {
        self.count
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        // The same index makes the same sample, in whichever thread and epoch.
        let mut random = ChaCha8Rng::seed_from_u64(index as u64);
        Ok(point(&mut random))
    }
}

fn point(random: &mut ChaCha8Rng) -> Sample {
    let [x, y] = [(); 2].map(|()| random.random_range(-1.0..1.0_f32));
    Sample::new([x, y]).with_target(u32::from((0.4..0.8).contains(&x.hypot(y))))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let max_steps = args.next().map(|steps| steps.parse()).transpose()?;
    let device = args.next();
    let model = || Sequential::new("ring", [2]).linear(32).relu().linear(32).relu().linear(2);
    let config = Config::default().optimizer(Optimizer::adam(0.01)).batch(64).seed(1);
    let test = Ring { count: 2000 };

    // Samples that can be read at any place: their order changes in each epoch, and threads read ahead.
    let mut trainer = Trainer::new(model(), config.clone(), device.as_deref())?;
    let data = DataLoader::new(Ring { count: 10_000 }).workers(2);
    trainer.fit(&data, FitOptions { max_steps, ..FitOptions::epochs(3) })?;
    println!("dataset: {}", trainer.evaluate(&test)?);

    // Samples that come one after the other and have no end: an epoch is 150 batches, and each sample is drawn from a buffer of 512.
    let points = || {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        std::iter::repeat_with(move || Ok(point(&mut random)))
    };
    let stream = DataLoader::stream(Stream::new(points, 150).shuffle(512));
    let mut trainer = Trainer::new(model(), config, device.as_deref())?;
    trainer.fit(&stream, FitOptions { max_steps, ..FitOptions::epochs(3) })?;
    println!("stream: {}", trainer.evaluate(&test)?);
    Ok(())
}
