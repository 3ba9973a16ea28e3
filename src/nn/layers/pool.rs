//! Pooling.

mod bins;
mod windows;

use serde::{Deserialize, Serialize};

pub use self::bins::{AdaptiveAvgPool1d, AdaptiveAvgPool2d, GlobalAvgPool, GlobalMaxPool};
use self::windows::{Of, Pooling};
use super::conv::no_padding;
use super::linear::yes;
use super::padding::{Padding, Word};
use super::sizes::{Sides1, Sides2, Sides3};
use super::{Module, Pair, Scope, Triple};
use crate::error::GraphError;
use crate::tensor::ValueId;

/// A pooling over windows of `$size`, taken as `$from`, with `$sides` before and after each axis; `$of` is what it takes of them.
macro_rules! pool {
    (
        $(#[$meta:meta])*
        $name:ident($size:ty, $from:ty, $sides:ty $(, $(#[$doc:meta])* $include:ident)?), $of:expr
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            kernel: $size,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            stride: Option<$size>,
            #[serde(default = "no_padding")]
            padding: Padding<$size, $sides>,
            #[serde(default)]
            ceil_mode: bool,
            $(
                #[serde(default = "yes")]
                $include: bool,
            )?
        }

        impl $name {
            /// Windows of this size; the stride equals the window, no padding.
            pub fn new(kernel: $from) -> Self {
                $name {
                    kernel: kernel.into(),
                    stride: None,
                    padding: no_padding(),
                    ceil_mode: false,
                    $($include: true,)?
                }
            }

            /// Steps between windows.
            #[must_use]
            pub fn stride(mut self, stride: $from) -> Self {
                self.stride = Some(stride.into());
                self
            }

            /// Border added on each side, at most half the window.
            #[must_use]
            pub fn padding(mut self, padding: $from) -> Self {
                self.padding = Padding::Size(padding.into());
                self
            }

            /// Border added before and after each axis, the outermost first, less than the window each: `((top, bottom), (left,
            /// right))` in two dimensions.
            #[must_use]
            pub fn pads(mut self, pads: $sides) -> Self {
                self.padding = Padding::Sides(pads);
                self
            }

            /// As much border as makes the output as large as the input divided by the stride, rounded up, as Keras's "same" does:
            /// half of it on each side, and an odd one behind.
            #[must_use]
            pub fn same_padding(mut self) -> Self {
                self.padding = Padding::Word(Word::SameUpper);
                self
            }

            /// As [`same_padding`](Self::same_padding), with an odd one before.
            #[must_use]
            pub fn same_lower_padding(mut self) -> Self {
                self.padding = Padding::Word(Word::SameLower);
                self
            }

            /// Whether there is a last window for what would be left over (no by default), as long as it begins in the input or its
            /// left padding.
            #[must_use]
            pub fn ceil_mode(mut self, ceil_mode: bool) -> Self {
                self.ceil_mode = ceil_mode;
                self
            }

            $(
                $(#[$doc])*
                #[must_use]
                pub fn $include(mut self, $include: bool) -> Self {
                    self.$include = $include;
                    self
                }
            )?
        }

        impl Module for $name {
            fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
                let of: fn(&$name) -> Of = $of;
                let stride = self.stride.unwrap_or(self.kernel);
                let pooling = Pooling { kernel: self.kernel, stride, padding: self.padding, ceil_mode: self.ceil_mode };
                pooling.build(scope, input, of(self))
            }
        }
    };
}

pool! {
    /// The largest value of each window, for samples `[channels, height, width]`.
    MaxPool2d(Pair, impl Into<Pair>, Sides2), |_| Of::Largest
}

pool! {
    /// The mean of each window, for samples `[channels, height, width]`. Padding counts as zeros unless
    /// [`count_include_pad`](AvgPool2d::count_include_pad) says otherwise.
    AvgPool2d(
        Pair, impl Into<Pair>, Sides2,
        /// Whether padding counts, as zeros (yes by default, as in PyTorch; Keras does not count it).
        count_include_pad
    ),
    |layer| Of::Mean { count_include_pad: layer.count_include_pad }
}

pool! {
    /// The largest value of each window, for samples `[channels, length]`.
    MaxPool1d(usize, usize, Sides1), |_| Of::Largest
}

pool! {
    /// The mean of each window, for samples `[channels, length]`. Padding counts as zeros unless
    /// [`count_include_pad`](AvgPool1d::count_include_pad) says otherwise.
    AvgPool1d(
        usize, usize, Sides1,
        /// Whether padding counts, as zeros (yes by default, as in PyTorch; Keras does not count it).
        count_include_pad
    ),
    |layer| Of::Mean { count_include_pad: layer.count_include_pad }
}

pool! {
    /// The largest value of each window, for samples `[channels, depth, height, width]`.
    MaxPool3d(Triple, impl Into<Triple>, Sides3), |_| Of::Largest
}

pool! {
    /// The mean of each window, for samples `[channels, depth, height, width]`. Padding counts as zeros unless
    /// [`count_include_pad`](AvgPool3d::count_include_pad) says otherwise.
    AvgPool3d(
        Triple, impl Into<Triple>, Sides3,
        /// Whether padding counts, as zeros (yes by default, as in PyTorch; Keras does not count it).
        count_include_pad
    ),
    |layer| Of::Mean { count_include_pad: layer.count_include_pad }
}
