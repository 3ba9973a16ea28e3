//! Layers: each is a struct of settings that creates its parameters and calls its ops.

mod activation;
mod attention;
mod conv;
mod dropout;
mod embedding;
mod linear;
mod norm;
mod pool;
mod recurrent;
mod shape;
mod skip;
mod squeeze_excite;
mod upsample;

use serde::{Deserialize, Serialize};

pub use activation::{
    Elu, Gelu, HardSigmoid, HardSwish, Hardtanh, LeakyRelu, LogSoftmax, Prelu, Relu, Relu6, Sigmoid, Silu, Softmax,
    Softplus, Tanh,
};
pub use attention::MultiheadAttention;
pub(super) use attention::attention;
pub use conv::{Conv1d, Conv2d, ConvTranspose2d};
pub use dropout::{Dropout, Dropout2d, StochasticDepth};
pub use embedding::{Embedding, PositionalEmbedding};
pub use linear::Linear;
pub use norm::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm};
pub use pool::{AdaptiveAvgPool2d, AvgPool2d, GlobalAvgPool, MaxPool2d};
pub use recurrent::{Gru, Lstm, Recurrent};
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

        }

        impl Module for Layer {
            fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
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
    Conv1d = "conv1d", "conv";
    Conv2d = "conv2d", "conv";
    ConvTranspose2d = "conv_transpose2d", "conv_transpose";
    MaxPool2d = "max_pool2d", "pool";
    AvgPool2d = "avg_pool2d", "pool";
    AdaptiveAvgPool2d = "adaptive_avg_pool2d", "pool";
    GlobalAvgPool = "global_avg_pool", "pool";
    SqueezeExcite = "squeeze_excite", "squeeze_excite";
    Flatten = "flatten", "flatten";
    Reshape = "reshape", "reshape";
    Permute = "permute", "permute";
    Pad = "pad", "pad";
    Relu = "relu", "relu";
    Relu6 = "relu6", "relu6";
    Prelu = "prelu", "prelu";
    Elu = "elu", "elu";
    Softplus = "softplus", "softplus";
    Hardtanh = "hardtanh", "hardtanh";
    HardSigmoid = "hard_sigmoid", "hard_sigmoid";
    LeakyRelu = "leaky_relu", "leaky_relu";
    Sigmoid = "sigmoid", "sigmoid";
    Tanh = "tanh", "tanh";
    Gelu = "gelu", "gelu";
    Silu = "silu", "silu";
    HardSwish = "hard_swish", "hard_swish";
    Softmax = "softmax", "softmax";
    LogSoftmax = "log_softmax", "log_softmax";
    Dropout = "dropout", "dropout";
    Dropout2d = "dropout2d", "dropout";
    StochasticDepth = "stochastic_depth", "stochastic_depth";
    Embedding = "embedding", "embedding";
    PositionalEmbedding = "positional_embedding", "positions";
    MultiheadAttention = "multihead_attention", "attention";
    Lstm = "lstm", "lstm";
    BatchNorm = "batch_norm", "bn";
    LayerNorm = "layer_norm", "norm";
    GroupNorm = "group_norm", "norm";
    InstanceNorm = "instance_norm", "norm";
    RmsNorm = "rms_norm", "norm";
    Gru = "gru", "gru";
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
