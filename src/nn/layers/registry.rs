//! The registry of layers: one entry each, from which follow the kind of a model file, the methods of [`Sequential`] and
//! [`Tensor`], the table of the documentation, and what is said to someone who uses the name of another framework. An
//! activation without parameters is nothing but its entry.

use serde::{Deserialize, Serialize};

use super::settings::{NoSettings, no_settings};
use super::*;
use crate::nn::sequential::Sequential;
use crate::nn::tensor::Tensor;
use crate::ops::elementwise::{
    clamp, elu, hard_sigmoid, hard_swish, leaky_relu, mish, relu, sigmoid, silu, softplus, tanh,
};
use crate::tensor::{Shape, format_number};

/// A kind of layer, as users see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerKind {
    /// What a model file writes.
    pub kind: &'static str,
    /// What it computes.
    pub summary: &'static str,
    /// The keys of its table, with their defaults.
    pub settings: &'static str,
    /// Names that other frameworks have for it, in lower case and with letters and digits alone.
    pub elsewhere: &'static [&'static str],
}

macro_rules! registry {
    (
        activations {$(
            #[doc = $about:literal]
            $name:ident $({ $($field:ident = $default:literal),* })? = $name_kind:literal $([$($name_elsewhere:literal),*])?
            $(, method $name_method:ident($($name_arg:ident: $name_ty:ty),*) => $name_layer:expr)?;
            $op:expr;
        )*}
        layers {$(
            #[doc = $summary:literal]
            $variant:ident = $kind:literal as $prefix:literal $([$($elsewhere:literal),*])?
            $(, settings $settings:literal)?
            $(, sequential $sequential:ident($($s_arg:ident: $s_ty:ty),*) => $s_layer:expr)?
            $(, method $method:ident($($arg:ident: $ty:ty),*) => $layer:expr)?;
        )*}
    ) => {
        $(activation! { #[doc = $about] $name $({ $($field = $default),* })? => $op })*

        /// Any layer. In a model file, `kind` says which.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        #[non_exhaustive]
        pub enum Layer {
            $(
                #[doc = $about]
                #[serde(rename = $name_kind)]
                $name($name),
            )*
            $(
                #[doc = $summary]
                #[serde(rename = $kind)]
                $variant($variant),
            )*
            /// A layer of one's own.
            #[serde(skip)]
            Custom(CustomLayer),
        }

        impl Layer {
            /// All kinds.
            pub const KINDS: &[LayerKind] = &[
                $(LayerKind {
                    kind: $name_kind,
                    summary: $about,
                    settings: settings!($($($field = $default),*)?),
                    elsewhere: &[$($($name_elsewhere),*)?],
                },)*
                $(LayerKind {
                    kind: $kind,
                    summary: $summary,
                    settings: concat!($($settings)?),
                    elsewhere: &[$($($elsewhere),*)?],
                },)*
            ];

            /// Its kind as a model file writes it.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Layer::$name(_) => $name_kind,)*
                    $(Layer::$variant(_) => $kind,)*
                    Layer::Custom(_) => "custom",
                }
            }

            /// Its name without the ordinal: `conv` of `conv1`.
            pub fn prefix(&self) -> &'static str {
                match self {
                    $(Layer::$name(_) => $name_kind,)*
                    $(Layer::$variant(_) => $prefix,)*
                    Layer::Custom(layer) => layer.prefix,
                }
            }
        }

        impl Module for Layer {
            fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
                match self {
                    $(Layer::$name(layer) => layer.build(scope, input),)*
                    $(Layer::$variant(layer) => layer.build(scope, input),)*
                    Layer::Custom(layer) => layer.build(scope, input),
                }
            }
        }

        impl From<CustomLayer> for Layer {
            fn from(layer: CustomLayer) -> Self {
                Layer::Custom(layer)
            }
        }
        $(impl From<$name> for Layer {
            fn from(layer: $name) -> Self {
                Layer::$name(layer)
            }
        })*
        $(impl From<$variant> for Layer {
            fn from(layer: $variant) -> Self {
                Layer::$variant(layer)
            }
        })*

        /// A method for each kind of layer that has usual settings.
        #[allow(clippy::should_implement_trait)]
        impl Sequential {
            $($(
                #[doc = concat!("Adds [`", stringify!($name), "`]:", $about)]
                #[must_use]
                pub fn $name_method(self, $($name_arg: $name_ty),*) -> Self {
                    self.push($name_layer)
                }
            )?)*
            $($(
                #[doc = concat!("Adds [`", stringify!($variant), "`]:", $summary)]
                #[must_use]
                pub fn $sequential(self, $($s_arg: $s_ty),*) -> Self {
                    self.push($s_layer)
                }
            )?)*
            $($(
                #[doc = concat!("Adds [`", stringify!($variant), "`]:", $summary)]
                #[must_use]
                pub fn $method(self, $($arg: $ty),*) -> Self {
                    self.push($layer)
                }
            )?)*
        }

        /// Layers without parameters, which need no name.
        impl<'a> Tensor<'a> {
            $($(
                #[doc = concat!("Applies [`", stringify!($name), "`](super::", stringify!($name), "):", $about)]
                #[must_use]
                pub fn $name_method(self, $($name_arg: $name_ty),*) -> Tensor<'a> {
                    self.apply($name_layer)
                }
            )?)*
            $($(
                #[doc = concat!("Applies [`", stringify!($variant), "`](super::", stringify!($variant), "):", $summary)]
                #[must_use]
                pub fn $method(self, $($arg: $ty),*) -> Tensor<'a> {
                    self.apply($layer)
                }
            )?)*
        }
    };
}

