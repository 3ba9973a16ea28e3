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
///
/// ```
/// use tightfit::nn::{Conv2d, Sequential};
///
/// let model = Sequential::new("my-cnn", [1, 28, 28])
///     .conv2d(32, 3).relu()
///     // A layer with settings of its own.
///     .push(Conv2d::new(64, 3).stride(2).bias(false)).relu()
///     .flatten().linear(10);
/// assert_eq!(model.output_shape()?[..], [10]);
/// assert_eq!(model.parameter_count()?, 32 * 9 + 32 + 64 * 32 * 9 + 12 * 12 * 64 * 10 + 10);
/// # Ok::<(), tightfit::error::GraphError>(())
/// ```
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

    /// Adds a layer of one's own: any [`Module`]. Layers of this kind are named by `prefix` and ordinal.
    ///
    /// ```
    /// use tightfit::error::GraphError;
    /// use tightfit::nn::{Init, Module, Scope, Sequential};
    /// use tightfit::tensor::ValueId;
    ///
    /// /// A trained factor for each feature.
    /// struct Gain;
    ///
    /// impl Module for Gain {
    ///     fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
    ///         let features = scope.shape(input)[1];
    ///         let gain = scope.parameter("gain", [features], Init::ONES)?;
    ///         scope.formula([input, gain], |[input, gain]| input * gain)
    ///     }
    /// }
    ///
    /// let model = Sequential::new("gains", [3]).layer("gain", Gain).linear(2);
    /// assert_eq!(model.parameter_count()?, 3 + 2 * 3 + 2);
    /// # Ok::<(), GraphError>(())
    /// ```
    #[must_use]
    pub fn layer(self, prefix: &'static str, module: impl Module + Send + Sync + 'static) -> Self {
        self.push(CustomLayer::new(prefix, module))
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
