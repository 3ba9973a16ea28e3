//! A model as a chain of layers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::init::Init;
use super::layers::{
    Add, AvgPool2d, Concat, Conv2d, Flatten, Gelu, HardSwish, Layer, LeakyRelu, Linear, LogSoftmax, Lstm, MaxPool2d,
    Pair, Permute, Relu, Reshape, Scope, Sigmoid, Silu, Skip, Skips, Softmax, Tanh, Upsample,
};
use crate::error::GraphError;
use crate::graph::Graph;
use crate::tensor::{Shape, TensorDesc, ValueId};

/// Samples of a batch and elements of a sample at most: kernels count in 32 bits.
const MAX_ELEMENTS: usize = u32::MAX as usize;

/// Layers one after the other. Connections past layers go through [`Skip`] and [`Concat`] or [`Add`].
///
/// Layers are named by kind and ordinal, as in `conv1`, `conv2`, `linear1`, and parameters by layer as PyTorch writes
/// them, as in `conv1.weight`. Shapes never include the batch axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sequential {
    name: String,
    input: Shape,
    layers: Vec<Layer>,
}

/// A model as a graph for one size of batch.
#[derive(Clone, Debug)]
pub struct Built {
    /// The forward graph.
    pub graph: Graph,
    /// The samples, `[batch, sample…]`: the graph's input named `input`.
    pub input: ValueId,
    /// What the last layer makes.
    pub output: ValueId,
    /// All parameters in the order of the layers.
    pub parameters: Vec<Parameter>,
}

/// A trained tensor.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// `conv1.weight`
    pub name: String,
    /// Where it is in the graph.
    pub value: ValueId,
    /// How it starts.
    pub init: Init,
}

impl Sequential {
    /// A model without layers, for samples of this shape.
    pub fn new(name: impl Into<String>, input: impl Into<Shape>) -> Self {
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

    /// Shape of a sample.
    pub fn input_shape(&self) -> &Shape {
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

    /// The model as a graph for `batch` samples.
    ///
    /// # Errors
    /// Where a layer cannot take what comes before it, or a setting makes no sense; the message names the layer.
    pub fn build(&self, batch: usize) -> Result<Built, GraphError> {
        self.build_with(batch, |_, _, _, _| {})
    }

    /// Shape of the output for one sample.
    ///
    /// # Errors
    /// As [`Sequential::build`].
    pub fn output_shape(&self) -> Result<Shape, GraphError> {
        let built = self.build(1)?;
        Ok(sample_shape(&built.graph, built.output))
    }

    /// Number of trained values.
    ///
    /// # Errors
    /// As [`Sequential::build`].
    pub fn parameter_count(&self) -> Result<usize, GraphError> {
        let built = self.build(1)?;
        Ok(count(&built.graph, &built.parameters))
    }

    /// A table of the layers: name, output shape, parameters.
    ///
    /// # Errors
    /// As [`Sequential::build`].
    pub fn summary(&self) -> Result<String, GraphError> {
        let mut rows = vec![("input".to_owned(), self.input.to_string(), String::new())];
        let built = self.build_with(1, |name, graph, output, parameters| {
            let numel = count(graph, parameters);
            let numel = if numel == 0 { String::new() } else { thousands(numel) };
            rows.push((name.to_owned(), sample_shape(graph, output).to_string(), numel));
        })?;
        rows.push(("total".to_owned(), String::new(), thousands(count(&built.graph, &built.parameters))));

        let header = ("layer".to_owned(), "output".to_owned(), "parameters".to_owned());
        let all = || std::iter::once(&header).chain(&rows);
        let widths = [
            all().map(|row| row.0.len()).max().unwrap_or(0),
            all().map(|row| row.1.len()).max().unwrap_or(0),
            all().map(|row| row.2.len()).max().unwrap_or(0),
        ];
        let mut text = format!("{}\n", self.name);
        for (name, shape, numel) in all() {
            let line = format!("  {name:<0$}  {shape:<1$}  {numel:>2$}", widths[0], widths[1], widths[2]);
            let _ = writeln!(text, "{}", line.trim_end());
        }
        Ok(text)
    }

    /// Builds, showing each layer when it is done: its name, the graph so far, its output and its own parameters.
    fn build_with(
        &self,
        batch: usize,
        mut visit: impl FnMut(&str, &Graph, ValueId, &[Parameter]),
    ) -> Result<Built, GraphError> {
        let error = |reason: String| Err(GraphError::Layer { layer: "input".to_owned(), reason });
        if batch == 0 {
            return error("the batch must have at least one sample".to_owned());
        }
        if self.input.is_empty() || self.input.contains(&0) {
            return error(format!("a sample of shape {} has no elements: every extent must be at least 1", self.input));
        }
        let numel = self.input.iter().try_fold(batch, |n, &dim| n.checked_mul(dim)).unwrap_or(usize::MAX);
        if numel > MAX_ELEMENTS {
            return error(format!(
                "{batch} samples of shape {} have more than {MAX_ELEMENTS} elements: use a smaller batch",
                self.input
            ));
        }

        let mut graph = Graph::new();
        let mut shape = vec![batch];
        shape.extend(self.input.iter());
        let input = graph.input("input", TensorDesc::f32(shape));
        let mut parameters = Vec::new();
        let mut skips = Skips::default();
        let mut output = input;
        for (name, layer) in self.layers() {
            let first = parameters.len();
            output = layer.build(&mut Scope::new(&mut graph, &mut parameters, &mut skips, &name), output)?;
            visit(&name, &graph, output, &parameters[first..]);
        }
        skips.finish()?;
        Ok(Built { graph, input, output, parameters })
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
    /// Adds [`MaxPool2d`] whose stride equals its window.
    max_pool2d(kernel: impl Into<Pair>) => MaxPool2d::new(kernel);
    /// Adds [`AvgPool2d`] whose stride equals its window.
    avg_pool2d(kernel: impl Into<Pair>) => AvgPool2d::new(kernel);
    /// Adds [`Flatten`].
    flatten() => Flatten;
    /// Adds [`Reshape`] to samples of this shape.
    reshape(shape: impl Into<Shape>) => Reshape::new(shape);
    /// Adds [`Permute`] of the axes of a sample.
    permute(axes: impl Into<Vec<usize>>) => Permute::new(axes);
    /// Adds [`Relu`].
    relu() => Relu;
    /// Adds [`LeakyRelu`].
    leaky_relu(slope: f32) => LeakyRelu::new(slope);
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
    /// Adds [`Lstm`] whose output is its last hidden state.
    lstm(hidden: usize) => Lstm::new(hidden);
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

fn sample_shape(graph: &Graph, value: ValueId) -> Shape {
    Shape::from(&graph.value(value).desc.shape[1..])
}

fn count(graph: &Graph, parameters: &[Parameter]) -> usize {
    parameters.iter().map(|parameter| graph.value(parameter.value).desc.numel()).sum()
}

/// `1234567` as `1,234,567`.
fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