/// A layer that applies one op to each element: without settings, or with numbers.
macro_rules! activation {
    ($(#[$meta:meta])* $name:ident => $op:expr) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(from = "NoSettings", into = "NoSettings")]
        pub struct $name;

        no_settings!($name);

        impl Module for $name {
            fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
                scope.apply($op, &[input])
            }
        }
    };
    ($(#[$meta:meta])* $name:ident { $($field:ident = $default:literal),* } => $op:expr) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($field: f32,)*
        }

        impl Default for $name {
            #[doc = concat!($("`", stringify!($field), " = ", stringify!($default), "` ",)*)]
            fn default() -> Self {
                $name { $($field: $default,)* }
            }
        }

        impl $name {
            /// With these settings.
            pub fn new($($field: f32),*) -> Self {
                $name { $($field,)* }
            }
        }

        impl Module for $name {
            fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
                $(if !self.$field.is_finite() {
                    let found = format_number(self.$field);
                    return Err(scope.error(format!("{} must be a number, found {found}", stringify!($field))));
                })*
                let op: fn($name) -> _ = $op;
                scope.apply(op(*self), &[input])
            }
        }
    };
}

macro_rules! settings {
    () => {
        ""
    };
    ($first:ident = $value:literal $(, $field:ident = $default:literal)*) => {
        concat!(
            "`", stringify!($first), "` (", stringify!($value), ")"
            $(, ", `", stringify!($field), "` (", stringify!($default), ")")*
        )
    };
}

