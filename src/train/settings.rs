//! What a user sets: loss, optimizer, batch, budget.

use std::sync::Arc;

use super::groups::Group;
use super::loss::Loss;
use super::loss_scale::LossScale;
use super::machine::Machine;
use super::metrics::MetricKind;
use super::objective::Head;
use super::optimizer::Optimizer;
use super::precision::{LayerPrecision, Precision, Precisions};
use super::schedule::Schedule;
use super::trainer::Recovery;
use crate::autodiff::Clip;
use crate::device::AvailableMemory;
use crate::error::DeviceError;
use crate::nn::Statistics;
use crate::ops::UpdateRule;
use crate::plan::Levers;
use crate::tensor::Half;

/// An [`UpdateRule`] of one's own.
#[derive(Clone, Debug)]
pub struct CustomRule(pub(super) Arc<dyn UpdateRule>);

/// Two are the same where they are one object.
impl PartialEq for CustomRule {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Settings of a training. Each has a default: cross-entropy, Adam, batches of 64, no budget.
///
/// ```
/// use tightfit::train::{Config, Optimizer};
///
/// let config = Config::default()
///     .batch(256)
///     .budget_bytes(64 << 20)
///     .optimizer(Optimizer::adamw(0.001))
///     .decay_matrices_only()
///     .clip_norm(1.0)
///     .seed(1);
/// // The planner chooses how many.
/// assert_eq!(config.micro_batches, None);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What is minimised.
    pub loss: Loss,
    /// What that is multiplied by before losses of other outputs are added.
    pub loss_weight: f32,
    /// Losses of other outputs, which are added.
    pub heads: Vec<Head>,
    /// How parameters follow their gradients.
    pub optimizer: Optimizer,
    /// An update rule of one's own, in place of the optimizer's; the learning rate is the optimizer's.
    pub update_rule: Option<CustomRule>,
    /// Whether each sample's loss is multiplied by its weight in the data.
    pub sample_weights: bool,
    /// Whether a last batch that is not full is left out of an epoch; else it is trained on, each of its samples counting more.
    pub drop_last: bool,
    /// How the learning rate changes from step to step.
    pub schedule: Option<Schedule>,
    /// What is said of evaluations besides loss and accuracy.
    pub metrics: Vec<MetricKind>,
    /// Parameters with settings of their own; each belongs to the first group that it fits, if to any.
    pub groups: Vec<Group>,
    /// Parameters whose names begin so are not trained.
    pub freeze: Vec<String>,
    /// Where there are any, only parameters whose names begin so are trained.
    pub train_only: Vec<String>,
    /// Samples of a step.
    pub batch: usize,
    /// Bytes that may be on the device at once; `None` for no limit, or for what [`auto_budget`](Self::auto_budget) takes.
    pub budget_bytes: Option<u64>,
    /// Where no budget is stated, whether it is taken of what the device has free:
    /// [`AvailableMemory::budget_bytes`](crate::device::AvailableMemory::budget_bytes).
    pub auto_budget: bool,
    /// Fixes the number of micro-batches; `None` lets the planner choose.
    pub micro_batches: Option<usize>,
    /// What the planner may do to save memory, besides micro-batches.
    pub levers: Levers,
    /// Decides initial parameters and the order of samples.
    pub seed: u64,
    /// How gradients are kept small.
    pub clip: Option<Clip>,
    /// Keeps an exponential moving average of the parameters, of which a step keeps this share: 0.999.
    pub ema_decay: Option<f32>,
    /// Whether each step says the norm of all gradients together.
    pub grad_norm: bool,
    /// In which format activations and their gradients are stored.
    pub precision: Precision,
    /// Layers with a precision of their own.
    pub layer_precision: Vec<LayerPrecision>,
    /// The format of copies that forward makes for backward, so that what it computes with need not be kept; `None` for none.
    pub save_activations: Option<Half>,
    /// What the loss is multiplied by for its gradients; `None` for what the precision needs: of f16 a dynamic one, of others nothing.
    pub loss_scale: Option<LossScale>,
    /// Which statistics batch norm uses.
    pub statistics: Statistics,
    /// What is done where memory goes or the device is lost.
    pub recovery: Recovery,
    /// Threads of the CPU, where it trains; `None` for as many as the process may run at once, or as `TIGHTFIT_THREADS` names. Results do
    /// not depend on it.
    pub threads: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            loss: Loss::default(),
            loss_weight: 1.0,
            heads: Vec::new(),
            optimizer: Optimizer::default(),
            update_rule: None,
            sample_weights: false,
            drop_last: true,
            schedule: None,
            metrics: Vec::new(),
            groups: Vec::new(),
            freeze: Vec::new(),
            train_only: Vec::new(),
            batch: 64,
            budget_bytes: None,
            auto_budget: false,
            micro_batches: None,
            levers: Levers::default(),
            seed: 0,
            clip: None,
            ema_decay: None,
            grad_norm: false,
            precision: Precision::default(),
            layer_precision: Vec::new(),
            save_activations: None,
            loss_scale: None,
            statistics: Statistics::default(),
            recovery: Recovery::default(),
            threads: None,
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $arg:ty => $field:ident = $value:expr;)*) => {
        impl Config {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $name: $arg) -> Self {
                self.$field = $value;
                self
            })*
        }
    };
}

