//! What a user asks of a fit, and what comes of it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::callbacks::Callback;
use super::checkpoints::Checkpoints;
use super::history::History;
use super::metrics::MetricValue;
use crate::data::{DataLoader, Order};
use crate::error::{TrainError, unknown};
use crate::tensor::plural;

/// What happened in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Step, from 1, over all epochs of this fit.
    pub step: u64,
    /// Epoch, from 1.
    pub epoch: u64,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// Steps of the whole fit.
    pub total_steps: u64,
    /// Mean loss of the step's batch.
    pub loss: f32,
    /// Share of the batch predicted right, before the step's update; only with cross-entropy.
    pub accuracy: Option<f32>,
    /// Norm of all gradients together before they were clipped, where [`Config::grad_norm`](super::Config::grad_norm) asks for it.
    pub grad_norm: Option<f32>,
    /// What the loss was multiplied by for its gradients, where it was: see [`LossScale`](super::LossScale).
    pub loss_scale: Option<f32>,
    /// Whether nothing was updated, because a gradient was not finite.
    pub skipped: bool,
    /// Steps so far, over all epochs of this fit, of which that is so; only where the loss is scaled.
    pub skipped_steps: Option<u64>,
    /// Learning rate of the step, of parameters in no group.
    pub lr: f64,
    /// Samples of the batch.
    pub samples: usize,
    /// Time of the step in milliseconds.
    pub step_ms: f64,
}

impl StepReport {
    /// What logs are told of it, by name.
    pub fn values(&self) -> Vec<(&'static str, f64)> {
        let mut values = vec![("loss", f64::from(self.loss)), ("lr", self.lr)];
        values.extend(self.accuracy.map(|accuracy| ("accuracy", f64::from(accuracy))));
        values.extend(self.grad_norm.map(|norm| ("grad_norm", f64::from(norm))));
        values.extend(self.loss_scale.map(|scale| ("loss_scale", f64::from(scale))));
        values.extend(self.skipped_steps.map(|skipped| ("skipped_steps", skipped as f64)));
        values
    }
}

/// What came of an epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct EpochReport {
    /// Epoch, from 1.
    pub epoch: u64,
    /// Steps so far, over all epochs of this fit.
    pub step: u64,
    /// Learning rate of the step to come, of parameters in no group.
    pub lr: f64,
    /// Mean loss over the epoch's steps.
    pub train_loss: f64,
    /// Share of samples predicted right over the epoch's steps; only with cross-entropy.
    pub train_accuracy: Option<f64>,
    /// Steps so far, over all epochs of this fit, that were skipped because a gradient was not finite; only where the loss is
    /// [scaled](super::LossScale).
    pub skipped_steps: Option<u64>,
    /// Of the data in [`FitOptions::validation`]: with the averages of the parameters, where there are such.
    pub validation: Option<Evaluation>,
}

impl EpochReport {
    /// What logs are told of it, by name: `loss`, `accuracy`, `skipped_steps` and `lr` of training, `val_loss`, `val_accuracy` and the metrics'
    /// `val_` of validation, where a metric of several numbers gives their mean.
    pub fn values(&self) -> Vec<(String, f64)> {
        let mut values = vec![("loss".to_owned(), self.train_loss), ("lr".to_owned(), self.lr)];
        values.extend(self.train_accuracy.map(|accuracy| ("accuracy".to_owned(), accuracy)));
        values.extend(self.skipped_steps.map(|skipped| ("skipped_steps".to_owned(), skipped as f64)));
        if let Some(Evaluation { loss, accuracy, metrics, .. }) = &self.validation {
            values.push(("val_loss".to_owned(), *loss));
            values.extend(accuracy.map(|accuracy| ("val_accuracy".to_owned(), accuracy)));
            let numbers = metrics.iter().filter_map(|(name, value)| Some((format!("val_{name}"), value.scalar()?)));
            // Accuracy may be asked for besides.
            values.extend(numbers.filter(|(name, _)| *name != "val_accuracy"));
        }
        values
    }

    /// One of the values.
    ///
    /// # Errors
    /// [`TrainError::Setting`] where there is none of this name.
    pub fn value(&self, name: &str) -> Result<f64, TrainError> {
        let values = self.values();
        let found = values.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        found.ok_or_else(|| {
            let known = values.iter().map(|(name, _)| name.as_str());
            TrainError::Setting(unknown("value of an epoch", name, known))
        })
    }
}

