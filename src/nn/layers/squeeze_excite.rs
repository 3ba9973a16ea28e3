use serde::{Deserialize, Serialize};

use super::{Conv2d, Module, Scheme, Scope};
use crate::error::GraphError;
use crate::ops::elementwise::hard_sigmoid::HardSigmoid;
use crate::ops::elementwise::mul_channels::MulChannels;
use crate::ops::elementwise::relu::Relu;
use crate::ops::elementwise::sigmoid::Sigmoid;
use crate::ops::elementwise::silu::Silu;
use crate::ops::pool::adaptive_avg_pool2d::AdaptiveAvgPool2d;
use crate::ops::shape::reshape::Reshape;
use crate::tensor::ValueId;

/// Scales each channel by what two layers make of the means of all channels, for samples `[channels, height, width]`:
/// `x · scale(fc2(activation(fc1(mean(x)))))`, after <https://arxiv.org/abs/1709.01507>.
///
/// Parameters, named and shaped as those of torchvision's `SqueezeExcitation`: `fc1.weight [squeeze_channels, channels, 1, 1]`,
/// `fc1.bias [squeeze_channels]`, `fc2.weight [channels, squeeze_channels, 1, 1]`, `fc2.bias [channels]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqueezeExcite {
    squeeze_channels: usize,
    #[serde(default)]
    activation: Activation,
    #[serde(default)]
    scale: Scale,
    #[serde(default)]
    init: Scheme,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Activation {
    #[default]
    Relu,
    Silu,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Scale {
    #[default]
    Sigmoid,
    HardSigmoid,
}

impl SqueezeExcite {
    /// With this many channels between its two layers; ReLU after the first, sigmoid after the second.
    pub fn new(squeeze_channels: usize) -> Self {
        SqueezeExcite {
            squeeze_channels,
            activation: Activation::default(),
            scale: Scale::default(),
            init: Scheme::default(),
        }
    }

    /// SiLU after the first layer.
    #[must_use]
    pub fn silu(mut self) -> Self {
        self.activation = Activation::Silu;
        self
    }

    /// Hard sigmoid after the second layer.
    #[must_use]
    pub fn hard_sigmoid(mut self) -> Self {
        self.scale = Scale::HardSigmoid;
        self
    }

    /// How weights and biases start.
    #[must_use]
    pub fn init(mut self, init: Scheme) -> Self {
        self.init = init;
        self
    }
}

impl Module for SqueezeExcite {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        scope.check_setting("squeeze_channels", self.squeeze_channels, 1)?;
        let shape = scope.shape(input);
        let [samples, channels, _, _] = shape[..] else {
            return Err(scope.wrong_input("a sample of shape [channels, height, width]", &shape, ""));
        };
        let layer = |out_channels: usize| Conv2d::new(out_channels, 1).init(self.init);
        let means = scope.apply(AdaptiveAvgPool2d { output: [1, 1] }, &[input])?;
        let squeezed = scope.layer("fc1", &layer(self.squeeze_channels), means)?;
        let squeezed = match self.activation {
            Activation::Relu => scope.apply(Relu, &[squeezed])?,
            Activation::Silu => scope.apply(Silu, &[squeezed])?,
        };
        let excited = scope.layer("fc2", &layer(channels), squeezed)?;
        let scale = match self.scale {
            Scale::Sigmoid => scope.apply(Sigmoid, &[excited])?,
            Scale::HardSigmoid => scope.apply(HardSigmoid, &[excited])?,
        };
        let scale = scope.apply(Reshape { shape: [samples, channels].into() }, &[scale])?;
        scope.apply(MulChannels, &[input, scale])
    }
}