setters! {
    /// Sets the loss.
    loss: Loss => loss = loss;
    /// Sets what the loss of the model's output is multiplied by, where there are others.
    loss_weight: f32 => loss_weight = loss_weight;
    /// Sets the optimizer.
    optimizer: Optimizer => optimizer = optimizer;
    /// Sets whether each sample's loss is multiplied by its weight in the data, [`SAMPLE_WEIGHT`](crate::data::SAMPLE_WEIGHT). A step's
    /// loss is divided by its samples as if all weights were 1, as in Keras.
    sample_weights: bool => sample_weights = sample_weights;
    /// Sets whether a last batch that is not full is left out of an epoch (by default it is). Else it is filled up with samples that do not
    /// count, and its loss is the mean over those that do.
    drop_last: bool => drop_last = drop_last;
    /// Sets how the learning rate changes from step to step. In a [fit](super::Trainer::fit) it goes over all its steps; in a loop of
    /// one's own its lengths must be set.
    schedule: Schedule => schedule = Some(schedule);
    /// Sets the samples of a step.
    batch: usize => batch = batch;
    /// Sets the budget in bytes.
    budget_bytes: u64 => budget_bytes = Some(budget_bytes);
    /// Sets whether the budget is taken of what the device has free when it is opened, where none is stated: that less a margin,
    /// [`AvailableMemory::budget_bytes`](crate::device::AvailableMemory::budget_bytes).
    auto_budget: bool => auto_budget = auto_budget;
    /// Fixes the number of micro-batches.
    micro_batches: usize => micro_batches = Some(micro_batches);
    /// Sets what the planner may do to save memory.
    levers: Levers => levers = levers;
    /// Sets the seed.
    seed: u64 => seed = seed;
    /// Turns on gradient clipping by global norm.
    clip_norm: f32 => clip = Some(Clip::Norm(clip_norm));
    /// Sets how gradients are kept small.
    clip: Clip => clip = Some(clip);
    /// Keeps an exponential moving average of the parameters: `ema ← decay · ema + (1 − decay) · parameter` after each step, from
    /// the parameters that training starts with.
    ema_decay: f32 => ema_decay = Some(ema_decay);
    /// Sets whether each step says the norm of all gradients together, before they are clipped.
    grad_norm: bool => grad_norm = grad_norm;
    /// Sets in which format activations and their gradients are stored.
    precision: Precision => precision = precision;
    /// Has forward compute in f32 and backward read copies of 16 bits.
    save_activations: Half => save_activations = Some(save_activations);
    /// Sets what the loss is multiplied by for its gradients.
    loss_scale: LossScale => loss_scale = Some(loss_scale);
    /// Sets which statistics batch norm uses: `ghost` or `frozen` allow micro-batches.
    statistics: Statistics => statistics = statistics;
    /// Sets what is done where memory goes or the device is lost.
    recovery: Recovery => recovery = recovery;
}

