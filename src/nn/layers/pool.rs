use serde::{Deserialize, Serialize};

use super::conv::zero;
use super::settings::{NoSettings, no_settings};
use super::{Module, Pair, Scope};
use crate::error::GraphError;
use crate::ops::pool::adaptive_avg_pool2d::AdaptiveAvgPool2d as AdaptiveAvgPool2dOp;
use crate::ops::pool::avg_pool2d::AvgPool2d as AvgPool2dOp;
use crate::ops::pool::max_pool2d::MaxPool2d as MaxPool2dOp;
use crate::ops::shape::reshape::Reshape;
use crate::tensor::ValueId;

macro_rules! pool {
    ($name:ident, $doc:literal, $op:ident) => {
        #[doc = $doc]
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            kernel: Pair,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            stride: Option<Pair>,
            #[serde(default = "zero")]
            padding: Pair,
        }

        impl $name {
            /// Windows of this size; the stride equals the window, no padding.
            pub fn new(kernel: impl Into<Pair>) -> Self {
                $name { kernel: kernel.into(), stride: None, padding: zero() }
            }

            /// Steps between windows.
            #[must_use]
            pub fn stride(mut self, stride: impl Into<Pair>) -> Self {
                self.stride = Some(stride.into());
                self
            }

            /// Border added on each side, at most half the window.
            #[must_use]
            pub fn padding(mut self, padding: impl Into<Pair>) -> Self {
                self.padding = padding.into();
                self
            }
        }

        impl Module for $name {
            fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
                let stride = self.stride.unwrap_or(self.kernel);
                check(scope, input, self.kernel, stride, self.padding)?;
                let op = $op { kernel: self.kernel.into(), stride: stride.into(), padding: self.padding.into() };
                scope.apply(op, &[input])
            }
        }
    };
}

pool!(MaxPool2d, "The largest value of each window, for samples `[channels, height, width]`.", MaxPool2dOp);
pool!(
    AvgPool2d,
    "The mean of each window (padding counts as zeros), for samples `[channels, height, width]`.",
    AvgPool2dOp
);

/// The mean of each of a given number of bins, whatever the size of the image, for samples `[channels, height, width]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveAvgPool2d {
    size: Pair,
}

impl AdaptiveAvgPool2d {
    /// Makes images of this size.
    pub fn new(size: impl Into<Pair>) -> Self {
        AdaptiveAvgPool2d { size: size.into() }
    }
}

impl Module for AdaptiveAvgPool2d {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        scope.check_pair("size", self.size, 1)?;
        let shape = scope.shape(input);
        if shape.len() != 4 {
            return Err(scope.wrong_input("a sample of shape [channels, height, width]", &shape, ""));
        }
        scope.apply(AdaptiveAvgPool2dOp { output: self.size.into() }, &[input])
    }
}

/// The mean of each channel, `[channels]`, for samples `[channels, height, width]` or `[channels, length]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "NoSettings", into = "NoSettings")]
pub struct GlobalAvgPool;

no_settings!(GlobalAvgPool);

impl Module for GlobalAvgPool {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let shape = scope.shape(input);
        let mut planes = input;
        match shape[..] {
            [_, _, _, _] => {}
            [samples, channels, length] => {
                planes = scope.apply(Reshape { shape: [samples, channels, 1, length].into() }, &[input])?;
            }
            _ => {
                let expected = "a sample of shape [channels, height, width] or [channels, length]";
                return Err(scope.wrong_input(expected, &shape, ""));
            }
        }
        let means = scope.apply(AdaptiveAvgPool2dOp { output: [1, 1] }, &[planes])?;
        scope.apply(Reshape { shape: shape[..2].into() }, &[means])
    }
}

fn check(scope: &Scope<'_>, input: ValueId, kernel: Pair, stride: Pair, padding: Pair) -> Result<(), GraphError> {
    scope.check_pair("kernel", kernel, 1)?;
    scope.check_pair("stride", stride, 1)?;
    scope.check_pair("padding", padding, 0)?;
    let shape = scope.shape(input);
    let [_, _, height, width] = shape[..] else {
        return Err(scope.wrong_input("a sample of shape [channels, height, width]", &shape, ""));
    };
    for (size, kernel, padding, word) in [(height, kernel.0, padding.0, "high"), (width, kernel.1, padding.1, "wide")] {
        if padding > kernel / 2 {
            return Err(scope.error(format!("padding {padding} must be at most half the window of {kernel}")));
        }
        if kernel > size + 2 * padding {
            return Err(scope.error(format!("a window {kernel} {word} does not fit an image {size} {word}")));
        }
    }
    Ok(())
}
