//! Numbers drawn from a generator, the same ones on every machine: functions come from `libm`, not from the system.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// Uniform from 0 up to, and without, 1: the upper 53 bits of the next number.
pub(super) fn unit(random: &mut ChaCha8Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Uniform from `low` to `high`.
pub(super) fn between(random: &mut ChaCha8Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * unit(random)
}

/// Whether something of this probability happens: never at 0, always at 1.
pub(super) fn happens(random: &mut ChaCha8Rng, probability: f64) -> bool {
    unit(random) < probability
}

/// Uniform in `0..choices`, of which there is at least one. Numbers in the incomplete last group are drawn anew, so that none is favoured.
pub(super) fn below(random: &mut ChaCha8Rng, choices: usize) -> usize {
    let choices = choices.max(1) as u64;
    // The largest multiple of `choices` that a u64 holds, less 1.
    let last = u64::MAX - (u64::MAX % choices + 1) % choices;
    loop {
        let number = random.next_u64();
        if number <= last {
            return (number % choices) as usize;
        }
    }
}

/// Puts values in a random order, by a Fisher–Yates shuffle from the end.
pub(super) fn shuffle<T>(random: &mut ChaCha8Rng, values: &mut [T]) {
    for place in (1..values.len()).rev() {
        values.swap(place, below(random, place + 1));
    }
}

/// From the beta distribution with both parameters `alpha`, by two gamma draws. Beyond these limits, which hold for what is no number
/// too, it is as good as one half, or 0 or 1.
pub(super) fn beta(random: &mut ChaCha8Rng, alpha: f64) -> f64 {
    let alpha = alpha.max(1e-9).min(1e9);
    // As logarithms, since with a small alpha both draws can be too small for a float.
    let (first, second) = (log_gamma(random, alpha), log_gamma(random, alpha));
    1.0 / (1.0 + libm::exp(second - first))
}

/// The logarithm of a draw from the gamma distribution of this shape: Marsaglia and Tsang, "A simple method for generating gamma
/// variables" (2000), with a shape of one more and a power of a uniform draw, which holds for shapes below 1 too.
fn log_gamma(random: &mut ChaCha8Rng, shape: f64) -> f64 {
    let d = shape + 1.0 - 1.0 / 3.0;
    let c = 1.0 / libm::sqrt(9.0 * d);
    let boost = libm::log(1.0 - unit(random)) / shape;
    loop {
        let x = normal(random);
        let v = libm::pow(1.0 + c * x, 3.0);
        if v > 0.0 && libm::log(1.0 - unit(random)) < 0.5 * x * x + d * (1.0 - v + libm::log(v)) {
            return libm::log(d * v) + boost;
        }
    }
}

/// From the standard normal distribution (Box and Muller).
fn normal(random: &mut ChaCha8Rng) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - unit(random)));
    radius * libm::cos(std::f64::consts::TAU * unit(random))
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    /// Mean and variance of draws.
    fn moments(draw: impl FnMut() -> f64) -> (f64, f64) {
        let draws: Vec<f64> = std::iter::repeat_with(draw).take(20_000).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        (mean, draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64)
    }

    #[test]
    fn draws_have_the_moments_of_their_distribution() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let (mean, variance) = moments(|| normal(&mut random));
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "normal: {mean}, {variance}");
        for alpha in [1e-3, 0.2, 1.0, 4.0] {
            let (mean, variance) = moments(|| beta(&mut random, alpha));
            let expected = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!((mean - 0.5).abs() < 0.02, "beta {alpha}: mean {mean}");
            assert!((variance - expected).abs() < 0.03 * expected, "beta {alpha}: variance {variance} for {expected}");
        }
    }

    #[test]
    fn each_choice_is_drawn_as_often() {
        let mut random = ChaCha8Rng::seed_from_u64(2);
        let mut counts = [0; 7];
        (0..14_000).for_each(|_| counts[below(&mut random, 7)] += 1);
        assert!(counts.iter().all(|count| (1_800..2_200).contains(count)), "{counts:?}");
        let mut orders = std::collections::HashMap::new();
        for _ in 0..6_000 {
            let mut values = [0, 1, 2];
            shuffle(&mut random, &mut values);
            *orders.entry(values).or_insert(0) += 1;
        }
        assert!(orders.len() == 6 && orders.values().all(|count| (880..1_120).contains(count)), "{orders:?}");
    }
}
