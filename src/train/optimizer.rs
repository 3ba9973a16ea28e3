//! How parameters follow their gradients.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::ops::UpdateRule;
use crate::ops::optim::adafactor::Adafactor;
use crate::ops::optim::adagrad::Adagrad;
use crate::ops::optim::adam::Adam;
use crate::ops::optim::adam8bit::Adam8bit;
use crate::ops::optim::lamb::Lamb;
use crate::ops::optim::lion::Lion;
use crate::ops::optim::rmsprop::RmsProp;
use crate::ops::optim::sgd::Sgd;

/// The smallest number above 0 that kernels, which compute in single precision, hold in full.
const LEAST: f64 = f32::MIN_POSITIVE as f64;

/// How parameters follow their gradients. Defaults are PyTorch's where it has the optimizer, else the paper's.
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
        #[serde(default = "default::betas")]
        betas: (f64, f64),
        /// Added to the denominator; above 0.
        #[serde(default = "default::eps")]
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
        #[serde(default = "default::betas")]
        betas: (f64, f64),
        /// Added to the denominator; above 0.
        #[serde(default = "default::eps")]
        eps: f64,
        /// Share of a parameter that is taken away each step, times the learning rate.
        #[serde(default = "default::decoupled_decay")]
        weight_decay: f64,
    },
    /// Adam with moments of 8 bits: a quarter of its state.
    Adam8bit {
        /// Learning rate.
        lr: f64,
        /// Decay of the running moments.
        #[serde(default = "default::betas")]
        betas: (f64, f64),
        /// Added to the denominator; above 0.
        #[serde(default = "default::eps")]
        eps: f64,
        /// L2 penalty.
        #[serde(default)]
        weight_decay: f64,
        /// Parameters of fewer elements have moments of 32 bits.
        #[serde(default = "default::min_8bit_size")]
        min_8bit_size: usize,
    },
    /// Adam with decoupled weight decay and moments of 8 bits.
    Adamw8bit {
        /// Learning rate.
        lr: f64,
        /// Decay of the running moments.
        #[serde(default = "default::betas")]
        betas: (f64, f64),
        /// Added to the denominator; above 0.
        #[serde(default = "default::eps")]
        eps: f64,
        /// Share of a parameter that is taken away each step, times the learning rate.
        #[serde(default = "default::decoupled_decay")]
        weight_decay: f64,
        /// Parameters of fewer elements have moments of 32 bits.
        #[serde(default = "default::min_8bit_size")]
        min_8bit_size: usize,
    },
    /// RMSprop: gradients by their root mean square.
    Rmsprop {
        /// Learning rate.
        lr: f64,
        /// Decay of the running means.
        #[serde(default = "default::alpha")]
        alpha: f64,
        /// Added to the denominator; above 0.
        #[serde(default = "default::eps")]
        eps: f64,
        /// Share of the last step's direction that is kept.
        #[serde(default)]
        momentum: f64,
        /// Whether gradients are divided by their standard deviation instead.
        #[serde(default)]
        centered: bool,
        /// L2 penalty.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Adagrad: gradients by the root of the sum of all squares so far.
    Adagrad {
        /// Learning rate.
        lr: f64,
        /// How fast it shrinks.
        #[serde(default)]
        lr_decay: f64,
        /// What the sums begin with.
        #[serde(default)]
        initial_accumulator_value: f64,
        /// Added to the denominator; above 0 unless the sums begin above 0.
        #[serde(default = "default::adagrad_eps")]
        eps: f64,
        /// L2 penalty.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Lion: the sign of a running mean; half of Adam's state.
    Lion {
        /// Learning rate.
        lr: f64,
        /// Share of the running mean in the direction, and its decay.
        #[serde(default = "default::lion_betas")]
        betas: (f64, f64),
        /// Share of a parameter that is taken away each step, times the learning rate.
        #[serde(default)]
        weight_decay: f64,
    },
    /// LAMB: Adam's direction with a step as long as the parameter, for large batches.
    Lamb {
        /// Learning rate.
        lr: f64,
        /// Decay of the running moments.
        #[serde(default = "default::betas")]
        betas: (f64, f64),
        /// Added to the denominator; above 0.
        #[serde(default = "default::lamb_eps")]
        eps: f64,
        /// Share of the parameter that is added to the direction.
        #[serde(default = "default::decoupled_decay")]
        weight_decay: f64,
    },
    /// Adafactor: second moments of a matrix's rows and columns instead of all its elements; hardly any state.
    Adafactor {
        /// Learning rate: a bound of the relative step.
        lr: f64,
        /// How the weight of the newest gradient falls with the step.
        #[serde(default = "default::beta2_decay")]
        beta2_decay: f64,
        /// Least root of a second moment, above 0; least root mean square of a parameter.
        #[serde(default = "default::adafactor_eps")]
        eps: (f64, f64),
        /// Largest root mean square of an update.
        #[serde(default = "default::d")]
        d: f64,
        /// Share of a parameter that is taken away each step, times the learning rate.
        #[serde(default)]
        weight_decay: f64,
    },
}

/// Defaults of settings.
mod default {
    pub(super) fn betas() -> (f64, f64) {
        (0.9, 0.999)
    }

    pub(super) fn eps() -> f64 {
        1e-8
    }

    pub(super) fn min_8bit_size() -> usize {
        4096
    }

    pub(super) fn decoupled_decay() -> f64 {
        0.01
    }

    pub(super) fn alpha() -> f64 {
        0.99
    }

    pub(super) fn adagrad_eps() -> f64 {
        1e-10
    }

    pub(super) fn lion_betas() -> (f64, f64) {
        (0.9, 0.99)
    }

    pub(super) fn lamb_eps() -> f64 {
        1e-6
    }

    pub(super) fn beta2_decay() -> f64 {
        -0.8
    }

    pub(super) fn adafactor_eps() -> (f64, f64) {
        (f64::from(f32::EPSILON), 1e-3)
    }

    pub(super) fn d() -> f64 {
        1.0
    }
}

/// A kind of optimizer, as users see it.
#[derive(Clone, Copy, Debug)]
pub struct OptimizerKind {
    /// What model files and the command line write.
    pub kind: &'static str,
    /// The keys of its table besides `lr` and `weight_decay`, with their defaults.
    pub settings: &'static str,
    /// How many numbers it keeps for each parameter.
    pub state: &'static str,
    /// It with its usual learning rate and defaults.
    pub usual: fn() -> Optimizer,
}

/// The registry of optimizers: one entry each, from which follow what the command line takes and the table of the
/// documentation.
macro_rules! registry {
    ($($variant:ident = $kind:literal, settings $settings:literal, state $state:literal, usual $usual:expr;)*) => {
        impl Optimizer {
            /// All kinds.
            pub const KINDS: &[OptimizerKind] =
                &[$(OptimizerKind { kind: $kind, settings: $settings, state: $state, usual: || $usual }),*];

            /// Its kind as a model file writes it.
            pub fn kind(&self) -> &'static str {
                match self { $(Optimizer::$variant { .. } => $kind,)* }
            }
        }
    };
}

