use serde::{Deserialize, Serialize};

use super::linear::yes;
use super::{Module, Pair, Scheme, Scope};
use crate::error::GraphError;
use crate::ops::conv::{conv_transpose2d, conv2d};
use crate::ops::shape::reshape::Reshape;
use crate::tensor::{ValueId, plural};

/// Zeros on each side of what is convolved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a size, like 1 or [1, 2], or \"same\"")]
enum Padding<S> {
    Size(S),
    Same(Word),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Word {
    #[serde(rename = "same")]
    Same,
}

impl<S> From<S> for Padding<S> {
    fn from(size: S) -> Self {
        Padding::Size(size)
    }
}

pub(super) fn one<S: From<usize>>() -> S {
    1.into()
}

pub(super) fn zero<S: From<usize>>() -> S {
    0.into()
}

fn no_padding<S: From<usize>>() -> Padding<S> {
    Padding::Size(zero())
}

/// The settings that convolutions share. A size along the axes is `$size`, taken as `$from`; `$padding` is the type of the
/// padding and `$none` a path to what it is by default; `$more` are sizes that are 0 by default.
macro_rules! convolution {
    (
        $(#[$meta:meta])*
        $name:ident($size:ty, $from:ty, $padding:ty, $none:literal $(, $(#[$doc:meta])* $more:ident)*)
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            out_channels: usize,
            kernel: $size,
            #[serde(default = "one")]
            stride: $size,
            #[serde(default = $none)]
            padding: $padding,
            $(
                #[serde(default = "zero")]
                $more: $size,
            )*
            #[serde(default = "one")]
            dilation: $size,
            #[serde(default = "one")]
            groups: usize,
            #[serde(default = "yes")]
            bias: bool,
            #[serde(default)]
            init: Scheme,
        }

        impl $name {
            /// With this many filters of this size; stride 1, no padding, no dilation, one group, with bias.
            pub fn new(out_channels: usize, kernel: $from) -> Self {
                let nothing: $size = zero();
                $name {
                    out_channels,
                    kernel: kernel.into(),
                    stride: one(),
                    padding: nothing.into(),
                    $($more: zero(),)*
                    dilation: one(),
                    groups: 1,
                    bias: true,
                    init: Scheme::default(),
                }
            }

            /// Steps between windows.
            #[must_use]
            pub fn stride(mut self, stride: $from) -> Self {
                self.stride = stride.into();
                self
            }

            /// Zeros added on each side; a transposed convolution leaves out as much of its output.
            #[must_use]
            pub fn padding(mut self, padding: $from) -> Self {
                let size: $size = padding.into();
                self.padding = size.into();
                self
            }

            $(
                $(#[$doc])*
                #[must_use]
                pub fn $more(mut self, $more: $from) -> Self {
                    self.$more = $more.into();
                    self
                }
            )*

            /// Distance between the taps of a filter.
            #[must_use]
            pub fn dilation(mut self, dilation: $from) -> Self {
                self.dilation = dilation.into();
                self
            }

            /// Number of groups that channels are cut into; as many as there are channels makes it depthwise.
            #[must_use]
            pub fn groups(mut self, groups: usize) -> Self {
                self.groups = groups;
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
        }
    };
}

convolution! {
    /// Two-dimensional convolution of samples `[channels, height, width]`.
    ///
    /// Parameters: `weight [out_channels, in_channels / groups, kernel_h, kernel_w]`, `bias [out_channels]`. How they start is
    /// said by [`Scheme`], with `fan_in = in_channels / groups · kernel_h · kernel_w`.
    Conv2d(Pair, impl Into<Pair>, Padding<Pair>, "no_padding")
}

convolution! {
    /// Convolution of samples `[channels, length]`, such as sequences `[time, features]` after a
    /// [`Permute`](super::Permute) by `[1, 0]`.
    ///
    /// Parameters: `weight [out_channels, in_channels / groups, kernel]`, `bias [out_channels]`. How they start is said by
    /// [`Scheme`], with `fan_in = in_channels / groups · kernel`.
    Conv1d(usize, usize, Padding<usize>, "no_padding")
}

convolution! {
    /// Two-dimensional transposed convolution of samples `[channels, height, width]`: makes images larger by its stride.
    ///
    /// Parameters: `weight [in_channels, out_channels / groups, kernel_h, kernel_w]`, `bias [out_channels]`. How they start is
    /// said by [`Scheme`], with `fan_in = out_channels / groups · kernel_h · kernel_w`, as PyTorch counts here.
    ConvTranspose2d(
        Pair, impl Into<Pair>, Pair, "zero",
        /// Rows and columns added at the end of the output.
        output_padding
    )
}

macro_rules! same_padding {
    ($($name:ident)*) => {$(
        impl $name {
            /// As many zeros on each side as keep the size where the stride is 1: `dilation · (kernel − 1) / 2`. The kernel's
            /// extents must be odd.
            #[must_use]
            pub fn same_padding(mut self) -> Self {
                self.padding = Padding::Same(Word::Same);
                self
            }
        }
    )*};
}

same_padding!(Conv1d Conv2d);

/// Channels can be cut into groups.
fn check_groups(scope: &Scope<'_>, groups: usize, in_channels: usize, out_channels: usize) -> Result<(), GraphError> {
    scope.check_setting("out_channels", out_channels, 1)?;
    scope.check_setting("groups", groups, 1)?;
    if in_channels.is_multiple_of(groups) && out_channels.is_multiple_of(groups) {
        return Ok(());
    }
    Err(scope.error(format!(
        "groups = {groups} must divide both {}, which come in, and out_channels = {out_channels}",
        plural(in_channels, "channel")
    )))
}

/// The extents of a batch of images.
fn image(scope: &Scope<'_>, input: ValueId) -> Result<[usize; 4], GraphError> {
    let shape = scope.shape(input);
    let expected = "a sample of shape [channels, height, width]";
    shape.try_into().map_err(|shape: Vec<usize>| {
        // With more extents it is rather a batch.
        let advice = if shape.len() < 4 { "put reshape before it" } else { "" };
        scope.wrong_input(expected, &shape, advice)
    })
}

impl Conv2d {
    fn pads(&self, scope: &Scope<'_>) -> Result<Pair, GraphError> {
        let (Pair(h, w), Pair(dilation_h, dilation_w)) = (self.kernel, self.dilation);
        match self.padding {
            Padding::Size(size) => Ok(size),
            Padding::Same(Word::Same) if h % 2 == 1 && w % 2 == 1 => {
                Ok(Pair(dilation_h * (h - 1) / 2, dilation_w * (w - 1) / 2))
            }
            Padding::Same(Word::Same) => {
                Err(scope.error(format!("same padding needs a kernel of odd extents, found ({h}, {w})")))
            }
        }
    }

    /// Adds the convolution of a batch of images. Where they are sequences, of height 1, the weights have no axis for it.
    fn convolve(&self, scope: &mut Scope<'_>, input: ValueId, is_sequence: bool) -> Result<ValueId, GraphError> {
        scope.check_pair("kernel", self.kernel, 1)?;
        scope.check_pair("stride", self.stride, 1)?;
        scope.check_pair("dilation", self.dilation, 1)?;
        let padding = self.pads(scope)?;
        scope.check_pair("padding", padding, 0)?;
        let [_, in_channels, height, width] = image(scope, input)?;
        check_groups(scope, self.groups, in_channels, self.out_channels)?;
        let extents = [
            (height, self.kernel.0, padding.0, self.dilation.0, "high"),
            (width, self.kernel.1, padding.1, self.dilation.1, if is_sequence { "long" } else { "wide" }),
        ];
        for (size, kernel, padding, dilation, word) in extents {
            let window = dilation * (kernel - 1) + 1;
            let padded = size + 2 * padding;
            if window > padded {
                let what = if is_sequence { "a sequence" } else { "an image" };
                return Err(scope.error(format!(
                    "a window {window} {word} does not fit {what} {padded} {word} (padding counted); use a smaller kernel or dilation, or more padding"
                )));
            }
        }
        let per_group = in_channels / self.groups;
        let Pair(kernel_h, kernel_w) = self.kernel;
        let taps = kernel_h * kernel_w;
        let (weight_init, bias_init) = self.init.init(per_group * taps, self.out_channels * taps);
        let full = [self.out_channels, per_group, kernel_h, kernel_w];
        let weight = if is_sequence {
            let weight = scope.parameter("weight", [self.out_channels, per_group, kernel_w], weight_init)?;
            scope.apply(Reshape { shape: full.into() }, &[weight])?
        } else {
            scope.parameter("weight", full, weight_init)?
        };
        let mut inputs = vec![input, weight];
        if self.bias {
            inputs.push(scope.parameter("bias", [self.out_channels], bias_init)?);
        }
        let op = conv2d::Conv2d {
            stride: self.stride.into(),
            padding: padding.into(),
            dilation: self.dilation.into(),
            groups: self.groups,
            bias: self.bias,
            relu: false,
        };
        scope.apply(op, &inputs)
    }
}

impl Module for Conv2d {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        self.convolve(scope, input, false)
    }
}

impl Module for Conv1d {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let shape = scope.shape(input);
        let [samples, channels, length] = shape[..] else {
            return Err(scope.wrong_input("a sample of shape [channels, length]", &shape, ""));
        };
        let row = Conv2d {
            out_channels: self.out_channels,
            kernel: Pair(1, self.kernel),
            stride: Pair(1, self.stride),
            padding: match self.padding {
                Padding::Size(size) => Padding::Size(Pair(0, size)),
                Padding::Same(word) => Padding::Same(word),
            },
            dilation: Pair(1, self.dilation),
            groups: self.groups,
            bias: self.bias,
            init: self.init,
        };
        let rows = scope.apply(Reshape { shape: [samples, channels, 1, length].into() }, &[input])?;
        let output = row.convolve(scope, rows, true)?;
        let length = scope.shape(output)[3];
        scope.apply(Reshape { shape: [samples, self.out_channels, length].into() }, &[output])
    }
}

impl Module for ConvTranspose2d {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        scope.check_pair("kernel", self.kernel, 1)?;
        scope.check_pair("stride", self.stride, 1)?;
        scope.check_pair("padding", self.padding, 0)?;
        scope.check_pair("output_padding", self.output_padding, 0)?;
        scope.check_pair("dilation", self.dilation, 1)?;
        let [_, in_channels, ..] = image(scope, input)?;
        check_groups(scope, self.groups, in_channels, self.out_channels)?;
        let per_group = self.out_channels / self.groups;
        let Pair(kernel_h, kernel_w) = self.kernel;
        let taps = kernel_h * kernel_w;
        let (weight_init, bias_init) = self.init.init(per_group * taps, in_channels * taps);
        let weight = scope.parameter("weight", [in_channels, per_group, kernel_h, kernel_w], weight_init)?;
        let mut inputs = vec![input, weight];
        if self.bias {
            inputs.push(scope.parameter("bias", [self.out_channels], bias_init)?);
        }
        let op = conv_transpose2d::ConvTranspose2d {
            stride: self.stride.into(),
            padding: self.padding.into(),
            output_padding: self.output_padding.into(),
            dilation: self.dilation.into(),
            groups: self.groups,
            bias: self.bias,
        };
        scope.apply(op, &inputs)
    }
}
