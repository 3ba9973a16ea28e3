//! Makes small data of each kind to try things on. What is in them is made up, by rules and random numbers from fixed seeds, but for the
//! digits, which are MNIST's.
//!
//! `cargo run --release --example make_data [FOLDER]`

mod arrays;
mod pictures;
mod words;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "made".to_owned()));
    pictures::classes(&folder.join("shapes"), &["circle", "cross", "square", "triangle"], 250)?;
    pictures::classes(&folder.join("photos"), &["bar", "ring", "star"], 80)?;
    pictures::scenes(&folder.join("scenes"), 240)?;
    arrays::digits(&folder.join("digits.npz"), Path::new("data/mnist"))?;
    fs::write(folder.join("houses.csv"), houses(1000))?;
    fs::write(folder.join("power.csv"), power(24 * 365))?;
    fs::write(folder.join("tales.txt"), words::tales(1500))?;
    println!("shapes, photos, scenes, digits.npz, houses.csv, power.csv, tales.txt: in {}", folder.display());
    Ok(())
}

/// Random numbers of one of several things, whatever is drawn for the others.
fn random(seed: u64, index: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(index);
    random
}

/// Prices of houses, in thousands: by area, rooms, year, quarter of the town and garden, and some noise.
fn houses(count: u64) -> String {
    let quarters = [("harbour", 60.0), ("hill", 90.0), ("market", 30.0), ("station", 0.0)];
    let mut csv = "area,rooms,year,quarter,garden,price\n".to_owned();
    for house in 0..count {
        let mut random = random(1, house);
        let area = random.random_range(40.0..200.0_f64);
        let rooms = (area / 30.0 + random.random_range(0.5..2.0)).floor();
        let year = random.random_range(1920..2021);
        let (quarter, more) = quarters[random.random_range(0..quarters.len())];
        let garden = random.random_bool(0.4);
        let noise = random.random_range(-15.0..15.0);
        let price = 2.5 * area + 8.0 * rooms + 0.8 * f64::from(year - 1920) + more + f64::from(garden) * 40.0 + noise;
        csv += &format!("{area:.1},{rooms},{year},{quarter},{garden},{price:.1}\n");
    }
    csv
}

/// Load of a power grid each hour: by the time of day, the weekday and the temperature, and some noise.
fn power(hours: u32) -> String {
    let mut csv = "load,temperature\n".to_owned();
    for hour in 0..hours {
        let mut random = random(2, hour.into());
        let day = std::f64::consts::TAU * f64::from(hour % 24) / 24.0;
        let temperature = 12.0 - 6.0 * day.cos() + random.random_range(-1.0..1.0);
        let is_weekend = hour / 24 % 7 >= 5;
        let load = 50.0 - 15.0 * day.cos() + 6.0 * (2.0 * day).sin() - 0.5 * temperature
            + if is_weekend { -8.0 } else { 0.0 }
            + random.random_range(-1.5..1.5);
        csv += &format!("{load:.2},{temperature:.2}\n");
    }
    csv
}
