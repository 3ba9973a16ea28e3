//! What a training has come to so far: the values of each epoch, and a curve of what each step reports.

mod axis;
mod curve;
mod exact;
mod lr_picture;
mod picture;
#[cfg(test)]
mod picture_tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use curve::{Curve, CurvePoint};

use super::monitor::MonitorMode;

/// The values of one epoch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EpochRecord {
    /// Epoch, from 1.
    pub epoch: u64,
    /// The last step of it, from 1 over all epochs.
    pub step: u64,
    /// By name, such as `loss`, `accuracy`, `val_loss` and `lr`.
    #[serde(with = "exact::map")]
    pub values: BTreeMap<String, f64>,
}

/// Bit for bit, so that a value that is not a number equals itself.
impl PartialEq for EpochRecord {
    fn eq(&self, other: &Self) -> bool {
        let same = |(a, b): ((&String, &f64), (&String, &f64))| a.0 == b.0 && exact::same(*a.1, *b.1);
        (self.epoch, self.step, self.values.len()) == (other.epoch, other.step, other.values.len())
            && self.values.iter().zip(&other.values).all(same)
    }
}

/// What a training has come to so far: a record of every epoch, and for each value that steps report a [`Curve`] of bounded length.
///
/// It is a function of what was pushed and nothing else, and JSON keeps every bit of it: the history of a run that was resumed
/// equals that of one that was never interrupted.
///
/// ```
/// use tightfit::train::{History, MonitorMode};
///
/// let mut history = History::default();
/// for step in 1..=20 {
///     history.push_step(step, &[("loss", 1.0 / step as f64)]);
///     if step % 10 == 0 {
///         history.push_epoch(step / 10, step, &[("loss", 0.3), ("val_loss", 0.5 - step as f64 / 100.0)]);
///     }
/// }
/// assert_eq!(history.best("val_loss", MonitorMode::Auto).map(|record| record.epoch), Some(2));
/// assert_eq!(history.series("loss").len(), 20);
/// assert_eq!(history.to_csv().lines().next(), Some("epoch,step,loss,val_loss"));
/// let json = serde_json::to_string(&history).expect("JSON");
/// assert_eq!(serde_json::from_str::<History>(&json).expect("the same"), history);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    epochs: Vec<EpochRecord>,
    steps: BTreeMap<String, Curve>,
}

impl History {
    /// Adds what a step reports. Steps count from 1 over all epochs.
    ///
    /// A step that a value's curve has already is left out, so that steps which are repeated after a failure do not count twice.
    pub fn push_step(&mut self, step: u64, values: &[(&str, f64)]) {
        for &(name, value) in values {
            match self.steps.get_mut(name) {
                Some(curve) => curve.push(step, value),
                None => self.steps.entry(name.to_owned()).or_default().push(step, value),
            }
        }
    }

    /// Adds the values of an epoch that ended with this step. An epoch that is there already is left out.
    pub fn push_epoch(&mut self, epoch: u64, step: u64, values: &[(&str, f64)]) {
        if self.epochs.last().is_some_and(|last| epoch <= last.epoch) {
            return;
        }
        let values = values.iter().map(|&(name, value)| (name.to_owned(), exact::canonical(value))).collect();
        self.epochs.push(EpochRecord { epoch, step, values });
    }

    /// The epochs, in order.
    pub fn epochs(&self) -> &[EpochRecord] {
        &self.epochs
    }

    /// The curve of a value that steps report.
    pub fn curve(&self, name: &str) -> Option<&Curve> {
        self.steps.get(name)
    }

    /// The names of all values, of steps and of epochs, in alphabetical order.
    pub fn names(&self) -> Vec<&str> {
        let of_epochs = self.epochs.iter().flat_map(|record| record.values.keys());
        let names: BTreeSet<_> = self.steps.keys().chain(of_epochs).map(String::as_str).collect();
        names.into_iter().collect()
    }

    /// A value over steps: of its curve where steps report it, else of the epochs. Empty where there is no such value.
    pub fn series(&self, name: &str) -> Vec<(u64, f64)> {
        match self.curve(name) {
            Some(curve) => curve.points().iter().map(|point| (point.step, point.mean())).collect(),
            None => self.of_epochs(name).map(|(record, value)| (record.step, value)).collect(),
        }
    }

    /// The epoch at which a value was best, the first of several; `None` where no epoch has it as a number.
    pub fn best(&self, name: &str, mode: MonitorMode) -> Option<&EpochRecord> {
        let mut numbers = self.of_epochs(name).filter(|(_, value)| !value.is_nan());
        let first = numbers.next()?;
        let is_max = mode.is_max(name);
        let is_better = |value: f64, than: f64| if is_max { value > than } else { value < than };
        let better = |best: (_, f64), other: (_, f64)| if is_better(other.1, best.1) { other } else { best };
        Some(numbers.fold(first, better).0)
    }

