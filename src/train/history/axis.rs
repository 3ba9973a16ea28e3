//! Axes: from values to places, with ticks at round numbers.

use crate::tensor::format_value;

/// Values at least this many times the smallest are drawn on a logarithmic axis.
const LOG_FROM: f64 = 20.0;
/// Decades above which not each has its tick.
const MOST_DECADES: f64 = 8.0;

/// A vertical axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
    /// Values of the lines across.
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    /// For these values, of which those that are not finite do not count. `may_be_log` allows a logarithmic axis, where the values
    /// span a wide range.
    pub(super) fn of(values: impl Iterator<Item = f64>, may_be_log: bool) -> Option<Axis> {
        let mut range: Option<(f64, f64)> = None;
        for value in values.filter(|value| value.is_finite()) {
            let (low, high) = range.unwrap_or((value, value));
            range = Some((low.min(value), high.max(value)));
        }
        let (low, high) = range?;
        Some(if may_be_log && low > 0.0 && high / low >= LOG_FROM {
            Axis::logarithmic(low, high)
        } else {
            Axis::linear(low, high)
        })
    }

    fn linear(low: f64, high: f64) -> Axis {
        // No difference of these overflows.
        let [mut low, mut high] = [low, high].map(|end| end.clamp(f64::MIN / 4.0, f64::MAX / 4.0));
        let is_share = low >= 0.0 && high <= 1.0;
        if high - low <= low.abs().max(high.abs()) * 1e-9 {
            // A line has room on both sides.
            let room = if high == 0.0 { 1.0 } else { high.abs() * 0.1 };
            (low, high) = (low - room, high + room);
        } else {
            let room = (high - low) * 0.06;
            (low, high) = (low - room, high + room);
        }
        if is_share {
            (low, high) = (low.max(-0.01), high.min(1.01));
        }
        let step = round_step((high - low) / 6.0);
        let ticks = multiples(low, high, step);
        Axis { low, high, is_log: false, ticks }
    }

    /// From a number above 0 to another.
    pub(super) fn logarithmic(low: f64, high: f64) -> Axis {
        let (low, high) = (low.log10(), high.log10());
        let room = (high - low) * 0.06;
        let (low, high) = (low - room, high + room);
        let decades = high - low;
        let every = (decades / MOST_DECADES).ceil().max(1.0) as i32;
        let within: &[f64] = if decades < 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let powers = (low.floor() as i32..=high.ceil() as i32).filter(|power| power % every == 0);
        let ticks = powers.flat_map(|power| within.iter().map(move |digit| digit * 10_f64.powi(power)));
        let ticks = ticks.filter(|tick| (low..=high).contains(&tick.log10())).collect();
        Axis { low, high, is_log: true, ticks }
    }

    /// Where a value is, from 0 at the bottom to 1 at the top; beyond these where it is outside.
    pub(super) fn share(&self, value: f64) -> f64 {
        let value = if self.is_log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        (value - self.low) / (self.high - self.low)
    }

    pub(super) fn is_log(&self) -> bool {
        self.is_log
    }

    /// The ticks in words, all with as many decimals as one of them needs.
    pub(super) fn labels(&self) -> Vec<String> {
        let words: Vec<_> = self.ticks.iter().map(|&tick| format_value(tick)).collect();
        let is_plain = |word: &String| !word.contains('e');
        let decimals = |word: &String| word.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let most = words.iter().map(decimals).max().unwrap_or(0);
        if self.is_log || most == 0 || !words.iter().all(is_plain) {
            return words;
        }
        self.ticks.iter().map(|tick| format!("{tick:.most$}")).collect()
    }
}

/// The round number of steps between ticks on an axis of so many steps.
pub(super) fn step_ticks(last: u64, most: usize) -> Vec<u64> {
    let step = round_step(last as f64 / most.max(1) as f64).max(1.0) as u64;
    (0..=last / step).map(|n| n * step).collect()
}

/// The smallest of 1, 2, 5, 10, … times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(f64::MIN_POSITIVE * 1e10).log10().floor());
    // Powers of ten are not exact.
    [1.0, 2.0, 5.0, 10.0]
        .map(|digit| digit * power)
        .into_iter()
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(least)
}

fn multiples(low: f64, high: f64, step: f64) -> Vec<f64> {
    let (first, last) = ((low / step).ceil(), (high / step).floor());
    // No negative zero.
    (0..=(last - first).max(0.0) as u64).map(|n| tidy((first + n as f64) * step) + 0.0).collect()
}

/// The number of few digits that this one is, but for rounding.
fn tidy(value: f64) -> f64 {
    format!("{value:.9e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        let labels =
            |values: &[f64], may_be_log| Axis::of(values.iter().copied(), may_be_log).expect("an axis").labels();
        assert_eq!(labels(&[0.0, 1.0], false), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&[0.93, 0.985], false), ["0.94", "0.96", "0.98"]);
        assert_eq!(labels(&[2.3, 0.05], true), ["0.05", "0.1", "0.2", "0.5", "1", "2"]);
        assert_eq!(labels(&[1e-9, 10.0], true), ["1e-8", "1e-6", "0.0001", "0.01", "1"]);
        assert_eq!(labels(&[-300.0, 200.0], true), ["-300", "-200", "-100", "0", "100", "200"]);
        assert_eq!(labels(&[5.0, 5.0], true), ["4.6", "4.8", "5.0", "5.2", "5.4"]);
        assert_eq!(labels(&[0.0, 0.0], true), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(Axis::of([f64::NAN, f64::INFINITY].into_iter(), true), None);
        assert_eq!(step_ticks(938, 8), [0, 200, 400, 600, 800]);
        assert_eq!(step_ticks(3, 8), [0, 1, 2, 3]);
        assert_eq!(step_ticks(0, 8), [0]);
    }

    #[test]
    fn any_values_have_an_axis() {
        let extremes = [f64::MIN, -1e300, -1.0, -1e-320, 0.0, 1e-320, 1e-300, 1.0, 1e300, f64::MAX];
        for low in extremes {
            for high in extremes {
                for may_be_log in [false, true] {
                    let axis = Axis::of([low, high].into_iter(), may_be_log).expect("an axis");
                    let shares = [low, high].map(|value| axis.share(value.clamp(f64::MIN / 4.0, f64::MAX / 4.0)));
                    assert!(shares.iter().all(|share| (-1e-6..=1.000_001).contains(share)), "{low} {high} {axis:?}");
                    assert!(axis.ticks.len() <= 40 && axis.labels().len() == axis.ticks.len(), "{low} {high} {axis:?}");
                }
            }
        }
    }
}
