//! Axes of curves: bounds at round numbers, and labels at equal distances between them.

/// Values whose largest is so many times the smallest are drawn on a logarithmic axis.
const LOG_FROM: f64 = 20.0;
/// Beyond this, differences would overflow.
const LARGEST: f64 = 1e300;

/// A vertical axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    /// Of what [`Axis::place`] gives.
    pub(super) bounds: [f64; 2],
    /// From the bottom to the top.
    pub(super) labels: Vec<String>,
    is_log: bool,
}

impl Axis {
    /// For finite values, on so many rows; `None` where there is no value. `may_be_log` allows a logarithmic axis, where the values ask
    /// for it.
    pub(super) fn of(values: impl Iterator<Item = f64>, may_be_log: bool, rows: u16) -> Option<Axis> {
        let values = values.map(|value| value.clamp(-LARGEST, LARGEST));
        let range = |range: Option<(f64, f64)>, value: f64| {
            let (low, high) = range.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        };
        let (low, high) = values.fold(None, range)?;
        // Where rows are few, each has a label.
        let most = if rows < 8 { rows.saturating_sub(1) } else { rows / 2 };
        let most = f64::from(most.clamp(1, 8));
        let is_log = may_be_log && low > 1e-300 && high / low >= LOG_FROM;
        Some(if is_log { Axis::logarithmic(low, high, most) } else { Axis::linear(low, high, most) })
    }

    fn linear(low: f64, high: f64, most: f64) -> Axis {
        let (mut low, mut high) = (low, high);
        if high - low <= low.abs().max(high.abs()) * 1e-6 {
            // A level line has room on both sides.
            let room = if high == 0.0 { 1.0 } else { high.abs() * 0.1 };
            // What may be a share is none above 1, and what is not negative may never be.
            let (most, least) =
                (if high <= 1.0 { 1.0 } else { f64::INFINITY }, if low >= 0.0 { 0.0 } else { f64::NEG_INFINITY });
            (low, high) = ((low - room).max(least), (high + room).min(most));
        }
        let step = round_step((high - low) / most);
        // A bound that is a round number stays one, however it is rounded.
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        let count = (last - first).clamp(1.0, 16.0) as usize;
        let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
        let label = |value: f64| {
            let is_plain = step >= 1e-5 && first.abs().max(last.abs()) * step < 1e6;
            if is_plain { format!("{:.decimals$}", value + 0.0) } else { format!("{value:.1e}") }
        };
        let labels = (0..=count).map(|number| label((first + number as f64) * step)).collect();
        Axis { bounds: [first * step, (first + count as f64) * step], labels, is_log: false }
    }

    fn logarithmic(low: f64, high: f64, most: f64) -> Axis {
        let (low, high) = (low.log10(), high.log10());
        // Over few powers of ten, three times each has its label too, which stands near the middle between them.
        let parts = if high - low < most / 2.0 { 2.0 } else { 1.0 };
        let first = (low * parts + 1e-9).floor();
        let intervals = (high * parts - 1e-9).ceil() - first;
        let every = (intervals / most).ceil().max(1.0);
        let count = (intervals / every).ceil().max(1.0) as usize;
        let label = |place: f64| {
            let power = place.div_euclid(parts) as i32;
            let digit = if place.rem_euclid(parts) == 0.0 { "1" } else { "3" };
            match power {
                0..5 => format!("{digit}{}", "0".repeat(power as usize)),
                -4..0 => format!("0.{}{digit}", "0".repeat((-power - 1) as usize)),
                _ => format!("{digit}e{power}"),
            }
        };
        let labels = (0..=count).map(|number| label(first + number as f64 * every)).collect();
        let bounds = [first / parts, (first + count as f64 * every) / parts];
        Axis { bounds, labels, is_log: true }
    }

    /// Where a value is between the bounds.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = if self.is_log { value.max(1e-300).log10() } else { value };
        place.clamp(self.bounds[0], self.bounds[1])
    }

    pub(super) fn is_log(&self) -> bool {
        self.is_log
    }
}

/// The smallest of 1, 2, 5, 10, … times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(1e-300).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    steps.into_iter().find(|step| *step >= least * 0.999_999).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64], may_be_log: bool, rows: u16) -> Vec<String> {
        Axis::of(values.iter().copied(), may_be_log, rows).expect("an axis").labels
    }

    #[test]
    fn labels_are_round_numbers() {
        assert_eq!(labels(&[0.12, 0.97], false, 10), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&[0.93, 0.985], true, 6), ["0.92", "0.94", "0.96", "0.98", "1.00"][..].to_vec());
        assert_eq!(labels(&[2.3, 0.05], true, 10), ["0.03", "0.1", "0.3", "1", "3"]);
        assert_eq!(labels(&[1e-9, 10.0], true, 6), ["1e-9", "1e-7", "1e-5", "0.001", "0.1", "10"]);
        assert_eq!(labels(&[0.0, 10.0], true, 4), ["0", "5", "10"], "there is no logarithm of 0");
        assert_eq!(labels(&[0.001], true, 8).len(), 5);
        assert_eq!(labels(&[0.97], false, 8).last().map(String::as_str), Some("1.00"), "no share is above 1");
        assert_eq!(labels(&[0.0], false, 8)[0], "0.0");
        assert_eq!(Axis::of(std::iter::empty(), true, 8), None);
    }

    #[test]
    fn any_values_have_an_axis() {
        let extremes = [f64::MIN, -1e300, -1.0, -1e-320, 0.0, 1e-320, 1e-300, 1.0, 1e300, f64::MAX];
        for low in extremes {
            for high in extremes {
                for (may_be_log, rows) in [(false, 0), (true, 1), (true, 40)] {
                    let axis = Axis::of([low, high].into_iter(), may_be_log, rows).expect("an axis");
                    assert!(axis.bounds[0] < axis.bounds[1] && axis.labels.len() >= 2, "{low} {high} {axis:?}");
                    assert!(axis.labels.iter().all(|label| label.len() < 12), "{low} {high} {axis:?}");
                    assert!((axis.bounds[0]..=axis.bounds[1]).contains(&axis.place(low)));
                }
            }
        }
    }
}
