//! What a user sets: loss, optimizer, batch, budget.

use super::groups::Group;
use super::loss::Loss;
use super::optimizer::Optimizer;
use crate::nn::Statistics;
use crate::plan::Levers;

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
    /// How parameters follow their gradients.
    pub optimizer: Optimizer,
    /// Parameters with settings of their own; each belongs to the first group that it fits, if to any.
    pub groups: Vec<Group>,
    /// Samples of a step.
    pub batch: usize,
    /// Bytes that may be on the device at once; `None` for no limit.
    pub budget_bytes: Option<u64>,
    /// Fixes the number of micro-batches; `None` lets the planner choose.
    pub micro_batches: Option<usize>,
    /// What the planner may do to save memory, besides micro-batches.
    pub levers: Levers,
    /// Decides initial parameters and the order of samples.
    pub seed: u64,
    /// Scales gradients so that their global norm is at most this.
    pub clip_norm: Option<f32>,
    /// Which statistics batch norm uses.
    pub statistics: Statistics,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            loss: Loss::default(),
            optimizer: Optimizer::default(),
            groups: Vec::new(),
            batch: 64,
            budget_bytes: None,
            micro_batches: None,
            levers: Levers::default(),
            seed: 0,
            clip_norm: None,
            statistics: Statistics::default(),
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
    /// Sets the optimizer.
    optimizer: Optimizer => optimizer = optimizer;
    /// Sets the samples of a step.
    batch: usize => batch = batch;
    /// Sets the budget in bytes.
    budget_bytes: u64 => budget_bytes = Some(budget_bytes);
    /// Fixes the number of micro-batches.
    micro_batches: usize => micro_batches = Some(micro_batches);
    /// Sets what the planner may do to save memory.
    levers: Levers => levers = levers;
    /// Sets the seed.
    seed: u64 => seed = seed;
    /// Turns on gradient clipping by global norm.
    clip_norm: f32 => clip_norm = Some(clip_norm);
    /// Sets which statistics batch norm uses: `ghost` or `frozen` allow micro-batches.
    statistics: Statistics => statistics = statistics;
}

impl Config {
    /// Adds a group of parameters with settings of their own.
    #[must_use]
    pub fn group(mut self, group: Group) -> Self {
        self.groups.push(group);
        self
    }

    /// Takes biases and the weights of norms out of weight decay: a group of the parameters of one axis.
    #[must_use]
    pub fn decay_matrices_only(self) -> Self {
        self.group(Group::one_dimensional().weight_decay(0.0))
    }
}
