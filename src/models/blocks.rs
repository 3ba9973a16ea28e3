//! What several models are made of.

use crate::nn::{BatchNorm, Conv2d, Relu6, Scheme, Tensor};

/// What follows a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    None,
    Relu,
    Relu6,
    HardSwish,
    Silu,
}

impl Activation {
    fn apply(self, x: Tensor<'_>) -> Tensor<'_> {
        match self {
            Activation::None => x,
            Activation::Relu => x.relu(),
            Activation::Relu6 => x.apply(Relu6),
            Activation::HardSwish => x.hard_swish(),
            Activation::Silu => x.silu(),
        }
    }
}

/// A convolution without bias that keeps the size of the image but for its stride, batch norm and an activation: layers
/// `<name>.0` and `<name>.1`.
pub(super) fn conv_norm<'a>(
    x: Tensor<'a>,
    name: &str,
    conv: Conv2d,
    norm: BatchNorm,
    activation: Activation,
) -> Tensor<'a> {
    let conv = conv.same_padding().bias(false).init(Scheme::KaimingNormalFanOut);
    x.within(name, |x| activation.apply(x.layer("0", conv).layer("1", norm)))
}

/// The multiple of `divisor` that is nearest to a number of channels, at least one, and not below nine tenths of it.
pub(super) fn divisible(channels: usize, divisor: usize) -> usize {
    let nearest = ((channels + divisor / 2) / divisor * divisor).max(divisor);
    if nearest * 10 < channels * 9 { nearest + divisor } else { nearest }
}

#[cfg(test)]
mod tests {
    use super::divisible;

    #[test]
    fn channels_are_rounded_as_in_the_papers() {
        let rounded = [(4, 8), (16, 16), (18, 24), (24, 24), (30, 32), (120, 120), (168, 168), (60, 64), (11, 16)];
        for (channels, expected) in rounded {
            assert_eq!(divisible(channels, 8), expected, "{channels}");
        }
    }
}
