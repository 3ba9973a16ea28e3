//! What a user sets: loss, optimizer, batch, budget.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{GraphError, TrainError};
use crate::graph::Graph;
use crate::nn::Statistics;
use crate::ops::UpdateRule;
use crate::ops::adam::Adam;
use crate::ops::bce_with_logits::BceWithLogits;
use crate::ops::cross_entropy::CrossEntropy;
use crate::ops::mse::Mse;
use crate::ops::sgd::Sgd;
use crate::plan::Levers;
use crate::tensor::{DType, TensorDesc, ValueId};

/// What training minimises: the mean over a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Softmax cross-entropy of logits `[N, C]` with labels `[N]`.
    #[default]
    CrossEntropy,
    /// Binary cross-entropy of logits with targets in 0..1 of the same shape.
    BceWithLogits,
    /// Mean squared error.
    Mse,
}

/// As model files write it.
impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::CrossEntropy => "cross-entropy",
            Loss::BceWithLogits => "bce-with-logits",
            Loss::Mse => "mse",
        })
    }
}

impl Loss {
    /// The targets that belong to this prediction.
    pub(crate) fn target(self, prediction: &TensorDesc) -> TensorDesc {
        match self {
            Loss::CrossEntropy => TensorDesc { shape: [prediction.shape[0]].into(), dtype: DType::U32 },
            Loss::BceWithLogits | Loss::Mse => prediction.clone(),
        }
    }

    /// Adds the loss to a graph.
    pub(crate) fn apply(self, graph: &mut Graph, prediction: ValueId, target: ValueId) -> Result<ValueId, GraphError> {
        let inputs = [prediction, target];
        match self {
            Loss::CrossEntropy => graph.apply(CrossEntropy, &inputs),
            Loss::BceWithLogits => graph.apply(BceWithLogits, &inputs),
            Loss::Mse => graph.apply(Mse, &inputs),
        }
    }

    /// The loss of one sample in f64 on the host: over several outputs, their mean.
    pub(crate) fn of_sample(self, prediction: &[f32], target: Target<'_>) -> f64 {
        match (self, target) {
            (Loss::CrossEntropy, Target::Label(label)) => {
                let Some(&logit) = prediction.get(label as usize) else { return f64::NAN };
                let max = prediction.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = prediction.iter().map(|&x| (f64::from(x) - f64::from(max)).exp()).sum();
                sum.ln() + f64::from(max) - f64::from(logit)
            }
            (Loss::BceWithLogits, Target::Values(target)) => {
                mean(prediction, target, |x, t| x.max(0.0) - x * t + (-x.abs()).exp().ln_1p())
            }
            (Loss::Mse, Target::Values(target)) => mean(prediction, target, |x, t| (x - t) * (x - t)),
            _ => panic!("bug: the target's kind was checked against the loss"),
        }
    }

    /// Whether one sample is predicted right, for losses where that means something.
    pub(crate) fn is_correct(self, prediction: &[f32], target: Target<'_>) -> Option<bool> {
        match (self, target) {
            (Loss::CrossEntropy, Target::Label(label)) => {
                let mut best = 0;
                for (i, x) in prediction.iter().enumerate() {
                    if *x > prediction[best] {
                        best = i;
                    }
                }
                Some(best == label as usize)
            }
            (Loss::BceWithLogits, Target::Values(target)) => {
                Some(prediction.iter().zip(target).all(|(&x, &t)| (x > 0.0) == (t > 0.5)))
            }
            _ => None,
        }
    }
}

/// The target of one sample.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'a> {
    Label(u32),
    Values(&'a [f32]),
}

fn mean(prediction: &[f32], target: &[f32], f: impl Fn(f64, f64) -> f64) -> f64 {
    let sum: f64 = prediction.iter().zip(target).map(|(&x, &t)| f(f64::from(x), f64::from(t))).sum();
    sum / prediction.len() as f64
}

