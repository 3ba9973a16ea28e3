//! What watches a value from epoch to epoch: is it the best so far, does it still get better, should the learning rate fall.
//!
//! Settings and states are apart, so that a checkpoint keeps a state and a file the settings. States are exact in JSON.

use serde::{Deserialize, Serialize};

use super::metrics::{MetricKind, higher_is_better};
use crate::error::TrainError;

/// Which values are better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MonitorMode {
    /// As a metric of one's own of this name says, or else the name: `val_loss` should fall, `val_accuracy` rise. See
    /// [`higher_is_better`].
    #[default]
    Auto,
    /// Lower ones.
    Min,
    /// Higher ones.
    Max,
}

impl MonitorMode {
    /// Whether higher values of this name are better; lower ones are where the name says nothing.
    pub(super) fn is_max(self, name: &str) -> bool {
        match self {
            MonitorMode::Auto => higher_is_better(name).unwrap_or(false),
            MonitorMode::Min => false,
            MonitorMode::Max => true,
        }
    }

    /// The same where it is said; else what one of these metrics says of a value of its name, if one does.
    pub(super) fn or_of(self, monitor: &str, metrics: &[MetricKind]) -> Self {
        let name = monitor.strip_prefix("val_").filter(|_| self == MonitorMode::Auto);
        let metric = name.and_then(|name| metrics.iter().find(|metric| metric.name() == name));
        match metric.and_then(MetricKind::higher_is_better) {
            Some(true) => MonitorMode::Max,
            Some(false) => MonitorMode::Min,
            None => self,
        }
    }

    fn check(self, monitor: &str) -> Result<(), TrainError> {
        if self == MonitorMode::Auto && higher_is_better(monitor).is_none() {
            return Err(TrainError::Setting(format!(
                "whether `{monitor}` should fall or rise does not follow from its name: set mode to \"min\" or \"max\""
            )));
        }
        Ok(())
    }
}

/// Which value is watched for its best so far, as for the best checkpoint.
///
/// ```
/// use tightfit::train::{Best, Monitor};
///
/// let monitor = Monitor::new("val_accuracy");
/// let mut best = Best::default();
/// assert!(best.observe(&monitor, 1, 0.8));
/// assert!(!best.observe(&monitor, 2, 0.7));
/// assert_eq!((best.value, best.epoch), (Some(0.8), 1));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Monitor {
    /// The name of the value.
    #[serde(default = "default::monitor")]
    pub monitor: String,
    /// Which values are better.
    #[serde(default)]
    pub mode: MonitorMode,
    /// By how much one must be better than the best so far to count: more than this.
    #[serde(default)]
    pub min_delta: f64,
}

impl Default for Monitor {
    fn default() -> Self {
        Monitor::new(default::monitor())
    }
}

impl Monitor {
    /// Of the value of this name; its name says which values are better.
    pub fn new(monitor: impl Into<String>) -> Self {
        Monitor { monitor: monitor.into(), mode: MonitorMode::Auto, min_delta: 0.0 }
    }

    /// Whether the settings make sense.
    ///
    /// # Errors
    /// Where one does not, or it does not follow from the name which values are better.
    pub fn check(&self) -> Result<(), TrainError> {
        self.mode.check(&self.monitor)?;
        non_negative("min_delta", self.min_delta)
    }

    /// The same, with what metrics of one's own say of their values.
    pub(super) fn among(&self, metrics: &[MetricKind]) -> Self {
        Monitor { mode: self.mode.or_of(&self.monitor, metrics), ..self.clone() }
    }

    /// Whether a value is better than another by more than `min_delta`. What is not a number never is.
    pub fn is_better(&self, value: f64, than: f64) -> bool {
        is_better(self.mode.is_max(&self.monitor), self.min_delta, value, Some(than))
    }
}

/// The best value so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// It; none as long as there was no number.
    #[serde(with = "exact")]
    pub value: Option<f64>,
    /// The epoch that has it, from 1.
    pub epoch: u64,
}

impl Best {
    /// Takes an epoch's value. Whether it is the best so far.
    pub fn observe(&mut self, settings: &Monitor, epoch: u64, value: f64) -> bool {
        let is_best = is_better(settings.mode.is_max(&settings.monitor), settings.min_delta, value, self.value);
        if is_best {
            *self = Best { value: Some(value), epoch };
        }
        is_best
    }
}

/// Whether a value is better by more than `min_delta`; the first number is.
fn is_better(is_max: bool, min_delta: f64, value: f64, than: Option<f64>) -> bool {
    match than {
        None => !value.is_nan(),
        Some(than) if is_max => value - min_delta > than,
        Some(than) => value + min_delta < than,
    }
}

