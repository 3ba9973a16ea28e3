//! Layers: each is a struct of settings that creates its parameters and calls its ops.

mod activation;
mod conv;
mod linear;
mod lstm;
mod pool;
mod shape;
mod skip;
mod upsample;

use serde::{Deserialize, Serialize};

pub use activation::{Gelu, HardSwish, LeakyRelu, LogSoftmax, Relu, Sigmoid, Silu, Softmax, Tanh};
pub use conv::Conv2d;
pub use linear::Linear;
pub use lstm::Lstm;
pub use pool::{AvgPool2d, MaxPool2d};
pub use shape::{Flatten, Permute, Reshape};
pub(super) use skip::Skips;
pub use skip::{Add, Concat, Skip};
pub use upsample::Upsample;

use super::init::{Init, Scheme};
use super::sequential::Parameter;
use crate::error::GraphError;
use crate::graph::Graph;
use crate::ops::Op;
use crate::tensor::{Shape, TensorDesc, ValueId};

/// Largest number that a layer's setting may have. Keeps products of a few of them inside 64 bits.
const MAX_SETTING: usize = 1 << 24;

/// Kernels count elements in 32 bits.
const MAX_ELEMENTS: usize = u32::MAX as usize;

/// What every layer does.
pub(super) trait Module {
    /// Adds the layer to the graph; returns its output.
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError>;
}

macro_rules! layers {
    ($($variant:ident = $kind:literal, $prefix:literal;)*) => {
        /// Any layer. In a model file, `kind` says which.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        #[non_exhaustive]
        pub enum Layer {
            $(
                #[doc = concat!("`", $kind, "`")]
                #[serde(rename = $kind)]
                $variant($variant),
            )*
        }

        impl Layer {
            /// Its kind as a model file writes it.
            pub fn kind(&self) -> &'static str {
                match self { $(Layer::$variant(_) => $kind,)* }
            }

            /// Its name without the ordinal: `conv` of `conv1`.
            pub fn prefix(&self) -> &'static str {
                match self { $(Layer::$variant(_) => $prefix,)* }
            }

            pub(super) fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
                match self { $(Layer::$variant(layer) => layer.build(scope, input),)* }
            }
        }

        $(impl From<$variant> for Layer {
            fn from(layer: $variant) -> Self {
                Layer::$variant(layer)
            }
        })*
    };
}

layers! {
    Linear = "linear", "linear";
    Conv2d = "conv2d", "conv";
    MaxPool2d = "max_pool2d", "pool";
    AvgPool2d = "avg_pool2d", "pool";
    Flatten = "flatten", "flatten";
    Reshape = "reshape", "reshape";
    Permute = "permute", "permute";
    Relu = "relu", "relu";
    LeakyRelu = "leaky_relu", "leaky_relu";
    Sigmoid = "sigmoid", "sigmoid";
    Tanh = "tanh", "tanh";
    Gelu = "gelu", "gelu";
    Silu = "silu", "silu";
    HardSwish = "hard_swish", "hard_swish";
    Softmax = "softmax", "softmax";
    LogSoftmax = "log_softmax", "log_softmax";
    Lstm = "lstm", "lstm";
    Upsample = "upsample", "upsample";
    Skip = "skip", "skip";
    Concat = "concat", "concat";
    Add = "add", "add";
}

/// A size in two dimensions, height first: `3` means `(3, 3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "OneOrTwo", into = "OneOrTwo")]
pub struct Pair(pub usize, pub usize);

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a whole number or a pair of them, like 3 or [3, 5]")]
enum OneOrTwo {
    One(usize),
    Two([usize; 2]),
}

impl From<OneOrTwo> for Pair {
    fn from(value: OneOrTwo) -> Self {
        match value {
            OneOrTwo::One(n) => Pair(n, n),
            OneOrTwo::Two([h, w]) => Pair(h, w),
        }
    }
}

impl From<Pair> for OneOrTwo {
    fn from(Pair(h, w): Pair) -> Self {
        if h == w { OneOrTwo::One(h) } else { OneOrTwo::Two([h, w]) }
    }
}

impl From<usize> for Pair {
    fn from(n: usize) -> Self {
        Pair(n, n)
    }
}

