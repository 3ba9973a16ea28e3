//! Layers: each is a struct of settings that creates its parameters and calls its ops.

mod activation;
mod attention;
mod conv;
mod custom;
mod dropout;
mod embedding;
mod linear;
mod norm;
mod padding;
mod pool;
mod recurrent;
mod registry;
mod rescaling;
mod settings;
mod shape;
mod sizes;
mod skip;
mod squeeze_excite;
mod upsample;

pub use activation::{Gelu, LogSoftmax, Prelu, Softmax};
pub use attention::MultiheadAttention;
pub(super) use attention::attention;
pub use conv::{Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, DepthwiseConv2d, SeparableConv2d};
pub use custom::CustomLayer;
pub use dropout::{Dropout, Dropout2d, StochasticDepth};
pub use embedding::{Embedding, PositionalEmbedding};
pub use linear::Linear;
pub use norm::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm};
pub use pool::{
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AvgPool1d, AvgPool2d, AvgPool3d, GlobalAvgPool, GlobalMaxPool, MaxPool1d,
    MaxPool2d, MaxPool3d,
};
pub use recurrent::{Gru, Lstm, Recurrent, Rnn, RnnRelu};
pub use registry::*;
pub use rescaling::Rescaling;
pub use shape::{Cropping, Flatten, Pad, Permute, Reshape};
pub use sizes::{Pair, Triple};
pub(super) use skip::Skips;
pub use skip::{Add, Concat, Skip};
pub use squeeze_excite::SqueezeExcite;
pub use upsample::{Upsample, Upsample1d};

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
