//! Layers: each is a struct of settings that creates its parameters and calls its ops.

mod activation;
mod attention;
mod conv;
mod custom;
mod dropout;
mod embedding;
mod linear;
mod norm;
mod pool;
mod recurrent;
mod registry;
mod settings;
mod shape;
mod skip;
mod squeeze_excite;
mod upsample;

use serde::{Deserialize, Serialize};

pub use activation::{Gelu, LogSoftmax, Prelu, Softmax};
pub use attention::MultiheadAttention;
pub(super) use attention::attention;
pub use conv::{Conv1d, Conv2d, ConvTranspose2d};
pub use custom::CustomLayer;
pub use dropout::{Dropout, Dropout2d, StochasticDepth};
pub use embedding::{Embedding, PositionalEmbedding};
pub use linear::Linear;
pub use norm::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm};
pub use pool::{AdaptiveAvgPool2d, AvgPool2d, GlobalAvgPool, MaxPool2d};
pub use recurrent::{Gru, Lstm, Recurrent};
pub use registry::*;
pub use shape::{Flatten, Pad, Permute, Reshape};
pub(super) use skip::Skips;
pub use skip::{Add, Concat, Skip};
pub use squeeze_excite::SqueezeExcite;
pub use upsample::Upsample;

use super::init::{Init, Scheme};
use super::scope::Scope;
use crate::error::GraphError;
use crate::tensor::ValueId;

/// What every layer does.
pub trait Module {
    /// Adds the layer to the graph; returns its output.
    ///
    /// # Errors
    /// Where the layer cannot take its input, or a setting makes no sense.
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError>;
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
