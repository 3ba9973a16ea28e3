//! Convolutions of each channel by itself.

use serde::{Deserialize, Serialize};

use super::{Conv2d, image, no_padding, one};
use crate::error::GraphError;
use crate::nn::layers::linear::yes;
use crate::nn::layers::padding::{Padding, Word};
use crate::nn::layers::sizes::Sides2;
use crate::nn::layers::{Module, Pair};
use crate::nn::{Scheme, Scope};
use crate::tensor::ValueId;

/// The settings that both share: `$first` are those before the kernel, with what `new` takes of them.
macro_rules! separable {
    ($(#[$meta:meta])* $name:ident($($(#[$doc:meta])* $first:ident),*)) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($first: usize,)*
            kernel: Pair,
            #[serde(default = "one")]
            depth_multiplier: usize,
            #[serde(default = "one")]
            stride: Pair,
            #[serde(default = "no_padding")]
            padding: Padding<Pair, Sides2>,
            #[serde(default = "one")]
            dilation: Pair,
            #[serde(default = "yes")]
            bias: bool,
            #[serde(default)]
            init: Scheme,
        }

        impl $name {
            /// Windows of this size; one filter for each channel, stride 1, no padding, no dilation, with bias.
            pub fn new($($first: usize,)* kernel: impl Into<Pair>) -> Self {
                $name {
                    $($first,)*
                    kernel: kernel.into(),
                    depth_multiplier: 1,
                    stride: one(),
                    padding: no_padding(),
                    dilation: one(),
                    bias: true,
                    init: Scheme::default(),
                }
            }

            /// Filters of each channel, whose outputs lie beside one another.
            #[must_use]
            pub fn depth_multiplier(mut self, depth_multiplier: usize) -> Self {
                self.depth_multiplier = depth_multiplier;
                self
            }

            /// Steps between windows.
            #[must_use]
            pub fn stride(mut self, stride: impl Into<Pair>) -> Self {
                self.stride = stride.into();
                self
            }

            /// Zeros added on each side.
            #[must_use]
            pub fn padding(mut self, padding: impl Into<Pair>) -> Self {
                self.padding = Padding::Size(padding.into());
                self
            }

            /// Zeros added before and after each axis: `((top, bottom), (left, right))`.
            #[must_use]
            pub fn pads(mut self, pads: Sides2) -> Self {
                self.padding = Padding::Sides(pads);
                self
            }

            /// As [`Conv2d::same_padding`].
            #[must_use]
            pub fn same_padding(mut self) -> Self {
                self.padding = Padding::Word(Word::Same);
                self
            }

            /// As [`Conv2d::same_upper_padding`]: Keras's "same".
            #[must_use]
            pub fn same_upper_padding(mut self) -> Self {
                self.padding = Padding::Word(Word::SameUpper);
                self
            }

            /// As [`Conv2d::same_lower_padding`].
            #[must_use]
            pub fn same_lower_padding(mut self) -> Self {
                self.padding = Padding::Word(Word::SameLower);
                self
            }

            /// Distance between the taps of a filter.
            #[must_use]
            pub fn dilation(mut self, dilation: impl Into<Pair>) -> Self {
                self.dilation = dilation.into();
                self
            }

            /// Whether a bias is added (yes by default).
            #[must_use]
            pub fn bias(mut self, bias: bool) -> Self {
                self.bias = bias;
                self
            }

            /// How weights and bias start.
            #[must_use]
            pub fn init(mut self, init: Scheme) -> Self {
                self.init = init;
                self
            }

            /// The convolution of each channel by itself.
            fn depthwise(&self, scope: &Scope<'_>, input: ValueId, bias: bool) -> Result<Conv2d, GraphError> {
                scope.check_setting("depth_multiplier", self.depth_multiplier, 1)?;
                let [_, channels, ..] = image(scope, input)?;
                Ok(Conv2d {
                    out_channels: channels.saturating_mul(self.depth_multiplier),
                    kernel: self.kernel,
                    stride: self.stride,
                    padding: self.padding,
                    dilation: self.dilation,
                    groups: channels,
                    bias,
                    init: self.init,
                })
            }
        }
    };
}

separable! {
    /// Convolution of each channel of samples `[channels, height, width]` by itself: output channel `c · depth_multiplier + m` is
    /// filter m of channel c.
    ///
    /// Parameters: `weight [channels · depth_multiplier, 1, kernel_h, kernel_w]`, `bias [channels · depth_multiplier]`, which start as
    /// those of a [`Conv2d`] of as many groups as channels.
    DepthwiseConv2d()
}

separable! {
    /// Convolution of each channel of samples `[channels, height, width]` by itself, and then one of 1 by 1 that mixes them.
    ///
    /// Parameters: `depthwise.weight [channels · depth_multiplier, 1, kernel_h, kernel_w]`,
    /// `pointwise.weight [out_channels, channels · depth_multiplier, 1, 1]`, `pointwise.bias [out_channels]`.
    SeparableConv2d(out_channels)
}

impl Module for DepthwiseConv2d {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        self.depthwise(scope, input, self.bias)?.build(scope, input)
    }
}

impl Module for SeparableConv2d {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        scope.check_setting("out_channels", self.out_channels, 1)?;
        let depthwise = self.depthwise(scope, input, false)?;
        let apart = scope.layer("depthwise", &depthwise, input)?;
        let pointwise = Conv2d::new(self.out_channels, 1).bias(self.bias).init(self.init);
        scope.layer("pointwise", &pointwise, apart)
    }
}