/// How parameters follow their gradients. Defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd {
        /// Learning rate.
        lr: f64,
        /// Share of the last step's direction that is kept.
        #[serde(default)]
        momentum: f64,
        /// Nesterov's form of momentum.
        #[serde(default)]
        nesterov: bool,
        /// L2 penalty.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Adam, with weight decay as an L2 penalty.
    Adam {
        /// Learning rate.
        lr: f64,
        /// Decay of the running moments.
        #[serde(default = "default_betas")]
        betas: (f64, f64),
        /// Added to the denominator.
        #[serde(default = "default_eps")]
        eps: f64,
        /// L2 penalty.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Adam with decoupled weight decay.
    Adamw {
        /// Learning rate.
        lr: f64,
        /// Decay of the running moments.
        #[serde(default = "default_betas")]
        betas: (f64, f64),
        /// Added to the denominator.
        #[serde(default = "default_eps")]
        eps: f64,
        /// Share of a parameter that is taken away each step, times the learning rate.
        #[serde(default = "default_decoupled_decay")]
        weight_decay: f64,
    },
}

fn default_betas() -> (f64, f64) {
    (0.9, 0.999)
}

fn default_eps() -> f64 {
    1e-8
}

fn default_decoupled_decay() -> f64 {
    0.01
}

impl Optimizer {
    /// SGD without momentum.
    pub fn sgd(lr: f64) -> Self {
        Optimizer::Sgd { lr, momentum: 0.0, nesterov: false, weight_decay: 0.0 }
    }

    /// Adam with PyTorch's defaults.
    pub fn adam(lr: f64) -> Self {
        Optimizer::Adam { lr, betas: default_betas(), eps: default_eps(), weight_decay: 0.0 }
    }

    /// AdamW with PyTorch's defaults.
    pub fn adamw(lr: f64) -> Self {
        Optimizer::Adamw { lr, betas: default_betas(), eps: default_eps(), weight_decay: default_decoupled_decay() }
    }

    /// The optimizer as ops of the graph.
    ///
    /// # Errors
    /// Where a setting makes no sense.
    pub fn rule(&self) -> Result<Arc<dyn UpdateRule>, TrainError> {
        let non_negative = |name: &str, value: f64| {
            if value.is_finite() && value >= 0.0 {
                Ok(())
            } else {
                Err(TrainError::Setting(format!("{name} = {value} is not possible: it must be 0 or more")))
            }
        };
        let below_one = |name: &str, value: f64| {
            if (0.0..1.0).contains(&value) {
                Ok(())
            } else {
                Err(TrainError::Setting(format!("{name} = {value} is not possible: it must be in 0..1")))
            }
        };
        Ok(match *self {
            Optimizer::Sgd { lr, momentum, nesterov, weight_decay } => {
                non_negative("lr", lr)?;
                below_one("momentum", momentum)?;
                non_negative("weight_decay", weight_decay)?;
                if nesterov && momentum == 0.0 {
                    return Err(TrainError::Setting("nesterov needs a momentum above 0".to_owned()));
                }
                Arc::new(Sgd { lr, momentum, nesterov, weight_decay })
            }
            Optimizer::Adam { lr, betas, eps, weight_decay } | Optimizer::Adamw { lr, betas, eps, weight_decay } => {
                non_negative("lr", lr)?;
                below_one("betas.0", betas.0)?;
                below_one("betas.1", betas.1)?;
                non_negative("eps", eps)?;
                non_negative("weight_decay", weight_decay)?;
                let decoupled = matches!(self, Optimizer::Adamw { .. });
                Arc::new(Adam { lr, betas, eps, weight_decay, decoupled })
            }
        })
    }
}

impl Default for Optimizer {
    fn default() -> Self {
        Optimizer::adam(1e-3)
    }
}

/// Settings of a training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// What is minimised.
    pub loss: Loss,
    /// How parameters follow their gradients.
    pub optimizer: Optimizer,
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