registry! {
    Sgd = "sgd", settings "`momentum` (0), `nesterov` (false)", state "none; 1 with momentum", usual Optimizer::sgd(1e-2);
    Adam = "adam", settings "`betas` ([0.9, 0.999]), `eps` (1e-8)", state "2", usual Optimizer::adam(1e-3);
    Adamw = "adamw", settings "`betas` ([0.9, 0.999]), `eps` (1e-8)", state "2", usual Optimizer::adamw(1e-3);
    Adam8bit = "adam8bit", settings "`betas` ([0.9, 0.999]), `eps` (1e-8), `min_8bit_size` (4096)", state "2 of a byte",
        usual Optimizer::adam8bit(1e-3);
    Adamw8bit = "adamw8bit", settings "`betas` ([0.9, 0.999]), `eps` (1e-8), `min_8bit_size` (4096)", state "2 of a byte",
        usual Optimizer::adamw8bit(1e-3);
    Rmsprop = "rmsprop", settings "`alpha` (0.99), `eps` (1e-8), `momentum` (0), `centered` (false)", state "1 to 3",
        usual Optimizer::rmsprop(1e-2);
    Adagrad = "adagrad", settings "`lr_decay` (0), `initial_accumulator_value` (0), `eps` (1e-10)", state "1",
        usual Optimizer::adagrad(1e-2);
    Lion = "lion", settings "`betas` ([0.9, 0.99])", state "1", usual Optimizer::lion(1e-4);
    Lamb = "lamb", settings "`betas` ([0.9, 0.999]), `eps` (1e-6)", state "2", usual Optimizer::lamb(1e-3);
    Adafactor = "adafactor", settings "`beta2_decay` (-0.8), `eps` ([1.2e-7, 0.001]), `d` (1)",
        state "a row and a column of a matrix", usual Optimizer::adafactor(1e-2);
}

/// As model files write it, without its settings.
impl fmt::Display for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

impl Optimizer {
    /// SGD without momentum.
    pub fn sgd(lr: f64) -> Self {
        Optimizer::Sgd { lr, momentum: 0.0, nesterov: false, weight_decay: 0.0 }
    }

    /// Adam with PyTorch's defaults.
    pub fn adam(lr: f64) -> Self {
        Optimizer::Adam { lr, betas: default::betas(), eps: default::eps(), weight_decay: 0.0 }
    }

