//! Pooling to a given size, or to one number.

use serde::{Deserialize, Serialize};

use crate::error::GraphError;
use crate::nn::layers::conv::{as_rows, as_sequences};
use crate::nn::layers::settings::{NoSettings, no_settings};
use crate::nn::layers::{Module, Pair};
use crate::nn::scope::Scope;
use crate::ops::pool::adaptive_avg_pool2d::AdaptiveAvgPool2d as AdaptiveAvgPool2dOp;
use crate::ops::reduce::amax::Amax;
use crate::ops::shape::reshape::Reshape;
use crate::tensor::ValueId;

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

/// The mean of each of a given number of bins, however long the sequence is, for samples `[channels, length]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveAvgPool1d {
    size: usize,
}

impl AdaptiveAvgPool1d {
    /// Makes sequences of this length.
    pub fn new(size: usize) -> Self {
        AdaptiveAvgPool1d { size }
    }
}

impl Module for AdaptiveAvgPool1d {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        scope.check_setting("size", self.size, 1)?;
        let rows = as_rows(scope, input)?;
        let means = scope.apply(AdaptiveAvgPool2dOp { output: [1, self.size] }, &[rows])?;
        as_sequences(scope, means)
    }
}

/// The mean of each channel, `[channels]`, for samples `[channels, height, width]`, `[channels, length]` or
/// `[channels, depth, height, width]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "NoSettings", into = "NoSettings")]
pub struct GlobalAvgPool;

no_settings!(GlobalAvgPool);

impl Module for GlobalAvgPool {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let shape = scope.shape(input);
        let (samples, channels) = channels_of(scope, &shape)?;
        let planes = if shape.len() == 4 { input } else { as_rows_of_all(scope, input, &shape)? };
        let means = scope.apply(AdaptiveAvgPool2dOp { output: [1, 1] }, &[planes])?;
        scope.apply(Reshape { shape: [samples, channels].into() }, &[means])
    }
}

/// The largest element of each channel, `[channels]`, for samples `[channels, height, width]`, `[channels, length]` or
/// `[channels, depth, height, width]`. Equal ones share the gradient, as in PyTorch's `amax`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "NoSettings", into = "NoSettings")]
pub struct GlobalMaxPool;

no_settings!(GlobalMaxPool);

impl Module for GlobalMaxPool {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let shape = scope.shape(input);
        channels_of(scope, &shape)?;
        scope.apply(Amax { axes: (2..shape.len()).collect(), keepdim: false }, &[input])
    }
}

/// Samples and their channels.
fn channels_of(scope: &Scope<'_>, shape: &[usize]) -> Result<(usize, usize), GraphError> {
    if let [samples, channels, _] | [samples, channels, _, _] | [samples, channels, _, _, _] = shape[..] {
        return Ok((samples, channels));
    }
    let expected =
        "a sample of shape [channels, height, width] or [channels, length] or [channels, depth, height, width]";
    Err(scope.wrong_input(expected, shape, ""))
}

/// Channels as images of height 1.
fn as_rows_of_all(scope: &mut Scope<'_>, input: ValueId, shape: &[usize]) -> Result<ValueId, GraphError> {
    let length = shape[2..].iter().product();
    scope.apply(Reshape { shape: [shape[0], shape[1], 1, length].into() }, &[input])
}
