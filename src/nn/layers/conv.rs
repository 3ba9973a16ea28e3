use serde::{Deserialize, Serialize};

use super::linear::yes;
use super::{Module, Pair, Scheme, Scope};
use crate::error::GraphError;
use crate::ops::conv2d;
use crate::tensor::ValueId;

/// Two-dimensional convolution of samples `[channels, height, width]`.
///
/// Parameters: `weight [out_channels, in_channels / groups, kernel_h, kernel_w]`, `bias [out_channels]`. How they start is
/// said by [`Scheme`], with `fan_in = in_channels / groups · kernel_h · kernel_w`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conv2d {
    out_channels: usize,
    kernel: Pair,
    #[serde(default = "one")]
    stride: Pair,
    #[serde(default = "zero")]
    padding: Pair,
    #[serde(default = "one")]
    dilation: Pair,
    #[serde(default = "one_group")]
    groups: usize,
    #[serde(default = "yes")]
    bias: bool,
    #[serde(default)]
    init: Scheme,
}

pub(super) fn one() -> Pair {
    Pair(1, 1)
}

pub(super) fn zero() -> Pair {
    Pair(0, 0)
}

fn one_group() -> usize {
    1
}

impl Conv2d {
    /// A convolution with this many filters of this size; stride 1, no padding, no dilation, one group, with bias.
    pub fn new(out_channels: usize, kernel: impl Into<Pair>) -> Self {
        Conv2d {
            out_channels,
            kernel: kernel.into(),
            stride: one(),
            padding: zero(),
            dilation: one(),
            groups: 1,
            bias: true,
            init: Scheme::default(),
        }
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
        self.padding = padding.into();
        self
    }

    /// Distance between the taps of a filter.
    #[must_use]
    pub fn dilation(mut self, dilation: impl Into<Pair>) -> Self {
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

impl Module for Conv2d {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        scope.check_setting("out_channels", self.out_channels, 1)?;
        scope.check_setting("groups", self.groups, 1)?;
        scope.check_pair("kernel", self.kernel, 1)?;
        scope.check_pair("stride", self.stride, 1)?;
        scope.check_pair("padding", self.padding, 0)?;
        scope.check_pair("dilation", self.dilation, 1)?;
        let shape = scope.shape(input);
        let [_, in_channels, height, width] = shape[..] else {
            return Err(scope.wrong_input(
                "a sample of shape [channels, height, width]",
                &shape,
                "put reshape before it",
            ));
        };
        if !in_channels.is_multiple_of(self.groups) || !self.out_channels.is_multiple_of(self.groups) {
            return Err(scope.error(format!(
                "groups = {} must divide both the {in_channels} channels that come in and out_channels = {}",
                self.groups, self.out_channels
            )));
        }
        let extents = [
            (height, self.kernel.0, self.padding.0, self.dilation.0, "high"),
            (width, self.kernel.1, self.padding.1, self.dilation.1, "wide"),
        ];
        for (size, kernel, padding, dilation, word) in extents {
            let window = dilation * (kernel - 1) + 1;
            let padded = size + 2 * padding;
            if window > padded {
                return Err(scope.error(format!(
                    "a window {window} {word} does not fit an image {padded} {word} (padding counted); use a smaller kernel or dilation, or more padding"
                )));
            }
        }
        let per_group = in_channels / self.groups;
        let Pair(kernel_h, kernel_w) = self.kernel;
        let taps = kernel_h * kernel_w;
        let (weight_init, bias_init) = self.init.init(per_group * taps, self.out_channels * taps);
        let weight = scope.parameter("weight", [self.out_channels, per_group, kernel_h, kernel_w], weight_init)?;
        let mut inputs = vec![input, weight];
        if self.bias {
            inputs.push(scope.parameter("bias", [self.out_channels], bias_init)?);
        }
        let op = conv2d::Conv2d {
            stride: self.stride.into(),
            padding: self.padding.into(),
            dilation: self.dilation.into(),
            groups: self.groups,
            bias: self.bias,
            relu: false,
        };
        scope.apply(op, &inputs)
    }
}