    /// AdamW with PyTorch's defaults.
    pub fn adamw(lr: f64) -> Self {
        Optimizer::Adamw { lr, betas: default::betas(), eps: default::eps(), weight_decay: default::decoupled_decay() }
    }

    /// Adam with moments of 8 bits, and the defaults of PyTorch and bitsandbytes.
    pub fn adam8bit(lr: f64) -> Self {
        let (betas, eps, min_8bit_size) = (default::betas(), default::eps(), default::min_8bit_size());
        Optimizer::Adam8bit { lr, betas, eps, weight_decay: 0.0, min_8bit_size }
    }

    /// AdamW with moments of 8 bits, and the defaults of PyTorch and bitsandbytes.
    pub fn adamw8bit(lr: f64) -> Self {
        let (betas, eps, min_8bit_size) = (default::betas(), default::eps(), default::min_8bit_size());
        Optimizer::Adamw8bit { lr, betas, eps, weight_decay: default::decoupled_decay(), min_8bit_size }
    }

    /// RMSprop with PyTorch's defaults.
    pub fn rmsprop(lr: f64) -> Self {
        let (alpha, eps) = (default::alpha(), default::eps());
        Optimizer::Rmsprop { lr, alpha, eps, momentum: 0.0, centered: false, weight_decay: 0.0 }
    }

    /// Adagrad with PyTorch's defaults.
    pub fn adagrad(lr: f64) -> Self {
        let eps = default::adagrad_eps();
        Optimizer::Adagrad { lr, lr_decay: 0.0, initial_accumulator_value: 0.0, eps, weight_decay: 0.0 }
    }

    /// Lion with the paper's defaults, without weight decay.
    pub fn lion(lr: f64) -> Self {
        Optimizer::Lion { lr, betas: default::lion_betas(), weight_decay: 0.0 }
    }

    /// LAMB with the paper's defaults.
    pub fn lamb(lr: f64) -> Self {
        let weight_decay = default::decoupled_decay();
        Optimizer::Lamb { lr, betas: default::betas(), eps: default::lamb_eps(), weight_decay }
    }

    /// Adafactor with PyTorch's defaults.
    pub fn adafactor(lr: f64) -> Self {
        let (beta2_decay, eps, d) = (default::beta2_decay(), default::adafactor_eps(), default::d());
        Optimizer::Adafactor { lr, beta2_decay, eps, d, weight_decay: 0.0 }
    }

    /// The learning rate.
    pub fn lr_mut(&mut self) -> &mut f64 {
        match self {
            Optimizer::Sgd { lr, .. }
            | Optimizer::Adam { lr, .. }
            | Optimizer::Adamw { lr, .. }
            | Optimizer::Adam8bit { lr, .. }
            | Optimizer::Adamw8bit { lr, .. }
            | Optimizer::Rmsprop { lr, .. }
            | Optimizer::Adagrad { lr, .. }
            | Optimizer::Lion { lr, .. }
            | Optimizer::Lamb { lr, .. }
            | Optimizer::Adafactor { lr, .. } => lr,
        }
    }

    /// The weight decay.
    pub fn weight_decay_mut(&mut self) -> &mut f64 {
        match self {
            Optimizer::Sgd { weight_decay, .. }
            | Optimizer::Adam { weight_decay, .. }
            | Optimizer::Adamw { weight_decay, .. }
            | Optimizer::Adam8bit { weight_decay, .. }
            | Optimizer::Adamw8bit { weight_decay, .. }
            | Optimizer::Rmsprop { weight_decay, .. }
            | Optimizer::Adagrad { weight_decay, .. }
            | Optimizer::Lion { weight_decay, .. }
            | Optimizer::Lamb { weight_decay, .. }
            | Optimizer::Adafactor { weight_decay, .. } => weight_decay,
        }
    }

    /// The momentum, of optimizers that have one.
    pub fn momentum_mut(&mut self) -> Option<&mut f64> {
        match self {
            Optimizer::Sgd { momentum, .. } | Optimizer::Rmsprop { momentum, .. } => Some(momentum),
            _ => None,
        }
    }