    /// The epochs as a table of comma-separated values: `epoch`, `step`, and the values by name.
    pub fn to_csv(&self) -> String {
        let names: BTreeSet<_> = self.epochs.iter().flat_map(|record| record.values.keys()).collect();
        let mut writer = csv::Writer::from_writer(Vec::new());
        let mut row =
            |cells: Vec<String>| writer.write_record(cells).expect("bug: memory takes all rows, of one length");
        let header = ["epoch", "step"].into_iter().map(str::to_owned);
        row(header.chain(names.iter().map(|&name| name.clone())).collect());
        for record in &self.epochs {
            let numbers = [record.epoch, record.step].into_iter().map(|number| number.to_string());
            let value =
                |name: &&String| record.values.get(*name).map_or_else(String::new, |value| format!("{value:?}"));
            row(numbers.chain(names.iter().map(value)).collect());
        }
        let bytes = writer.into_inner().expect("bug: memory takes all rows");
        String::from_utf8(bytes).expect("bug: made of strings")
    }

    fn of_epochs<'a>(&'a self, name: &str) -> impl Iterator<Item = (&'a EpochRecord, f64)> {
        self.epochs.iter().filter_map(move |record| Some((record, *record.values.get(name)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(step: u64) -> f64 {
        // Numbers whose shortest decimals are long.
        (step as f64 * 0.7).sin().exp() / 3.0
    }

    fn run(history: &mut History, steps: std::ops::RangeInclusive<u64>) {
        for step in steps {
            history.push_step(step, &[("loss", value(step)), ("lr", 0.1)]);
            if step % 7 == 0 {
                history.push_step(step, &[("norm", if step % 49 == 0 { f64::NAN } else { -0.0 })]);
            }
            if step % 100 == 0 {
                history.push_epoch(step / 100, step, &[("val_loss", value(step)), ("inf", f64::NEG_INFINITY)]);
            }
        }
    }

    #[test]
    fn a_history_that_was_kept_and_read_goes_on_with_the_same_bits() {
        let mut whole = History::default();
        run(&mut whole, 1..=5_000);
        for cut in [1, 699, 1_024, 1_025, 2_048, 2_049, 4_100, 4_999] {
            let mut part = History::default();
            run(&mut part, 1..=cut);
            let json = serde_json::to_string(&part).expect("JSON");
            let mut resumed: History = serde_json::from_str(&json).expect("reads");
            assert_eq!(resumed, part);
            run(&mut resumed, cut + 1..=5_000);
            assert_eq!(resumed, whole, "{cut}");
            assert_eq!(serde_json::to_string(&resumed).expect("JSON"), serde_json::to_string(&whole).expect("JSON"));
        }
        // What is repeated does not count twice.
        let before = whole.clone();
        run(&mut whole, 4_900..=5_000);
        assert_eq!(whole, before);
        whole.push_step(5_001, &[("loss", 0.1)]);
        assert_ne!(whole, before);
    }

    #[test]
    fn the_best_epoch_is_the_first_of_equals_and_never_nan() {
        let mut history = History::default();
        for (epoch, value) in [f64::NAN, 0.5, 0.25, 0.75, 0.25, 0.75].into_iter().enumerate() {
            history.push_epoch(epoch as u64 + 1, 10 * (epoch as u64 + 1), &[("v", value)]);
        }
        history.push_epoch(7, 70, &[("nan", f64::NAN)]);
        let best = |name: &str, mode| history.best(name, mode).map(|record| record.epoch);
        assert_eq!((best("v", MonitorMode::Min), best("v", MonitorMode::Max)), (Some(3), Some(4)));
        assert_eq!((best("nan", MonitorMode::Min), best("none", MonitorMode::Max)), (None, None));
        assert_eq!(history.names(), ["nan", "v"]);
        assert_eq!(history.to_csv().lines().last(), Some("7,70,NaN,"));
        assert_eq!(history.series("v")[1..3], [(20, 0.5), (30, 0.25)]);
        assert!(history.series("none").is_empty());
    }

    #[test]
    fn a_history_that_cannot_be_is_refused() {
        for (json, words) in [
            (r#"{"epochs":[],"steps":{"a":{"interval":0,"points":[]}}}"#, "interval"),
            (r#"{"epochs":[],"steps":{"a":{"interval":3,"points":[]}}}"#, "interval"),
            (r#"{"epochs":[],"steps":{"a":{"interval":1,"points":[[1,2,0.5,0.5,0.5]]}}}"#, "point"),
            (r#"{"epochs":[],"steps":{"a":{"interval":2,"points":[[2,1,0.5,0.5,0.5],[3,1,0.5,0.5,0.5]]}}}"#, "point"),
            (r#"{"epochs":[],"steps":{"a":{"interval":1,"points":[[2,1,0.5,0.5,0.5],[2,1,0.5,0.5,0.5]]}}}"#, "point"),
            (r#"{"epochs":[{"epoch":1,"step":1,"values":{"a":"x"}}],"steps":{}}"#, "number"),
        ] {
            let error = serde_json::from_str::<History>(json).expect_err("refused").to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
