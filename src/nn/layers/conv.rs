//! Convolutions: what their settings share, and those of one and two dimensions.

mod separable;
mod transposed;
mod volume;

use serde::{Deserialize, Serialize};

pub use self::separable::{DepthwiseConv2d, SeparableConv2d};
use super::linear::yes;
use super::padding::{Padding, Window, Word, check, for_op};
use super::sizes::{Extents, Sides1, Sides2, Sides3};
use super::{Module, Pair, Scheme, Scope, Triple};
use crate::error::GraphError;
use crate::ops::conv::conv2d;
use crate::ops::shape::reshape::Reshape;
use crate::tensor::{ValueId, plural};

pub(super) fn one<S: From<usize>>() -> S {
    1.into()
}

pub(super) fn zero<S: From<usize>>() -> S {
    0.into()
}

pub(super) fn no_padding<S: From<usize>, P>() -> Padding<S, P> {
    Padding::Size(zero())
}

/// The settings that convolutions share. A size along the axes is `$size`, taken as `$from`; `$sides` are numbers before and after
/// each; `$more` are sizes that are 0 by default.
macro_rules! convolution {
    (
        $(#[$meta:meta])*
        $name:ident($size:ty, $from:ty, $sides:ty $(, $(#[$doc:meta])* $more:ident)*)
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            out_channels: usize,
            kernel: $size,
            #[serde(default = "one")]
            stride: $size,
            #[serde(default = "no_padding")]
            padding: Padding<$size, $sides>,
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
                $name {
                    out_channels,
                    kernel: kernel.into(),
                    stride: one(),
                    padding: no_padding(),
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
                self.padding = Padding::Size(padding.into());
                self
            }

            /// Zeros added before and after each axis, the outermost first: `((top, bottom), (left, right))` in two dimensions.
            #[must_use]
            pub fn pads(mut self, pads: $sides) -> Self {
                self.padding = Padding::Sides(pads);
                self
            }

            /// As many zeros as make the output as large as the input divided by the stride, rounded up, as Keras's "same" does:
            /// half of them on each side, and an odd one behind. A transposed convolution makes its input times the stride.
            #[must_use]
            pub fn same_upper_padding(mut self) -> Self {
                self.padding = Padding::Word(Word::SameUpper);
                self
            }

            /// As [`same_upper_padding`](Self::same_upper_padding), with an odd one before.
            #[must_use]
            pub fn same_lower_padding(mut self) -> Self {
                self.padding = Padding::Word(Word::SameLower);
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
    Conv2d(Pair, impl Into<Pair>, Sides2)
}

convolution! {
    /// Convolution of samples `[channels, length]`, such as sequences `[time, features]` after a
    /// [`Permute`](super::Permute) by `[1, 0]`.
    ///
    /// Parameters: `weight [out_channels, in_channels / groups, kernel]`, `bias [out_channels]`. How they start is said by
    /// [`Scheme`], with `fan_in = in_channels / groups · kernel`.
    Conv1d(usize, usize, Sides1)
}

convolution! {
    /// Three-dimensional convolution of samples `[channels, depth, height, width]`.
    ///
    /// Parameters: `weight [out_channels, in_channels / groups, kernel_d, kernel_h, kernel_w]`, `bias [out_channels]`. How they
    /// start is said by [`Scheme`], with `fan_in = in_channels / groups · kernel_d · kernel_h · kernel_w`.
    ///
    /// **Memory.** It is a two-dimensional one of the planes that a window meets, put side by side as channels: a copy of the input
    /// `kernel_d` times as large, divided by the stride along the depth.
    Conv3d(Triple, impl Into<Triple>, Sides3)
}

convolution! {
    /// Two-dimensional transposed convolution of samples `[channels, height, width]`: makes images larger by its stride.
    ///
    /// Parameters: `weight [in_channels, out_channels / groups, kernel_h, kernel_w]`, `bias [out_channels]`. How they start is
    /// said by [`Scheme`], with `fan_in = out_channels / groups · kernel_h · kernel_w`, as PyTorch counts here.
    ConvTranspose2d(
        Pair, impl Into<Pair>, Sides2,
        /// Rows and columns added at the end of the output.
        output_padding
    )
}

convolution! {
    /// Transposed convolution of samples `[channels, length]`: makes sequences longer by its stride.
    ///
    /// Parameters: `weight [in_channels, out_channels / groups, kernel]`, `bias [out_channels]`. How they start is said by
    /// [`Scheme`], with `fan_in = out_channels / groups · kernel`, as PyTorch counts here.
    ConvTranspose1d(
        usize, usize, Sides1,
        /// Elements added at the end of the output.
        output_padding
    )
}

macro_rules! same_padding {
    ($($name:ident)*) => {$(
        impl $name {
            /// As many zeros as keep the size where the stride is 1, `dilation · (kernel − 1)` in all, as PyTorch's "same" does: half of
            /// them on each side, and an odd one behind. With a larger stride they are as many.
            #[must_use]
            pub fn same_padding(mut self) -> Self {
                self.padding = Padding::Word(Word::Same);
                self
            }
        }
    )*};
}

same_padding!(Conv1d Conv2d Conv3d);

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

/// Windows fit what they are moved over, of which there is so much with its padding along each axis.
fn check_windows<const N: usize>(
    scope: &Scope<'_>,
    windows: [Window; N],
    sides: [(usize, usize); N],
    words: [&str; N],
    what: &str,
) -> Result<(), GraphError> {
    for ((window, (before, after)), word) in windows.into_iter().zip(sides).zip(words) {
        let (reach, padded) = (window.reach(), window.input + before + after);
        if reach > padded {
            return Err(scope.error(format!(
                "a window {reach} {word} does not fit {what} {padded} {word} (padding counted); use a smaller kernel or dilation, or more padding"
            )));
        }
    }
    Ok(())
}

/// Settings of convolutions along each axis.
fn windows<const N: usize, S: Extents<N>>(inputs: [usize; N], [kernel, stride, dilation]: [S; 3]) -> [Window; N] {
    let [kernel, stride, dilation] = [kernel, stride, dilation].map(Extents::extents);
    std::array::from_fn(|d| Window { input: inputs[d], kernel: kernel[d], stride: stride[d], dilation: dilation[d] })
}

impl Conv2d {
    /// Adds the convolution of a batch of images. Where they are sequences, of height 1, the weights have no axis for it.
    fn convolve(&self, scope: &mut Scope<'_>, input: ValueId, is_sequence: bool) -> Result<ValueId, GraphError> {
        scope.check_pair("kernel", self.kernel, 1)?;
        scope.check_pair("stride", self.stride, 1)?;
        scope.check_pair("dilation", self.dilation, 1)?;
        let [_, in_channels, height, width] = image(scope, input)?;
        let windows = windows([height, width], [self.kernel, self.stride, self.dilation]);
        let sides = self.padding.sides(windows);
        check(scope, &sides)?;
        check_groups(scope, self.groups, in_channels, self.out_channels)?;
        let (what, wide) = if is_sequence { ("a sequence", "long") } else { ("an image", "wide") };
        check_windows(scope, windows, sides, ["high", wide], what)?;
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
        let (padding, padding_end) = for_op(sides);
        let op = conv2d::Conv2d {
            stride: self.stride.into(),
            padding,
            padding_end,
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

/// Sequences as images of height 1.
pub(super) fn as_rows(scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
    let shape = scope.shape(input);
    let [samples, channels, length] = shape[..] else {
        return Err(scope.wrong_input("a sample of shape [channels, length]", &shape, ""));
    };
    scope.apply(Reshape { shape: [samples, channels, 1, length].into() }, &[input])
}

/// Images of height 1 as sequences.
pub(super) fn as_sequences(scope: &mut Scope<'_>, rows: ValueId) -> Result<ValueId, GraphError> {
    let shape = scope.shape(rows);
    scope.apply(Reshape { shape: [shape[0], shape[1], shape[3]].into() }, &[rows])
}

/// The same padding of sequences that are images of height 1.
pub(super) fn padding_of_rows(padding: Padding<usize, Sides1>) -> Padding<Pair, Sides2> {
    match padding {
        Padding::Size(size) => Padding::Size(Pair(0, size)),
        Padding::Sides(sides) => Padding::Sides(((0, 0), sides)),
        Padding::Word(word) => Padding::Word(word),
    }
}

impl Module for Conv1d {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let row = Conv2d {
            out_channels: self.out_channels,
            kernel: Pair(1, self.kernel),
            stride: Pair(1, self.stride),
            padding: padding_of_rows(self.padding),
            dilation: Pair(1, self.dilation),
            groups: self.groups,
            bias: self.bias,
            init: self.init,
        };
        let rows = as_rows(scope, input)?;
        let output = row.convolve(scope, rows, true)?;
        as_sequences(scope, output)
    }
}
