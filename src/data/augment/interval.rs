//! Between which numbers a parameter is drawn.

use std::fmt;

use rand_chacha::ChaCha8Rng;

use crate::data::random;
use crate::error::DataError;

/// All numbers from one to another, each as likely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Interval {
    /// One number.
    pub const fn only(number: f64) -> Self {
        Interval { low: number, high: number }
    }

    /// From `center - distance` to `center + distance`.
    pub fn around(center: f64, distance: f64) -> Self {
        Interval { low: center - distance, high: center + distance }
    }

    /// One of them.
    pub(super) fn draw(self, random: &mut ChaCha8Rng) -> f64 {
        random::between(random, self.low, self.high)
    }

    /// Refuses what is not from `low` to `high`. With `open`, what is at these ends is refused too.
    pub(super) fn check(self, name: &str, low: f64, high: f64, open: bool) -> Result<(), DataError> {
        let is_inside = |x: f64| if open { x > low && x < high } else { x >= low && x <= high };
        if self.low <= self.high
            && self.low.is_finite()
            && self.high.is_finite()
            && is_inside(self.low)
            && is_inside(self.high)
        {
            return Ok(());
        }
        let ends = match (low.is_finite(), high.is_finite()) {
            (true, true) if open => format!("between {low} and {high}"),
            (true, true) => format!("from {low} to {high}"),
            (true, false) if open => format!("above {low}"),
            (true, false) => format!("{low} or more"),
            _ => "finite".to_owned(),
        };
        let order = if self.low > self.high { ", the lower one first" } else { "" };
        Err(DataError::Mismatch(format!("augmentation: `{name}` = {self} is not possible: it must be {ends}{order}")))
    }
}

/// Refuses what is no probability.
pub(super) fn check_probability(name: &str, probability: f64) -> Result<(), DataError> {
    Interval::only(probability).check(name, 0.0, 1.0, false)
}

impl From<[f64; 2]> for Interval {
    fn from([low, high]: [f64; 2]) -> Self {
        Interval { low, high }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Interval { low, high } = self;
        // Not a number is not itself, but one is enough to be shown.
        if low == high || low.is_nan() { write!(f, "{low}") } else { write!(f, "{low}..{high}") }
    }
}
