//! Run files: a model, its data and all settings of a training in TOML. What flags say is put over them, and what a training
//! resolves to is written as one.

mod read;
mod resolve;
pub(super) mod seed;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tightfit::autodiff::Clip;
use tightfit::data::augment::Augmentation;
use tightfit::nn::{Normalization, Statistics};
use tightfit::tensor::Half;
use tightfit::train::{
    EarlyStopping, Group, Length, Loss, LossScale, MetricKind, Monitor, Optimizer, Precision, ReduceOnPlateau, Schedule,
};

use super::bytes::Budget;
use super::data::DataTable;
use super::settings::{AllowedName, LeverName};

/// All that a training is told. What is not given has the default that it has on the command line.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct RunFile {
    pub(crate) model: ModelTable,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) data: DataTable,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) augment: Option<Augmentation>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) training: TrainingTable,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) optimizer: Option<Optimizer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<Schedule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) loss: Option<Loss>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) metrics: MetricsTable,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) early_stopping: Option<EarlyStopping>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reduce_on_plateau: Option<ReduceOnPlateau>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) checkpoint: CheckpointTable,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) log: LogTable,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) budget: BudgetTable,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) groups: Option<Vec<Group>>,
    /// What flags say of the optimizer, whatever file it is from.
    #[serde(skip)]
    pub(crate) given: OptimizerFlags,
    /// The file that it was read from, where it was.
    #[serde(skip)]
    pub(crate) path: Option<PathBuf>,
}

/// `[model]`: which one, and what it starts from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelTable {
    /// A built-in model, or the path of a model file.
    pub(crate) name: PathBuf,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) input: Option<Vec<NonZeroUsize>>,
    /// Classes, tokens or numbers that a built-in model says, where that is not its usual number.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) outputs: Option<NonZeroUsize>,
    /// How bytes become numbers on the device, where the model takes bytes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) normalization: Option<Normalization>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) weights: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) skip_mismatched: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) freeze: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) train_only: Vec<String>,
    /// When all parameters are trained that are frozen until then.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) unfreeze_after: Option<Length>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) batch_norm: Option<Statistics>,
}

/// `[training]`: how long, and what happens to gradients and parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TrainingTable {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) epochs: Option<NonZeroU64>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) steps: Option<NonZeroU64>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) clip_norm: Option<f64>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) clip_value: Option<f64>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) clip_tensor_norm: Option<f64>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) ema: Option<f64>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) grad_norm: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) precision: Option<Precision>,
    /// Beginnings of layers' names with a precision of their own.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) layer_precision: BTreeMap<String, Precision>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) save_activations: Option<Half>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) loss_scale: Option<LossScale>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) decay_matrices_only: bool,
}

/// `[metrics]`: what is said of evaluations besides loss and accuracy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MetricsTable {
    pub(crate) evaluate: Vec<MetricKind>,
}

/// `[checkpoint]`: when a run folder gets one, and how many stay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CheckpointTable {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) every_steps: Option<NonZeroU64>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) every_minutes: Option<f64>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) each_epoch: Option<bool>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) keep: Option<NonZeroUsize>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "read::monitor")]
    pub(crate) best: Option<Monitor>,
}

/// `[log]`: lines of progress, and the logs of a run folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogTable {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) every: Option<NonZeroU64>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) csv: Option<bool>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) jsonl: Option<bool>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) tensorboard: Option<bool>,
}

/// `[budget]`: where it runs, and in how much memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BudgetTable {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) bytes: Option<Budget>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) micro_batches: Option<NonZeroUsize>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) without: Vec<LeverName>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) allow: Option<AllowedName>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) device: Option<String>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "read::threads")]
    pub(crate) threads: Option<NonZeroUsize>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) replan: Option<bool>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) snapshot_every: Option<NonZeroU64>,
}

/// What flags say of the optimizer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct OptimizerFlags {
    pub(crate) kind: Option<Optimizer>,
    pub(crate) lr: Option<f64>,
    pub(crate) momentum: Option<f64>,
    pub(crate) weight_decay: Option<f64>,
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Puts what a flag says over what a file says.
pub(crate) fn set<T: Clone>(place: &mut Option<T>, given: Option<&T>) {
    if given.is_some() {
        *place = given.cloned();
    }
}

/// A number that was checked to be at least 1.
pub(crate) fn at_least_one(number: Option<u64>) -> Option<NonZeroU64> {
    number.and_then(NonZeroU64::new)
}

impl RunFile {
    /// One that names a model and nothing else.
    pub(crate) fn of_model(name: &OsStr) -> Self {
        RunFile { model: ModelTable { name: name.into(), ..ModelTable::default() }, ..RunFile::default() }
    }

    /// What the model is called, or the path of its file.
    pub(crate) fn model(&self) -> &OsStr {
        self.model.name.as_os_str()
    }

    /// The device, where one is named.
    pub(crate) fn device(&self) -> Option<&str> {
        self.budget.device.as_deref()
    }

    /// Epochs of the whole training.
    pub(crate) fn epochs(&self) -> u64 {
        // As many as the steps need, where only these are said.
        let usual = if self.training.steps.is_some() { u64::MAX } else { 1 };
        self.training.epochs.map_or(usual, NonZeroU64::get)
    }

    /// The most steps of the whole training.
    pub(crate) fn steps(&self) -> Option<u64> {
        self.training.steps.map(NonZeroU64::get)
    }

    /// Which values are watched, and by what.
    pub(crate) fn watched(&self) -> Vec<(&'static str, &str)> {
        let early = self.early_stopping.iter().map(|settings| ("early_stopping", settings.monitor.as_str()));
        let plateau = self.reduce_on_plateau.iter().map(|settings| ("reduce_on_plateau", settings.monitor.as_str()));
        let best = self.checkpoint.best.iter().map(|settings| ("checkpoint.best", settings.monitor.as_str()));
        early.chain(plateau).chain(best).collect()
    }

    /// Whether the validation set, or else the test set, is evaluated after each epoch: where there is one or a value of that is watched,
    /// unless it is said.
    pub(crate) fn validates(&self) -> bool {
        let is_watched = || self.watched().iter().any(|(_, value)| value.starts_with("val_"));
        self.data.validation.unwrap_or_else(|| self.data.val.is_some() || self.data.fold.is_some() || is_watched())
    }

    /// How gradients are kept small.
    pub(crate) fn clip(&self) -> Option<Clip> {
        let training = &self.training;
        let clip = |most: Option<f64>, of: fn(f32) -> Clip| most.map(|most| of(most as f32));
        clip(training.clip_norm, Clip::Norm)
            .or_else(|| clip(training.clip_value, Clip::Value))
            .or_else(|| clip(training.clip_tensor_norm, Clip::TensorNorm))
    }
}
