//! DenseNet: <https://arxiv.org/abs/1608.06993>, parameters named as torchvision names them.

use crate::nn::{AvgPool2d, BatchNorm, Conv2d, Linear, MaxPool2d, Model, Scheme, Tensor};

/// Channels that each layer adds.
const GROWTH: usize = 32;

/// DenseNet-121 for images of 224 pixels: 8.0 million parameters for 1000 classes.
pub fn densenet121(classes: usize) -> Model {
    Model::new("densenet121", [3, 224, 224], move |x| {
        let x = x.within("features", |x| {
            let stem = Conv2d::new(64, 7).stride(2).padding(3).bias(false).init(Scheme::KaimingNormal);
            let x = x.layer("conv0", stem).layer("norm0", BatchNorm::new()).relu();
            let mut x = x.apply(MaxPool2d::new(3).stride(2).padding(1));
            for (i, layers) in [6, 12, 24, 16].into_iter().enumerate() {
                let block = i + 1;
                x = x.within(&format!("denseblock{block}"), |x| {
                    (1..=layers).fold(x, |x, layer| x.within(&format!("denselayer{layer}"), dense_layer))
                });
                if block < 4 {
                    x = x.within(&format!("transition{block}"), transition);
                }
            }
            x.layer("norm5", BatchNorm::new()).relu()
        });
        x.global_avg_pool().layer("classifier", Linear::new(classes))
    })
}

/// What comes in, with the channels that this layer adds after it.
fn dense_layer(x: Tensor<'_>) -> Tensor<'_> {
    let y = x.layer("norm1", BatchNorm::new()).relu().layer("conv1", conv(4 * GROWTH, 1));
    let y = y.layer("norm2", BatchNorm::new()).relu().layer("conv2", conv(GROWTH, 3));
    x.concat(y, 1)
}

/// Half the channels, half the size.
fn transition(x: Tensor<'_>) -> Tensor<'_> {
    let channels = x.channels() / 2;
    let y = x.layer("norm", BatchNorm::new()).relu().layer("conv", conv(channels, 1));
    y.layer("pool", AvgPool2d::new(2))
}

fn conv(channels: usize, kernel: usize) -> Conv2d {
    Conv2d::new(channels, kernel).padding(kernel / 2).bias(false).init(Scheme::KaimingNormal)
}
