use serde::{Deserialize, Serialize};

use super::pool::GlobalAvgPool;
use super::shape::Flatten;
use super::{Init, Module, Scope};
use crate::error::GraphError;
use crate::ops;
use crate::ops::elementwise::gelu::GeluForm;
use crate::ops::reduce::log_softmax::LogSoftmax as LogSoftmaxOp;
use crate::ops::reduce::softmax::Softmax as SoftmaxOp;
use crate::tensor::{ValueId, format_number};

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
    Relu => ops::elementwise::relu::Relu;
    /// `1 / (1 + exp(-x))`
    Sigmoid => ops::elementwise::sigmoid::Sigmoid;
    /// `min(max(x, 0), 6)`
    Relu6 => ops::elementwise::clamp::Clamp::RELU6;
    /// `min(max(x + 3, 0), 6) / 6`
    HardSigmoid => ops::elementwise::hard_sigmoid::HardSigmoid;
    /// `tanh(x)`
    Tanh => ops::elementwise::tanh::Tanh;
    /// `x · sigmoid(x)`
    Silu => ops::elementwise::silu::Silu;
    /// `x · min(max(x + 3, 0), 6) / 6`
    HardSwish => ops::elementwise::hard_swish::HardSwish;
}

macro_rules! with_numbers {
    ($(
        $(#[$meta:meta])*
        $name:ident { $($(#[$field_meta:meta])* $field:ident = $default:literal),* } => $op:expr;
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($field: f32,)*
        }

        impl Default for $name {
            #[doc = concat!($("`", stringify!($field), " = ", stringify!($default), "` ",)*)]
            fn default() -> Self {
                $name { $($field: $default,)* }
            }
        }

        impl $name {
            /// With these settings.
            pub fn new($($field: f32),*) -> Self {
                $name { $($field,)* }
            }
        }

        impl Module for $name {
            fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
                $(if !self.$field.is_finite() {
                    let found = format_number(self.$field);
                    return Err(scope.error(format!("{} must be a number, found {found}", stringify!($field))));
                })*
                let op: fn(&$name) -> _ = $op;
                scope.apply(op(self), &[input])
            }
        }
    )*};
}

with_numbers! {
    /// `x` where positive, else `slope · x`.
    LeakyRelu { slope = 0.01 } => |layer| ops::elementwise::leaky_relu::LeakyRelu { slope: layer.slope };
    /// `x` where positive, else `alpha · (eˣ − 1)`.
    Elu { alpha = 1.0 } => |layer| ops::elementwise::elu::Elu { alpha: layer.alpha };
    /// `ln(1 + exp(beta · x)) / beta`, or `x` where `beta · x` is above the threshold.
    Softplus { beta = 1.0, threshold = 20.0 } =>
        |layer| ops::elementwise::softplus::Softplus { beta: layer.beta, threshold: layer.threshold };
    /// `min(max(x, min), max)`: PyTorch's `Hardtanh`.
    Hardtanh { min = -1.0, max = 1.0 } => |layer| ops::elementwise::clamp::Clamp { min: layer.min, max: layer.max };
}

/// `x` where positive, else `weight · x` with a trained weight, which starts as 0.25.
///
/// Parameters: `weight [1]`, or one for each channel: `weight [channels]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prelu {
    per_channel: bool,
}

impl Prelu {
    /// One weight.
    pub fn new() -> Self {
        Prelu::default()
    }

    /// Whether each channel has a weight of its own (no by default).
    #[must_use]
    pub fn per_channel(mut self, per_channel: bool) -> Self {
        self.per_channel = per_channel;
        self
    }
}

impl Module for Prelu {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let weights = if self.per_channel { scope.shape(input)[1] } else { 1 };
        let weight = scope.parameter("weight", [weights], Init::Constant { value: 0.25 })?;
        scope.apply(ops::elementwise::prelu::Prelu, &[input, weight])
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
        scope.apply(ops::elementwise::gelu::Gelu { approximate }, &[input])
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
