//! VGG: <https://arxiv.org/abs/1409.1556>, parameters named as torchvision names them.

use crate::nn::{AdaptiveAvgPool2d, Conv2d, Dropout, Linear, Model, Scheme};

/// VGG-16 without batch norm, for images of 224 pixels: 138 million parameters for 1000 classes, most of them in the first
/// linear layer.
pub fn vgg16(classes: usize) -> Model {
    Model::new("vgg16", [3, 224, 224], move |x| {
        let x = x.within("features", |mut x| {
            // Layers are numbered through, activations and poolings among them.
            let mut number = 0;
            for (convs, channels) in [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)] {
                for _ in 0..convs {
                    let conv = Conv2d::new(channels, 3).padding(1).init(Scheme::KaimingNormalFanOut);
                    x = x.layer(&number.to_string(), conv).relu();
                    number += 2;
                }
                x = x.max_pool2d(2);
                number += 1;
            }
            x
        });
        let x = x.layer("avgpool", AdaptiveAvgPool2d::new(7)).flatten();
        let linear = |features| Linear::new(features).init(Scheme::Small);
        x.within("classifier", |x| {
            let x = x.layer("0", linear(4096)).relu().layer("2", Dropout::new(0.5));
            let x = x.layer("3", linear(4096)).relu().layer("5", Dropout::new(0.5));
            x.layer("6", linear(classes))
        })
    })
}