impl From<(usize, usize)> for Pair {
    fn from((h, w): (usize, usize)) -> Self {
        Pair(h, w)
    }
}

impl From<Pair> for (usize, usize) {
    fn from(Pair(h, w): Pair) -> Self {
        (h, w)
    }
}

impl From<Pair> for [usize; 2] {
    fn from(Pair(h, w): Pair) -> Self {
        [h, w]
    }
}

/// The layer under construction: its name, and where its parameters and nodes go.
pub(super) struct Scope<'a> {
    graph: &'a mut Graph,
    parameters: &'a mut Vec<Parameter>,
    skips: &'a mut Skips,
    layer: &'a str,
}

impl<'a> Scope<'a> {
    pub(super) fn new(
        graph: &'a mut Graph,
        parameters: &'a mut Vec<Parameter>,
        skips: &'a mut Skips,
        layer: &'a str,
    ) -> Self {
        graph.set_scope(layer);
        Scope { graph, parameters, skips, layer }
    }

    /// Creates the parameter `<layer>.<name>`.
    fn parameter(&mut self, name: &str, shape: impl Into<Shape>, init: Init) -> Result<ValueId, GraphError> {
        let shape = shape.into();
        let name = format!("{}.{name}", self.layer);
        self.check_elements(&name, &shape)?;
        let value = self.graph.parameter(name.clone(), TensorDesc::f32(shape));
        self.parameters.push(Parameter { name, value, init });
        Ok(value)
    }

    fn apply(&mut self, op: impl Op, inputs: &[ValueId]) -> Result<ValueId, GraphError> {
        Ok(self.apply_all(op, inputs)?[0])
    }

    fn apply_all(&mut self, op: impl Op, inputs: &[ValueId]) -> Result<Vec<ValueId>, GraphError> {
        let outputs = self.graph.apply_all(op, inputs)?;
        for &output in &outputs {
            self.check_elements("the output", &self.graph.value(output).desc.shape)?;
        }
        Ok(outputs)
    }

    /// Extents, batch first.
    fn shape(&self, value: ValueId) -> Vec<usize> {
        self.graph.value(value).desc.shape.to_vec()
    }

    fn error(&self, reason: impl Into<String>) -> GraphError {
        GraphError::Layer { layer: self.layer.to_owned(), reason: reason.into() }
    }

    /// The layer cannot take a sample of this shape.
    fn wrong_input(&self, expected: &str, shape: &[usize], advice: &str) -> GraphError {
        let sample = Shape::from(&shape[1..]);
        let advice = if advice.is_empty() { String::new() } else { format!("; {advice}") };
        self.error(format!("expects {expected}, found {sample}{advice}"))
    }

    /// A setting that counts something is at least `least`.
    fn check_setting(&self, name: &str, value: usize, least: usize) -> Result<(), GraphError> {
        if value < least {
            Err(self.error(format!("{name} must be at least {least}, found {value}")))
        } else if value > MAX_SETTING {
            Err(self.error(format!("{name} must be at most {MAX_SETTING}, found {value}")))
        } else {
            Ok(())
        }
    }

    fn check_pair(&self, name: &str, Pair(h, w): Pair, least: usize) -> Result<(), GraphError> {
        self.check_setting(name, h, least)?;
        self.check_setting(name, w, least)
    }

    /// Turns an axis of the sample (negative: from the end) into an axis of the batched tensor.
    fn axis(&self, axis: isize, shape: &[usize]) -> Result<usize, GraphError> {
        let rank = shape.len() - 1;
        let index = if axis < 0 { axis + rank as isize } else { axis };
        usize::try_from(index).ok().filter(|&index| index < rank).map(|index| index + 1).ok_or_else(|| {
            let sample = Shape::from(&shape[1..]);
            self.error(format!(
                "axis {axis} does not exist in a sample of shape {sample} (the batch axis is not counted)"
            ))
        })
    }

    fn check_elements(&self, what: &str, shape: &Shape) -> Result<(), GraphError> {
        let numel = shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim)).unwrap_or(usize::MAX);
        if numel > MAX_ELEMENTS {
            return Err(self.error(format!("{what} of shape {shape} has more than {MAX_ELEMENTS} elements")));
        }
        Ok(())
    }
}