    /// The optimizer as ops of the graph.
    ///
    /// # Errors
    /// Where a setting makes no sense.
    pub fn rule(&self) -> Result<Arc<dyn UpdateRule>, TrainError> {
        let mut settings = *self;
        let lr = *settings.lr_mut();
        non_negative("lr", lr)?;
        if lr > 0.0 && lr < LEAST {
            let least = "it must be 0, or at least 1.2e-38, the smallest number above 0 that single precision holds";
            return Err(TrainError::Setting(format!("lr = {lr:?} is not possible: {least}")));
        }
        non_negative("weight_decay", *settings.weight_decay_mut())?;
        non_negative("lr · weight_decay", *settings.lr_mut() * *settings.weight_decay_mut())?;
        if let Some(momentum) = settings.momentum_mut() {
            below_one("momentum", *momentum)?;
        }
        let check_moments = |betas: (f64, f64), eps: f64| {
            below_one("betas.0", betas.0)?;
            below_one("betas.1", betas.1)?;
            divisor("eps", eps, LEAST)
        };
        Ok(match *self {
            Optimizer::Sgd { momentum, nesterov, weight_decay, .. } => {
                if nesterov && momentum == 0.0 {
                    return Err(TrainError::Setting("nesterov needs a momentum above 0".to_owned()));
                }
                Arc::new(Sgd { momentum, nesterov, weight_decay })
            }
            Optimizer::Adam { betas, eps, weight_decay, .. } | Optimizer::Adamw { betas, eps, weight_decay, .. } => {
                check_moments(betas, eps)?;
                let decoupled = matches!(self, Optimizer::Adamw { .. });
                Arc::new(Adam { betas, eps, weight_decay, decoupled })
            }
            Optimizer::Adam8bit { betas, eps, weight_decay, min_8bit_size, .. }
            | Optimizer::Adamw8bit { betas, eps, weight_decay, min_8bit_size, .. } => {
                check_moments(betas, eps)?;
                let decoupled = matches!(self, Optimizer::Adamw8bit { .. });
                Arc::new(Adam8bit { adam: Adam { betas, eps, weight_decay, decoupled }, min_8bit_size })
            }
            Optimizer::Rmsprop { alpha, eps, momentum, centered, weight_decay, .. } => {
                below_one("alpha", alpha)?;
                divisor("eps", eps, LEAST)?;
                Arc::new(RmsProp { alpha, eps, weight_decay, momentum, centered })
            }
            Optimizer::Adagrad { lr_decay, initial_accumulator_value, eps, weight_decay, .. } => {
                non_negative("lr_decay", lr_decay)?;
                non_negative("initial_accumulator_value", initial_accumulator_value)?;
                // Sums that begin above 0 are no less at any time.
                let is_enough = initial_accumulator_value >= LEAST;
                if is_enough {
                    non_negative("eps", eps)?;
                } else {
                    divisor("eps", eps, LEAST)?;
                }
                Arc::new(Adagrad { lr_decay, weight_decay, initial_accumulator_value, eps })
            }
            Optimizer::Lion { betas, weight_decay, .. } => {
                below_one("betas.0", betas.0)?;
                below_one("betas.1", betas.1)?;
                Arc::new(Lion { betas, weight_decay })
            }
            Optimizer::Lamb { betas, eps, weight_decay, .. } => {
                check_moments(betas, eps)?;
                Arc::new(Lamb { betas, eps, weight_decay })
            }
            Optimizer::Adafactor { beta2_decay, eps, d, weight_decay, .. } => {
                // A second moment is at least its square.
                divisor("eps.0", eps.0, LEAST.sqrt())?;
                non_negative("eps.1", eps.1)?;
                let possible = |is_possible: bool, name: &str, value: f64, needed: &str| {
                    let text = || format!("{name} = {value:?} is not possible: it must be {needed}");
                    if is_possible { Ok(()) } else { Err(TrainError::Setting(text())) }
                };
                possible((f64::from(f32::MIN)..=0.0).contains(&beta2_decay), "beta2_decay", beta2_decay, "0 or less")?;
                possible((1.0..=f64::from(f32::MAX)).contains(&d), "d", d, "1 or more")?;
                Arc::new(Adafactor { beta2_decay, eps, d, weight_decay })
            }
        })
    }
}

pub(super) fn non_negative(name: &str, value: f64) -> Result<(), TrainError> {
    // Kernels compute in single precision.
    if value >= 0.0 && value <= f64::from(f32::MAX) {
        return Ok(());
    }
    let limit = if value > 0.0 { " and at most 3.4e38, the largest number of single precision" } else { "" };
    Err(TrainError::Setting(format!("{name} = {value:?} is not possible: it must be 0 or more{limit}")))
}

/// What a gradient is divided by where all gradients so far were 0: by nothing, that would be no number.
fn divisor(name: &str, value: f64, least: f64) -> Result<(), TrainError> {
    non_negative(name, value)?;
    if value >= least {
        return Ok(());
    }
    Err(TrainError::Setting(format!(
        "{name} = {value:?} is not possible: it must be at least {least:.1e}, or a gradient of 0 is divided by 0 in single \
         precision; 1e-8 is usual"
    )))
}

fn below_one(name: &str, value: f64) -> Result<(), TrainError> {
    if (0.0..1.0).contains(&value) {
        return Ok(());
    }
    Err(TrainError::Setting(format!("{name} = {value:?} is not possible: it must be in 0..1")))
}

impl Default for Optimizer {
    fn default() -> Self {
        Optimizer::adam(1e-3)
    }
}