/// Stops a training whose value does not get better any more: Keras' `EarlyStopping`.
///
/// ```
/// use tightfit::train::{EarlyStopping, EarlyStoppingState, Verdict};
///
/// let settings = EarlyStopping { patience: 2, ..EarlyStopping::default() };
/// let mut state = EarlyStoppingState::default();
/// let verdicts: Vec<_> = [0.5, 0.4, 0.45, 0.4].iter().zip(1..).map(|(&loss, epoch)| state.observe(&settings, epoch, loss)).collect();
/// assert_eq!(verdicts, [Verdict::Improved, Verdict::Improved, Verdict::Waiting, Verdict::Stop]);
/// assert_eq!(state.best, Some(0.4));
/// ```
///
/// Source: <https://keras.io/api/callbacks/early_stopping/>
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EarlyStopping {
    /// The name of the value, such as `val_loss`.
    pub monitor: String,
    /// Which values are better.
    pub mode: MonitorMode,
    /// By how much one must be better than the best so far to count: more than this.
    pub min_delta: f64,
    /// So many epochs without a better value stop the training.
    pub patience: u64,
    /// What values must be better than, too, for the count of epochs to begin anew.
    pub baseline: Option<f64>,
    /// So many epochs at the beginning do not count.
    pub start_from_epoch: u64,
    /// Whether the training ends with the parameters of the best epoch.
    pub restore_best: bool,
}

impl Default for EarlyStopping {
    fn default() -> Self {
        EarlyStopping {
            monitor: default::monitor(),
            mode: MonitorMode::Auto,
            min_delta: 0.0,
            patience: 0,
            baseline: None,
            start_from_epoch: 0,
            restore_best: false,
        }
    }
}

impl EarlyStopping {
    /// Whether the settings make sense.
    ///
    /// # Errors
    /// Where one does not, or it does not follow from the name which values are better.
    pub fn check(&self) -> Result<(), TrainError> {
        self.mode.check(&self.monitor)?;
        non_negative("min_delta", self.min_delta)?;
        if self.baseline.is_some_and(f64::is_nan) {
            return Err(TrainError::Setting("baseline of early stopping is not a number".to_owned()));
        }
        Ok(())
    }
}

/// How far early stopping is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EarlyStoppingState {
    /// The best value so far; none as long as there was no number.
    #[serde(with = "exact")]
    pub best: Option<f64>,
    /// The epoch that has it, from 1.
    pub best_epoch: u64,
    /// Epochs without a better value.
    pub wait: u64,
    /// The epoch at which the training was stopped.
    pub stopped_epoch: Option<u64>,
}

/// What early stopping says of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its value is the best so far: the parameters are worth keeping.
    Improved,
    /// It is not, or does not count yet.
    Waiting,
    /// The training should end.
    Stop,
}

impl EarlyStoppingState {
    /// Takes an epoch's value. Epochs count from 1, and the first never stops a training. What is not a number is no
    /// improvement; Keras takes it for the best where it comes first.
    pub fn observe(&mut self, settings: &EarlyStopping, epoch: u64, value: f64) -> Verdict {
        if epoch <= settings.start_from_epoch {
            return Verdict::Waiting;
        }
        let is_max = settings.mode.is_max(&settings.monitor);
        self.wait += 1;
        if is_better(is_max, settings.min_delta, value, self.best) {
            (self.best, self.best_epoch) = (Some(value), epoch);
            if is_better(is_max, settings.min_delta, value, settings.baseline) {
                self.wait = 0;
            }
            return Verdict::Improved;
        }
        if self.wait >= settings.patience && epoch > 1 {
            self.stopped_epoch = Some(epoch);
            return Verdict::Stop;
        }
        Verdict::Waiting
    }
}

/// Lowers the learning rate when a value does not get better any more: PyTorch's `ReduceLROnPlateau`, with its defaults.
///
/// Source: <https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ReduceLROnPlateau.html>
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReduceOnPlateau {
    /// The name of the value, such as `val_loss`.
    pub monitor: String,
    /// Which values are better.
    pub mode: MonitorMode,
    /// What the learning rate is multiplied by.
    pub factor: f64,
    /// So many epochs without a better value are waited for; the next lowers the learning rate.
    pub patience: u64,
    /// By how much a value must be better than the best so far to count.
    pub threshold: f64,
    /// What the threshold is a share of.
    pub threshold_mode: ThresholdMode,
    /// Epochs that do not count after the learning rate was lowered.
    pub cooldown: u64,
    /// The lowest learning rate.
    pub min_lr: f64,
    /// The learning rate stays where it would fall by no more than this.
    pub eps: f64,
}

