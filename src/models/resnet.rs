//! Residual networks: <https://arxiv.org/abs/1512.03385>, with the stride of a bottleneck in its 3×3 convolution, and
//! parameters named as torchvision names them.

use crate::nn::{BatchNorm, Conv2d, GlobalAvgPool, Linear, MaxPool2d, Model, Scheme, Tensor};

/// What comes before the first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stem {
    /// A 7×7 convolution of stride 2 and a 3×3 max pooling of stride 2, for images of 224 pixels.
    ImageNet,
    /// A 3×3 convolution, for images of 32 pixels.
    Cifar,
}

/// What a residual network is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// Two 3×3 convolutions.
    Basic,
    /// 1×1, 3×3 and 1×1, which makes four times as many channels.
    Bottleneck,
}

/// ResNet-18: 11.7 million parameters for 1000 classes.
pub fn resnet18(classes: usize, stem: Stem) -> Model {
    known("resnet18", Block::Basic, [2, 2, 2, 2], classes, stem)
}

/// ResNet-34: 21.8 million parameters for 1000 classes.
pub fn resnet34(classes: usize, stem: Stem) -> Model {
    known("resnet34", Block::Basic, [3, 4, 6, 3], classes, stem)
}

/// ResNet-50: 25.6 million parameters for 1000 classes.
pub fn resnet50(classes: usize, stem: Stem) -> Model {
    known("resnet50", Block::Bottleneck, [3, 4, 6, 3], classes, stem)
}

/// ResNet-101: 44.5 million parameters for 1000 classes.
pub fn resnet101(classes: usize, stem: Stem) -> Model {
    known("resnet101", Block::Bottleneck, [3, 4, 23, 3], classes, stem)
}

/// A network with the widths of the paper.
fn known(name: &str, block: Block, depths: [usize; 4], classes: usize, stem: Stem) -> Model {
    let name = match stem {
        Stem::ImageNet => name.to_owned(),
        Stem::Cifar => format!("{name}_cifar"),
    };
    resnet(&name, block, depths, [64, 128, 256, 512], classes, stem)
}

/// A residual network of four stages with so many blocks of these widths. The stem has the width of the first stage; each
/// later stage halves the image.
pub fn resnet(name: &str, block: Block, depths: [usize; 4], widths: [usize; 4], classes: usize, stem: Stem) -> Model {
    let input = match stem {
        Stem::ImageNet => [3, 224, 224],
        Stem::Cifar => [3, 32, 32],
    };
    Model::new(name, input, move |x| {
        let x = match stem {
            Stem::ImageNet => {
                let x = x.layer("conv1", conv(widths[0], 7, 2)).layer("bn1", BatchNorm::new()).relu();
                x.layer("maxpool", MaxPool2d::new(3).stride(2).padding(1))
            }
            Stem::Cifar => x.layer("conv1", conv(widths[0], 3, 1)).layer("bn1", BatchNorm::new()).relu(),
        };
        let stages = depths.into_iter().zip(widths).enumerate();
        let x = stages.fold(x, |x, (stage, (depth, width))| {
            x.within(&format!("layer{}", stage + 1), |x| {
                (0..depth).fold(x, |x, i| {
                    let stride = if stage > 0 && i == 0 { 2 } else { 1 };
                    x.within(&i.to_string(), |x| block.apply(x, width, stride))
                })
            })
        });
        x.layer("avgpool", GlobalAvgPool).layer("fc", Linear::new(classes))
    })
}

impl Block {
    fn apply(self, x: Tensor<'_>, width: usize, stride: usize) -> Tensor<'_> {
        let bn = BatchNorm::new;
        let y = match self {
            Block::Basic => {
                let y = x.layer("conv1", conv(width, 3, stride)).layer("bn1", bn()).relu();
                y.layer("conv2", conv(width, 3, 1)).layer("bn2", bn())
            }
            Block::Bottleneck => {
                let y = x.layer("conv1", conv(width, 1, 1)).layer("bn1", bn()).relu();
                let y = y.layer("conv2", conv(width, 3, stride)).layer("bn2", bn()).relu();
                y.layer("conv3", conv(4 * width, 1, 1)).layer("bn3", bn())
            }
        };
        let shortcut = if stride != 1 || x.channels() != y.channels() {
            x.within("downsample", |x| x.layer("0", conv(y.channels(), 1, stride)).layer("1", bn()))
        } else {
            x
        };
        (y + shortcut).relu()
    }
}

fn conv(channels: usize, kernel: usize, stride: usize) -> Conv2d {
    let conv = Conv2d::new(channels, kernel).stride(stride).padding(kernel / 2).bias(false);
    conv.init(Scheme::KaimingNormalFanOut)
}