registry! {
    activations {
        /// `max(x, 0)`
        Relu = "relu" ["rectifier"], method relu() => Relu;
        relu::Relu;
        /// `min(max(x, 0), 6)`
        Relu6 = "relu6", method relu6() => Relu6;
        clamp::Clamp::RELU6;
        /// `x` where positive, else `slope · x`
        LeakyRelu { slope = 0.01 } = "leaky_relu", method leaky_relu(slope: f32) => LeakyRelu::new(slope);
        |layer| leaky_relu::LeakyRelu { slope: layer.slope };
        /// `x` where positive, else `alpha · (eˣ − 1)`
        Elu { alpha = 1.0 } = "elu", method elu(alpha: f32) => Elu::new(alpha);
        |layer| elu::Elu { alpha: layer.alpha };
        /// `ln(1 + exp(beta · x)) / beta`, or `x` where `beta · x` is above the threshold
        Softplus { beta = 1.0, threshold = 20.0 } = "softplus", method softplus() => Softplus::default();
        |layer| softplus::Softplus { beta: layer.beta, threshold: layer.threshold };
        /// `min(max(x, min), max)`, PyTorch's `Hardtanh`
        Hardtanh { min = -1.0, max = 1.0 } = "hardtanh" ["clip", "clamp"];
        |layer| clamp::Clamp { min: layer.min, max: layer.max };
        /// `min(max(x + 3, 0), 6) / 6`
        HardSigmoid = "hard_sigmoid", method hard_sigmoid() => HardSigmoid;
        hard_sigmoid::HardSigmoid;
        /// `1 / (1 + exp(−x))`
        Sigmoid = "sigmoid" ["logistic"], method sigmoid() => Sigmoid;
        sigmoid::Sigmoid;
        /// `tanh(x)`
        Tanh = "tanh", method tanh() => Tanh;
        tanh::Tanh;
        /// `x · sigmoid(x)`
        Silu = "silu" ["swish"], method silu() => Silu;
        silu::Silu;
        /// `x · tanh(ln(1 + eˣ))`
        Mish = "mish", method mish() => Mish;
        mish::Mish;
        /// `x · min(max(x + 3, 0), 6) / 6`
        HardSwish = "hard_swish" ["hardsilu"], method hard_swish() => HardSwish;
        hard_swish::HardSwish;
    }
    layers {
        /// the exact `x · Φ(x)`, or its tanh form
        Gelu = "gelu" as "gelu", settings "`tanh` (false): the approximate form",
            method gelu() => Gelu::new();
        /// `x` where positive, else `weight · x` with a trained weight
        Prelu = "prelu" as "prelu", settings "`per_channel` (false)",
            sequential prelu() => Prelu::new();
        /// `exp(x) / Σ exp(x)` along an axis, the last one by default
        Softmax = "softmax" as "softmax", settings "`axis` (-1)",
            method softmax() => Softmax::default();
        /// `x − log Σ exp(x)` along an axis, the last one by default
        LogSoftmax = "log_softmax" as "log_softmax", settings "`axis` (-1)",
            method log_softmax() => LogSoftmax::default();
        /// `x Wᵀ + b` over the last axis, with a bias
        Linear = "linear" as "linear" ["dense", "fullyconnected", "fc", "affine", "timedistributed"],
            settings "`out_features`, `bias` (true)",
            sequential linear(out_features: usize) => Linear::new(out_features);
        /// a convolution of images, with stride 1 and no padding unless they are set
        Conv2d = "conv2d" as "conv" ["convolution2d", "conv"],
            settings "`out_channels`, `kernel`, `stride` (1), `padding` (0; `[[top, bottom], [left, right]]`; `\"same\"` keeps the size, or \
                with a stride divides it by that and rounds up, with as many zeros on both sides, or one more behind; \
                `\"same_upper\"` and `\"same_lower\"` make the same size with as few zeros as that takes, an odd one behind or before: \
                Keras's `same` is `same_upper`), `dilation` (1), `groups` (1), `bias` (true), `init` (`fan_in`; `he` for deep models)",
            sequential conv2d(out_channels: usize, kernel: impl Into<Pair>) => Conv2d::new(out_channels, kernel);
        /// a convolution of `[channels, length]`, with stride 1 and no padding unless they are set
        Conv1d = "conv1d" as "conv" ["convolution1d"],
            settings "as `conv2d`; `padding` of both sides: `[before, after]`",
            sequential conv1d(out_channels: usize, kernel: usize) => Conv1d::new(out_channels, kernel);
        /// a convolution of `[channels, depth, height, width]`, with stride 1 and no padding unless they are set
        Conv3d = "conv3d" as "conv" ["convolution3d"],
            settings "as `conv2d`; `padding` of all sides: `[[front, back], [top, bottom], [left, right]]`",
            sequential conv3d(out_channels: usize, kernel: impl Into<Triple>) => Conv3d::new(out_channels, kernel);
        /// a convolution of each channel by itself, with stride 1 and no padding unless they are set
        DepthwiseConv2d = "depthwise_conv2d" as "conv" ["depthwiseconvolution2d"],
            settings "as `conv2d` but `out_channels` and `groups`, and `depth_multiplier` (1): filters of each channel",
            sequential depthwise_conv2d(kernel: impl Into<Pair>) => DepthwiseConv2d::new(kernel);
        /// a convolution of each channel by itself, and then one of 1 by 1, with a bias
        SeparableConv2d = "separable_conv2d" as "conv" ["separableconvolution2d"],
            settings "as `conv2d` but `groups`, and `depth_multiplier` (1): filters of each channel",
            sequential separable_conv2d(out_channels: usize, kernel: impl Into<Pair>) =>
                SeparableConv2d::new(out_channels, kernel);
        /// a transposed convolution, with stride 1 and no padding unless they are set
        ConvTranspose2d = "conv_transpose2d" as "conv_transpose" ["conv2dtranspose", "deconv", "deconv2d", "deconvolution"],
            settings "as `conv2d`, but `\"same\"` and the like make the size times the stride, and `output_padding` (0)",
            sequential conv_transpose2d(out_channels: usize, kernel: impl Into<Pair>) =>
                ConvTranspose2d::new(out_channels, kernel);
        /// a transposed convolution of `[channels, length]`, with stride 1 and no padding unless they are set
        ConvTranspose1d = "conv_transpose1d" as "conv_transpose" ["conv1dtranspose", "deconv1d"],
            settings "as `conv_transpose2d`; `padding` of both sides: `[before, after]`",
            sequential conv_transpose1d(out_channels: usize, kernel: usize) => ConvTranspose1d::new(out_channels, kernel);
        /// the largest element of each window, whose stride equals its size unless it is set
        MaxPool2d = "max_pool2d" as "pool" ["maxpool", "maxpooling", "maxpooling2d"],
            settings "`kernel`, `stride` (the kernel), `padding` (0; `[[top, bottom], [left, right]]`; `\"same\"`, also called \
                `\"same_upper\"`, and `\"same_lower\"` divide the size by the stride and round up), `ceil_mode` (false): a last window \
                for what is left over",
            method max_pool2d(kernel: impl Into<Pair>) => MaxPool2d::new(kernel);
        /// the mean of each window, whose stride equals its size unless it is set
        AvgPool2d = "avg_pool2d" as "pool" ["avgpool", "averagepooling2d", "averagepool"],
            settings "as `max_pool2d`, and `count_include_pad` (true): whether padding counts, as zeros",
            method avg_pool2d(kernel: impl Into<Pair>) => AvgPool2d::new(kernel);
        /// the largest element of each window of `[channels, length]`
        MaxPool1d = "max_pool1d" as "pool" ["maxpooling1d"],
            settings "as `max_pool2d`; `padding` of both sides: `[before, after]`",
            method max_pool1d(kernel: usize) => MaxPool1d::new(kernel);
        /// the mean of each window of `[channels, length]`
        AvgPool1d = "avg_pool1d" as "pool" ["averagepooling1d"],
            settings "as `avg_pool2d`; `padding` of both sides: `[before, after]`",
            method avg_pool1d(kernel: usize) => AvgPool1d::new(kernel);
        /// the largest element of each window of `[channels, depth, height, width]`
        MaxPool3d = "max_pool3d" as "pool" ["maxpooling3d"],
            settings "as `max_pool2d`; `padding` of all sides: `[[front, back], [top, bottom], [left, right]]`",
            method max_pool3d(kernel: impl Into<Triple>) => MaxPool3d::new(kernel);
        /// the mean of each window of `[channels, depth, height, width]`
        AvgPool3d = "avg_pool3d" as "pool" ["averagepooling3d"],
            settings "as `avg_pool2d`; `padding` of all sides: `[[front, back], [top, bottom], [left, right]]`",
            method avg_pool3d(kernel: impl Into<Triple>) => AvgPool3d::new(kernel);
        /// means that make images of this size of any
        AdaptiveAvgPool2d = "adaptive_avg_pool2d" as "pool", settings "`size` of the output",
            method adaptive_avg_pool2d(size: impl Into<Pair>) => AdaptiveAvgPool2d::new(size);
        /// means that make sequences `[channels, length]` of this length of any
        AdaptiveAvgPool1d = "adaptive_avg_pool1d" as "pool", settings "`size` of the output",
            method adaptive_avg_pool1d(size: usize) => AdaptiveAvgPool1d::new(size);
        /// the mean of each channel
        GlobalAvgPool = "global_avg_pool" as "pool"
            ["globalaveragepooling2d", "globalaveragepooling1d", "globalaveragepooling3d", "globalaveragepool", "gap"],
            method global_avg_pool() => GlobalAvgPool;
        /// the largest element of each channel
        GlobalMaxPool = "global_max_pool" as "pool" ["globalmaxpooling2d", "globalmaxpooling1d", "globalmaxpooling3d"],
            method global_max_pool() => GlobalMaxPool;
        /// channels scaled by what two small layers make of their means, with ReLU and sigmoid unless they are set
        SqueezeExcite = "squeeze_excite" as "squeeze_excite",
            settings "`squeeze_channels`, `activation` (`relu`; `silu`), `scale` (`sigmoid`; `hard_sigmoid`), `init` (`fan_in`)",
            sequential squeeze_excite(squeeze_channels: usize) => SqueezeExcite::new(squeeze_channels);
        /// all axes of a sample as one
        Flatten = "flatten" as "flatten", method flatten() => Flatten;
        /// the same elements as samples of another shape
        Reshape = "reshape" as "reshape" ["view"], settings "`shape`",
            method reshape(shape: impl Into<Shape>) => Reshape::new(shape);
        /// the axes of a sample in another order
        Permute = "permute" as "permute" ["transpose"], settings "`axes`",
            method permute(axes: impl Into<Vec<usize>>) => Permute::new(axes);
        /// a value, 0 unless it is set, before and after the elements of each axis of a sample, or what the sample has there
        Pad = "pad" as "pad"
            ["zeropadding1d", "zeropadding2d", "zeropadding3d", "zeropad2d", "constantpad2d", "reflectionpad2d", "replicationpad2d"],
            settings "`pads`: before and after each axis, `value` (0), `mode` (`constant`; `reflect`, `edge`, `circular`)",
            method pad(pads: impl Into<Vec<(usize, usize)>>) => Pad::new(pads);
        /// a sample without what is before and after the middle of each axis
        Cropping = "cropping" as "cropping" ["crop", "cropping1d", "cropping2d", "cropping3d", "centercrop"],
            settings "`crops`: before and after each axis",
            method cropping(crops: impl Into<Vec<(usize, usize)>>) => Cropping::new(crops);
        /// `scale · x + offset`
        Rescaling = "rescaling" as "rescaling" ["rescale"], settings "`scale`, `offset` (0)",
            method rescaling(scale: f32, offset: f32) => Rescaling::new(scale, offset);
        /// elements of zeros with the probability `p`, the others scaled so that the mean stays
        Dropout = "dropout" as "dropout", settings "`p`: the share of elements",
            method dropout(p: f32) => Dropout::new(p);
        /// channels of zeros with the probability `p`, the others scaled so that the mean stays
        Dropout2d = "dropout2d" as "dropout" ["spatialdropout2d"], settings "`p`: the share of channels",
            method dropout2d(p: f32) => Dropout2d::new(p);
        /// samples of zeros with the probability `p`, the others scaled so that the mean stays
        StochasticDepth = "stochastic_depth" as "stochastic_depth" ["droppath", "dropconnect"],
            settings "`p`: the share of samples",
            method stochastic_depth(p: f32) => StochasticDepth::new(p);
        /// a trained row for each token below `num_embeddings`
        Embedding = "embedding" as "embedding",
            settings "`num_embeddings`, `embedding_dim`, `padding_idx` (none), `std` (1)",
            sequential embedding(num_embeddings: usize, embedding_dim: usize) =>
                Embedding::new(num_embeddings, embedding_dim);
        /// a trained vector for each place of a sequence, added to what is there
        PositionalEmbedding = "positional_embedding" as "positions", settings "`max_length`, `std` (0.02)",
            sequential positional_embedding(max_length: usize) => PositionalEmbedding::new(max_length);
        /// self-attention in which every place sees all, or with `causal` those before it
        MultiheadAttention = "multihead_attention" as "attention" ["attention", "mha", "selfattention"],
            settings "`num_heads`, `causal` (false), `dropout` (0), `bias` (true)",
            sequential multihead_attention(num_heads: usize) => MultiheadAttention::new(num_heads);
        /// gated recurrent units over the time axis; make their last hidden state unless they return sequences
        Gru = "gru" as "gru", settings "as `lstm` but `unit_forget_bias`",
            sequential gru(hidden: usize) => Gru::new(hidden);
        /// long short-term memory over the time axis; makes its last hidden state unless it returns sequences
        Lstm = "lstm" as "lstm",
            settings "`hidden`, `num_layers` (1), `bidirectional` (false), `dropout` (0) between layers, `return_sequences` (false), \
                `lengths` (false): a second input `lengths`, `stateful` (false), `window` (none): steps that gradients go back, \
                `orthogonal` (false), `unit_forget_bias` (false), `bias` (true), `recurrent_bias` (true): a second bias, which Keras's LSTM does not have",
            sequential lstm(hidden: usize) => Lstm::new(hidden);
        /// simple recurrent units with tanh over the time axis; make their last hidden state unless they return sequences
        Rnn = "rnn" as "rnn" ["simplernn", "elman"], settings "as `lstm` but `unit_forget_bias`",
            sequential rnn(hidden: usize) => Rnn::new(hidden);
        /// simple recurrent units with `max(x, 0)` over the time axis; make their last hidden state unless they return sequences
        RnnRelu = "rnn_relu" as "rnn", settings "as `lstm` but `unit_forget_bias`",
            sequential rnn_relu(hidden: usize) => RnnRelu::new(hidden);
        /// normalization of each channel by its mean and variance over the batch, with weight, bias and running statistics
        BatchNorm = "batch_norm" as "bn" ["batchnormalization", "bn"],
            settings "`eps` (1e-5), `momentum` (0.1), `affine` (true), `track_running_stats` (true), `frozen` (false), `relu` (false): a `relu` after it \
                in the same pass",
            sequential batch_norm() => BatchNorm::new();
        /// normalization of each sample over its last axis or axes
        LayerNorm = "layer_norm" as "norm" ["layernormalization", "ln"],
            settings "`dims` (1): how many last axes, `eps` (1e-5), `affine` (true), `bias` (true)",
            sequential layer_norm() => LayerNorm::new();
        /// division of each sample by its root mean square over its last axis or axes
        RmsNorm = "rms_norm" as "norm" ["rmsnormalization"], settings "`dims` (1), `eps` (1.2e-7), `affine` (true)",
            sequential rms_norm() => RmsNorm::new();
        /// normalization of each sample over groups of channels
        GroupNorm = "group_norm" as "norm" ["groupnormalization"], settings "`groups`, `eps` (1e-5), `affine` (true)",
            sequential group_norm(groups: usize) => GroupNorm::new(groups);
        /// normalization of each channel of each sample
        InstanceNorm = "instance_norm" as "norm" ["instancenormalization"], settings "`eps` (1e-5), `affine` (false)",
            sequential instance_norm() => InstanceNorm::new();
        /// images that are larger by a factor, or of a size, from the nearest pixels or by bilinear interpolation
        Upsample = "upsample" as "upsample" ["upsampling2d", "interpolate", "resize"],
            settings "`scale` or `size`, `mode` (`nearest`; `bilinear`), `align_corners` (false)",
            method upsample(scale: impl Into<Pair>) => Upsample::new(scale);
        /// sequences `[channels, length]` that are longer by a factor, or of a length, from the nearest elements or by linear interpolation
        Upsample1d = "upsample1d" as "upsample" ["upsampling1d"],
            settings "`scale` or `size`, `mode` (`nearest`; `linear`), `align_corners` (false)",
            method upsample1d(scale: usize) => Upsample1d::new(scale);
        /// remembers what the layer before it made, under a name
        Skip = "skip" as "skip" ["residual", "shortcut"], settings "`name`",
            sequential skip(name: impl Into<String>) => Skip::new(name);
        /// what a skip remembered, put after the channels that come in
        Concat = "concat" as "concat" ["concatenate", "cat"], settings "`with`: the name of a skip",
            sequential concat(with: impl Into<String>) => Concat::new(with);
        /// what a skip remembered, added to what comes in
        Add = "add" as "add" ["residual", "shortcut"], settings "`with`: the name of a skip",
            sequential add(with: impl Into<String>) => Add::new(with);
    }
}
