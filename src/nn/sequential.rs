//! A model as a chain of layers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::layers::*;
use super::model::{Built, Input, Mode, Model};
use crate::error::GraphError;
use crate::tensor::Shape;

/// Layers one after the other. Connections past layers go through [`Skip`] and [`Concat`] or [`Add`].
///
/// Layers are named by kind and ordinal, as in `conv1`, `conv2`, `linear1`, and parameters by layer as PyTorch writes
/// them, as in `conv1.weight`. Shapes never include the batch axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sequential {
    name: String,
    input: Input,
    layers: Vec<Layer>,
}

impl Sequential {
    /// A model without layers, for samples of this shape.
    pub fn new(name: impl Into<String>, input: impl Into<Input>) -> Self {
        Sequential { name: name.into(), input: input.into(), layers: Vec::new() }
    }

    /// Adds a layer with settings of its own.
    #[must_use]
    pub fn push(mut self, layer: impl Into<Layer>) -> Self {
        self.layers.push(layer.into());
        self
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a sample is.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// The layers with their names.
    pub fn layers(&self) -> impl Iterator<Item = (String, &Layer)> {
        let mut counts = BTreeMap::new();
        self.layers.iter().map(move |layer| {
            let count = counts.entry(layer.prefix()).or_insert(0usize);
            *count += 1;
            (format!("{}{count}", layer.prefix()), layer)
        })
    }

    /// The model as a graph for evaluation on `batch` samples; see [`Model::build`].
    ///
    /// # Errors
    /// Where a layer cannot take what comes before it, or a setting makes no sense; the message names the layer.
    pub fn build(&self, batch: usize) -> Result<Built, GraphError> {
        Model::from(self.clone()).build(batch, Mode::Evaluate)
    }

    /// Shape of the output for one sample.
    ///
    /// # Errors
    /// As [`Sequential::build`].
    pub fn output_shape(&self) -> Result<Shape, GraphError> {
        Model::from(self.clone()).output_shape()
    }

    /// Number of trained values.
    ///
    /// # Errors
    /// As [`Sequential::build`].
    pub fn parameter_count(&self) -> Result<usize, GraphError> {
        Model::from(self.clone()).parameter_count()
    }

    /// A table of the layers: name, output shape, parameters.
    ///
    /// # Errors
    /// As [`Sequential::build`].
    pub fn summary(&self) -> Result<String, GraphError> {
        Model::from(self.clone()).summary()
    }
}

macro_rules! shorthands {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) => $layer:expr;)*) => {
        impl Sequential {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $name(self, $($arg: $ty),*) -> Self {
                    self.push($layer)
                }
            )*
        }
    };
}