impl Config {
    /// Bytes that may be on a machine's device at once: those that are stated, or taken of what is free; `None` for no limit.
    ///
    /// ```
    /// use tightfit::device::{AvailableMemory, MemorySource};
    /// use tightfit::plan::DeviceClass;
    /// use tightfit::train::{Config, Machine};
    ///
    /// let free = AvailableMemory { free_bytes: 10 << 30, total_bytes: 12 << 30, source: MemorySource::Driver };
    /// let machine = Machine { available: Some(free), ..Machine::of_class(DeviceClass::Discrete) };
    /// assert_eq!(Config::default().auto_budget(true).budget_on(&machine)?, Some(9 << 30));
    /// # Ok::<(), tightfit::error::TrainError>(())
    /// ```
    ///
    /// # Errors
    /// Where it is to be taken of what is free, and that is not known.
    pub fn budget_on(&self, machine: &Machine) -> Result<Option<u64>, DeviceError> {
        if self.budget_bytes.is_some() || !self.auto_budget {
            return Ok(self.budget_bytes);
        }
        let available = machine.available.ok_or(DeviceError::UnknownMemory)?;
        Ok(Some(available.budget_bytes()))
    }

    /// What the budget is taken of on a machine; `None` where it is stated, or there is none.
    pub fn budget_source<'a>(&self, machine: &'a Machine) -> Option<&'a AvailableMemory> {
        machine.available.as_ref().filter(|_| self.auto_budget && self.budget_bytes.is_none())
    }

    /// The loss scale: the one that is set, else what the precision needs.
    pub(super) fn loss_scale_or_default(&self) -> LossScale {
        let needed = if Precisions::of(self).has_f16() { LossScale::dynamic() } else { LossScale::None };
        self.loss_scale.unwrap_or(needed)
    }

    /// Adds what is said of evaluations besides loss and accuracy.
    #[must_use]
    pub fn metric(mut self, metric: MetricKind) -> Self {
        self.metrics.push(metric);
        self
    }

    /// Adds the loss of another output.
    #[must_use]
    pub fn head(mut self, head: Head) -> Self {
        self.heads.push(head);
        self
    }

    /// Lets parameters follow their gradients by a rule of one's own, at a learning rate that schedules multiply. `examples/custom_op`
    /// shows how the op of an update is written.
    #[must_use]
    pub fn update_rule(mut self, rule: impl UpdateRule + 'static, lr: f64) -> Self {
        *self.optimizer.lr_mut() = lr;
        self.update_rule = Some(CustomRule(Arc::new(rule)));
        self
    }

    /// Stores what the layers whose names begin so make in a format of their own.
    #[must_use]
    pub fn layer_precision(mut self, layer: impl Into<String>, precision: Precision) -> Self {
        self.layer_precision.push(LayerPrecision { layer: layer.into(), precision });
        self
    }

    /// Adds a group of parameters with settings of their own.
    #[must_use]
    pub fn group(mut self, group: Group) -> Self {
        self.groups.push(group);
        self
    }

    /// Does not train the parameters whose names begin so: they take no gradient and no optimizer state, and what only they and
    /// inputs go into saves no activations.
    #[must_use]
    pub fn freeze(mut self, prefix: impl Into<String>) -> Self {
        self.freeze.push(prefix.into());
        self
    }

    /// Trains only the parameters whose names begin so, or as those named before: all others are frozen.
    #[must_use]
    pub fn train_only(mut self, prefix: impl Into<String>) -> Self {
        self.train_only.push(prefix.into());
        self
    }

    /// Takes biases and the weights of norms out of weight decay: a group of the parameters of one axis.
    #[must_use]
    pub fn decay_matrices_only(self) -> Self {
        self.group(Group::one_dimensional().weight_decay(0.0))
    }
}