/// What a fit came to.
#[derive(Clone, Debug, PartialEq)]
pub struct FitReport {
    /// Steps made.
    pub steps: u64,
    /// Those of them that were skipped because a gradient was not finite; only where the loss is [scaled](super::LossScale).
    pub skipped_steps: Option<u64>,
    /// Epochs completed.
    pub epochs: u64,
    /// Mean loss over the last epoch's steps so far.
    pub train_loss: f32,
    /// Share of samples predicted right over the last epoch's steps so far; only with cross-entropy.
    pub train_accuracy: Option<f32>,
    /// Median time of a step in milliseconds, without the first where there are others.
    pub step_ms_median: f64,
    /// Time of the first step in milliseconds: drivers make ready in it what was not before.
    pub first_step_ms: f64,
    /// Stopped through [`FitOptions::stop`].
    pub interrupted: bool,
    /// What its epochs and steps reported.
    pub history: History,
    /// Why a callback ended it, where one did.
    pub stopped: Option<String>,
}

/// How well a model does on a dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean loss.
    pub loss: f64,
    /// Share of samples predicted right: the largest logit is the label's, or with binary cross-entropy every output is
    /// on the right side of 0. None for MSE.
    pub accuracy: Option<f64>,
    /// Samples.
    pub samples: usize,
    /// What [`Config::metrics`](super::Config::metrics) asks for, by name.
    pub metrics: Vec<(String, MetricValue)>,
}

impl fmt::Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loss {:.4}", self.loss)?;
        if let Some(accuracy) = self.accuracy {
            write!(f, ", accuracy {:.2}%", accuracy * 100.0)?;
        }
        // Accuracy may be asked for besides.
        let others = self.metrics.iter().filter(|(name, _)| self.accuracy.is_none() || name != "accuracy");
        for (name, value) in others {
            if let Some(number) = value.scalar() {
                write!(f, ", {name} {number:.4}")?;
            }
        }
        write!(f, " on {}", plural(self.samples, "sample"))
    }
}

/// How long to fit, and who is told.
///
/// ```
/// use tightfit::data::{TensorDataset, Values, Targets};
/// use tightfit::nn::Sequential;
/// use tightfit::train::{Config, DeviceSelector, FitOptions, StepReport, Trainer};
///
/// # let data = TensorDataset::new(Values::F32(vec![0.0, 1.0, 2.0, 3.0]), [1], Targets::labels(vec![0, 0, 1, 1], 2))?;
/// # let model = Sequential::new("two-classes", [1]).linear(2);
/// # let mut trainer = Trainer::new(model, Config::default().batch(2), DeviceSelector::Cpu)?;
/// // Three times over the data, but at most five steps.
/// let mut losses = Vec::new();
/// let mut on_step = |step: &StepReport| losses.push(step.loss);
/// let options = FitOptions { max_steps: Some(5), on_step: Some(&mut on_step), ..FitOptions::epochs(3) };
/// let report = trainer.fit(&data, options)?;
/// assert_eq!((report.steps, losses.len()), (5, 5));
/// # Ok::<(), tightfit::error::TrainError>(())
/// ```
#[derive(Default)]
pub struct FitOptions<'a> {
    /// Passes over the dataset.
    pub epochs: u64,
    /// Stops after so many steps.
    pub max_steps: Option<u64>,
    /// In which order samples are trained on; `None` shuffles them, in each epoch anew, as the seed says. A model that carries something
    /// from batch to batch takes them as they are stored in any case.
    pub order: Option<Order>,
    /// Stops at the end of the step during which it becomes true.
    pub stop: Option<Arc<AtomicBool>>,
    /// What is evaluated after each epoch.
    pub validation: Option<DataLoader<'a>>,
    /// What sees every event, in this order.
    pub callbacks: Vec<&'a mut dyn Callback>,
    /// When checkpoints are written.
    pub checkpoints: Option<Checkpoints>,
    /// Called after every step.
    pub on_step: Option<&'a mut dyn FnMut(&StepReport)>,
}

impl fmt::Debug for FitOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FitOptions")
            .field("epochs", &self.epochs)
            .field("max_steps", &self.max_steps)
            .finish_non_exhaustive()
    }
}

impl FitOptions<'_> {
    /// So many passes over the dataset.
    pub fn epochs(epochs: u64) -> Self {
        FitOptions { epochs, ..FitOptions::default() }
    }
}
