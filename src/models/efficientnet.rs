//! EfficientNet: <https://arxiv.org/abs/1905.11946>, parameters named as torchvision names them.

use super::blocks::{Activation, conv_norm};
use crate::nn::{BatchNorm, Conv2d, Dropout, Linear, Model, Scheme, SqueezeExcite, StochasticDepth, Tensor};

/// EfficientNet-B0 for images of 224 pixels: 5.3 million parameters for 1000 classes.
pub fn efficientnet_b0(classes: usize) -> Model {
    // Expansion, kernel, stride of the first block, channels, blocks.
    const STAGES: [(usize, usize, usize, usize, usize); 7] = [
        (1, 3, 1, 16, 1),
        (6, 3, 2, 24, 2),
        (6, 5, 2, 40, 2),
        (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3),
        (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    ];
    Model::new("efficientnet_b0", [3, 224, 224], move |x| {
        let x = x.within("features", |x| {
            let mut x = conv_norm(x, "0", Conv2d::new(32, 3).stride(2), BatchNorm::new(), Activation::Silu);
            let total: usize = STAGES.iter().map(|stage| stage.4).sum();
            let mut number = 0;
            for (stage, (expansion, kernel, first_stride, channels, blocks)) in STAGES.into_iter().enumerate() {
                x = x.within(&(stage + 1).to_string(), |x| {
                    (0..blocks).fold(x, |x, i| {
                        let stride = if i == 0 { first_stride } else { 1 };
                        // Later blocks are left out more often.
                        let depth = StochasticDepth::new(0.2 * number as f32 / total as f32);
                        number += 1;
                        x.within(&i.to_string(), |x| mb_conv(x, expansion, kernel, stride, channels, depth))
                    })
                });
            }
            conv_norm(x, "8", Conv2d::new(1280, 1), BatchNorm::new(), Activation::Silu)
        });
        let x = x.global_avg_pool();
        x.within("classifier", |x| x.layer("0", Dropout::new(0.2)).layer("1", Linear::new(classes).init(Scheme::Small)))
    })
}

fn mb_conv(
    x: Tensor<'_>,
    expansion: usize,
    kernel: usize,
    stride: usize,
    channels: usize,
    depth: StochasticDepth,
) -> Tensor<'_> {
    let hidden = x.channels() * expansion;
    let y = x.within("block", |x| {
        let (mut y, mut number) = (x, 0);
        let mut next = || {
            number += 1;
            (number - 1).to_string()
        };
        if expansion != 1 {
            y = conv_norm(y, &next(), Conv2d::new(hidden, 1), BatchNorm::new(), Activation::Silu);
        }
        let depthwise = Conv2d::new(hidden, kernel).stride(stride).groups(hidden);
        y = conv_norm(y, &next(), depthwise, BatchNorm::new(), Activation::Silu);
        y = y.layer(&next(), SqueezeExcite::new((x.channels() / 4).max(1)).silu());
        conv_norm(y, &next(), Conv2d::new(channels, 1), BatchNorm::new(), Activation::None)
    });
    if stride == 1 && x.channels() == channels { y.layer("stochastic_depth", depth) + x } else { y }
}
