use serde::{Deserialize, Serialize};

use super::{Init, Module, Scope};
use crate::error::GraphError;
use crate::ops;
use crate::ops::elementwise::gelu::GeluForm;
use crate::ops::reduce::log_softmax::LogSoftmax as LogSoftmaxOp;
use crate::ops::reduce::softmax::Softmax as SoftmaxOp;
use crate::tensor::ValueId;

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