/// What the threshold of [`ReduceOnPlateau`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThresholdMode {
    /// A share of the best value: better is below `best · (1 − threshold)`, or above `best · (1 + threshold)`.
    #[default]
    Rel,
    /// A difference to the best value: better is below `best − threshold`, or above `best + threshold`.
    Abs,
}

impl Default for ReduceOnPlateau {
    fn default() -> Self {
        ReduceOnPlateau {
            monitor: default::monitor(),
            mode: MonitorMode::Auto,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            threshold_mode: ThresholdMode::Rel,
            cooldown: 0,
            min_lr: 0.0,
            eps: 1e-8,
        }
    }
}

impl ReduceOnPlateau {
    /// Whether the settings make sense.
    ///
    /// # Errors
    /// Where one does not, or it does not follow from the name which values are better.
    pub fn check(&self) -> Result<(), TrainError> {
        self.mode.check(&self.monitor)?;
        for (name, value) in [("threshold", self.threshold), ("min_lr", self.min_lr), ("eps", self.eps)] {
            non_negative(name, value)?;
        }
        let refuse = |text: String| Err(TrainError::Setting(text));
        if !(0.0..1.0).contains(&self.factor) {
            return refuse(format!("factor = {:?} is not possible: it must be in 0..1", self.factor));
        }
        if self.threshold_mode == ThresholdMode::Rel && self.threshold >= 1.0 {
            return refuse(format!(
                "threshold = {:?} is not possible: a share must be below 1; threshold_mode = \"abs\" takes differences",
                self.threshold
            ));
        }
        Ok(())
    }

    fn is_better(&self, value: f64, best: Option<f64>) -> bool {
        let is_max = self.mode.is_max(&self.monitor);
        let best = best.unwrap_or(if is_max { f64::NEG_INFINITY } else { f64::INFINITY });
        match (self.threshold_mode, is_max) {
            (ThresholdMode::Rel, false) => value < best * (1.0 - self.threshold),
            (ThresholdMode::Rel, true) => value > best * (self.threshold + 1.0),
            (ThresholdMode::Abs, false) => value < best - self.threshold,
            (ThresholdMode::Abs, true) => value > best + self.threshold,
        }
    }
}

/// How far [`ReduceOnPlateau`] is. The learning rate itself is kept by the training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlateauState {
    /// The best value so far; none as long as there was no finite number.
    #[serde(with = "exact")]
    pub best: Option<f64>,
    /// Epochs without a better value.
    pub bad_epochs: u64,
    /// Epochs that do not count yet.
    pub cooldown_left: u64,
}

impl PlateauState {
    /// Takes an epoch's value and the learning rate. The new learning rate, where it changes.
    pub fn observe(&mut self, settings: &ReduceOnPlateau, value: f64, lr: f64) -> Option<f64> {
        if settings.is_better(value, self.best) {
            self.best = Some(value);
            self.bad_epochs = 0;
        } else {
            self.bad_epochs += 1;
        }
        if self.cooldown_left > 0 {
            self.cooldown_left -= 1;
            self.bad_epochs = 0;
        }
        if self.bad_epochs <= settings.patience {
            return None;
        }
        (self.cooldown_left, self.bad_epochs) = (settings.cooldown, 0);
        let lower = (lr * settings.factor).max(settings.min_lr);
        (lr - lower > settings.eps).then_some(lower)
    }
}

mod default {
    pub(super) fn monitor() -> String {
        "val_loss".to_owned()
    }
}

fn non_negative(name: &str, value: f64) -> Result<(), TrainError> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(TrainError::Setting(format!("{name} = {value:?} is not possible: it must be 0 or more and finite")))
}

/// Numbers that are infinite have no form of their own in JSON: they are text.
mod exact {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Number {
        Finite(f64),
        Text(String),
    }

    pub(super) fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        let number =
            |value: f64| if value.is_finite() { Number::Finite(value) } else { Number::Text(value.to_string()) };
        value.map(number).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        match Option::deserialize(deserializer)? {
            None => Ok(None),
            Some(Number::Finite(value)) => Ok(Some(value)),
            Some(Number::Text(text)) => match text.as_str() {
                "inf" => Ok(Some(f64::INFINITY)),
                "-inf" => Ok(Some(f64::NEG_INFINITY)),
                _ => Err(D::Error::custom(format!("`{}` is no number", text.escape_debug()))),
            },
        }
    }
}
