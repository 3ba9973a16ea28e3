use serde::{Deserialize, Serialize};

use super::pool::GlobalAvgPool;
use super::shape::Flatten;
use super::{Module, Scope};
use crate::error::GraphError;
use crate::ops;
use crate::ops::gelu::GeluForm;
use crate::ops::log_softmax::LogSoftmax as LogSoftmaxOp;
use crate::ops::softmax::Softmax as SoftmaxOp;
use crate::tensor::ValueId;

/// What a layer without settings looks like in a file: nothing but its kind.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoSettings {}

macro_rules! plain {
    ($($(#[$meta:meta])* $name:ident => $op:expr;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(from = "NoSettings", into = "NoSettings")]
        pub struct $name;

        impl Module for $name {
            fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
                scope.apply($op, &[input])
            }
        }
    )*
        no_settings!($($name,)* Flatten, GlobalAvgPool,);
    };
}

macro_rules! no_settings {
    ($($name:ident,)*) => {$(
        impl From<NoSettings> for $name {
            fn from(_: NoSettings) -> Self {
                $name
            }
        }
        impl From<$name> for NoSettings {
            fn from(_: $name) -> Self {
                NoSettings {}
            }
        }
    )*};
}

plain! {
    /// `max(x, 0)`
    Relu => ops::relu::Relu;
    /// `1 / (1 + exp(-x))`
    Sigmoid => ops::sigmoid::Sigmoid;
    /// `tanh(x)`
    Tanh => ops::tanh::Tanh;
    /// `x · sigmoid(x)`
    Silu => ops::silu::Silu;
    /// `x · min(max(x + 3, 0), 6) / 6`
    HardSwish => ops::hard_swish::HardSwish;
}

/// `x` where positive, else `slope · x`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LeakyRelu {
    slope: f32,
}

impl Default for LeakyRelu {
    /// Slope 0.01.
    fn default() -> Self {
        LeakyRelu { slope: 0.01 }
    }
}

impl LeakyRelu {
    /// This slope below zero.
    pub fn new(slope: f32) -> Self {
        LeakyRelu { slope }
    }
}

impl Module for LeakyRelu {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        if !self.slope.is_finite() {
            return Err(scope.error(format!("slope must be a number, found {}", self.slope)));
        }
        scope.apply(ops::leaky_relu::LeakyRelu { slope: self.slope }, &[input])
    }
}

/// Gaussian error linear unit: `x · Φ(x)`, exact or in the tanh form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gelu {
    tanh: bool,
}

impl Gelu {
    /// The exact form.
    pub fn new() -> Self {
        Gelu::default()
    }

    /// Whether to use the tanh form (no by default).
    #[must_use]
    pub fn tanh(mut self, tanh: bool) -> Self {
        self.tanh = tanh;
        self
    }
}

impl Module for Gelu {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let approximate = if self.tanh { GeluForm::Tanh } else { GeluForm::Erf };
        scope.apply(ops::gelu::Gelu { approximate }, &[input])
    }
}

macro_rules! over_axis {
    ($($(#[$meta:meta])* $name:ident => $op:expr;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            axis: isize,
        }

        impl Default for $name {
            /// Over the last axis.
            fn default() -> Self {
                $name { axis: -1 }
            }
        }

        impl $name {
            /// Over this axis of the sample (the batch axis is not counted; negative counts from the end).
            pub fn new(axis: isize) -> Self {
                $name { axis }
            }
        }

        impl Module for $name {
            fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
                let axis = scope.axis(self.axis, &scope.shape(input))?;
                scope.apply($op(axis), &[input])
            }
        }
    )*};
}

over_axis! {
    /// `exp(x) / Σ exp(x)` along an axis. The cross-entropy loss applies it itself: end a classifier with its scores.
    Softmax => |axis| SoftmaxOp { axis, causal: false };
    /// `x - log Σ exp(x)` along an axis.
    LogSoftmax => |axis| LogSoftmaxOp { axis };
}