shorthands! {
    /// Adds [`Linear`] with a bias.
    linear(out_features: usize) => Linear::new(out_features);
    /// Adds [`Conv2d`] with stride 1 and no padding.
    conv2d(out_channels: usize, kernel: impl Into<Pair>) => Conv2d::new(out_channels, kernel);
    /// Adds [`Conv1d`] with stride 1 and no padding.
    conv1d(out_channels: usize, kernel: usize) => Conv1d::new(out_channels, kernel);
    /// Adds [`ConvTranspose2d`] with stride 1 and no padding.
    conv_transpose2d(out_channels: usize, kernel: impl Into<Pair>) => ConvTranspose2d::new(out_channels, kernel);
    /// Adds [`MaxPool2d`] whose stride equals its window.
    max_pool2d(kernel: impl Into<Pair>) => MaxPool2d::new(kernel);
    /// Adds [`AvgPool2d`] whose stride equals its window.
    avg_pool2d(kernel: impl Into<Pair>) => AvgPool2d::new(kernel);
    /// Adds [`AdaptiveAvgPool2d`] to images of this size.
    adaptive_avg_pool2d(size: impl Into<Pair>) => AdaptiveAvgPool2d::new(size);
    /// Adds [`GlobalAvgPool`].
    global_avg_pool() => GlobalAvgPool;
    /// Adds [`SqueezeExcite`] with ReLU and sigmoid.
    squeeze_excite(squeeze_channels: usize) => SqueezeExcite::new(squeeze_channels);
    /// Adds [`Flatten`].
    flatten() => Flatten;
    /// Adds [`Reshape`] to samples of this shape.
    reshape(shape: impl Into<Shape>) => Reshape::new(shape);
    /// Adds [`Permute`] of the axes of a sample.
    permute(axes: impl Into<Vec<usize>>) => Permute::new(axes);
    /// Adds [`Pad`] with zeros, before and after the elements of each axis of a sample.
    pad(pads: impl Into<Vec<(usize, usize)>>) => Pad::new(pads);
    /// Adds [`Relu`].
    relu() => Relu;
    /// Adds [`LeakyRelu`].
    leaky_relu(slope: f32) => LeakyRelu::new(slope);
    /// Adds [`Relu6`].
    relu6() => Relu6;
    /// Adds [`Prelu`] with one weight.
    prelu() => Prelu::new();
    /// Adds [`Elu`].
    elu(alpha: f32) => Elu::new(alpha);
    /// Adds [`Softplus`] with PyTorch's settings.
    softplus() => Softplus::default();
    /// Adds [`HardSigmoid`].
    hard_sigmoid() => HardSigmoid;
    /// Adds [`Sigmoid`].
    sigmoid() => Sigmoid;
    /// Adds [`Tanh`].
    tanh() => Tanh;
    /// Adds [`Gelu`] in its exact form.
    gelu() => Gelu::new();
    /// Adds [`Silu`].
    silu() => Silu;
    /// Adds [`HardSwish`].
    hard_swish() => HardSwish;
    /// Adds [`Softmax`] over the last axis.
    softmax() => Softmax::default();
    /// Adds [`LogSoftmax`] over the last axis.
    log_softmax() => LogSoftmax::default();
    /// Adds [`Dropout`] with the probability `p` of a zero.
    dropout(p: f32) => Dropout::new(p);
    /// Adds [`Dropout2d`] with the probability `p` of a channel of zeros.
    dropout2d(p: f32) => Dropout2d::new(p);
    /// Adds [`StochasticDepth`] with the probability `p` of a sample of zeros.
    stochastic_depth(p: f32) => StochasticDepth::new(p);
    /// Adds [`Embedding`] of tokens below `num_embeddings`.
    embedding(num_embeddings: usize, embedding_dim: usize) => Embedding::new(num_embeddings, embedding_dim);
    /// Adds [`PositionalEmbedding`] for sequences up to this length.
    positional_embedding(max_length: usize) => PositionalEmbedding::new(max_length);
    /// Adds [`MultiheadAttention`] in which every place sees all.
    multihead_attention(num_heads: usize) => MultiheadAttention::new(num_heads);
    /// Adds [`Lstm`] whose output is its last hidden state.
    lstm(hidden: usize) => Lstm::new(hidden);
    /// Adds [`BatchNorm`] with weight, bias and running statistics.
    batch_norm() => BatchNorm::new();
    /// Adds [`LayerNorm`] over the last axis.
    layer_norm() => LayerNorm::new();
    /// Adds [`GroupNorm`].
    group_norm(groups: usize) => GroupNorm::new(groups);
    /// Adds [`InstanceNorm`] without weight and bias.
    instance_norm() => InstanceNorm::new();
    /// Adds [`RmsNorm`] over the last axis.
    rms_norm() => RmsNorm::new();
    /// Adds [`Gru`] whose output is its last hidden state.
    gru(hidden: usize) => Gru::new(hidden);
    /// Adds [`Upsample`].
    upsample(scale: impl Into<Pair>) => Upsample::new(scale);
    /// Adds [`Skip`]: remembers what the layer before it made.
    skip(name: impl Into<String>) => Skip::new(name);
    /// Adds [`Concat`] with what a skip remembered.
    concat(with: impl Into<String>) => Concat::new(with);
    /// Adds the layer [`Add`], which adds what a skip remembered.
    #[allow(clippy::should_implement_trait)]
    add(with: impl Into<String>) => Add::new(with);
}
