//! MobileNets: <https://arxiv.org/abs/1801.04381> and <https://arxiv.org/abs/1905.02244>, parameters named as torchvision
//! names them.

use super::blocks::{Activation, conv_norm, divisible};
use crate::nn::{BatchNorm, Conv2d, Dropout, Linear, Model, Scheme, SqueezeExcite, Tensor};

/// MobileNetV2 for images of 224 pixels: 3.5 million parameters for 1000 classes.
pub fn mobilenet_v2(classes: usize) -> Model {
    // Expansion, channels, blocks, stride of the first.
    let stages =
        [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)];
    Model::new("mobilenet_v2", [3, 224, 224], move |x| {
        let x = x.within("features", |x| {
            let norm = BatchNorm::new;
            let mut x = conv_norm(x, "0", Conv2d::new(32, 3).stride(2), norm(), Activation::Relu6);
            let mut number = 1;
            for (expansion, channels, blocks, first_stride) in stages {
                for i in 0..blocks {
                    let stride = if i == 0 { first_stride } else { 1 };
                    x = x.within(&number.to_string(), |x| inverted_residual(x, expansion, channels, stride));
                    number += 1;
                }
            }
            conv_norm(x, &number.to_string(), Conv2d::new(1280, 1), norm(), Activation::Relu6)
        });
        let x = x.global_avg_pool();
        x.within("classifier", |x| x.layer("0", Dropout::new(0.2)).layer("1", Linear::new(classes).init(Scheme::Small)))
    })
}

fn inverted_residual(x: Tensor<'_>, expansion: usize, channels: usize, stride: usize) -> Tensor<'_> {
    let hidden = x.channels() * expansion;
    let y = x.within("conv", |x| {
        let (mut y, mut number) = (x, 0);
        if expansion != 1 {
            y = conv_norm(y, "0", Conv2d::new(hidden, 1), BatchNorm::new(), Activation::Relu6);
            number = 1;
        }
        let depthwise = Conv2d::new(hidden, 3).stride(stride).groups(hidden);
        y = conv_norm(y, &number.to_string(), depthwise, BatchNorm::new(), Activation::Relu6);
        let project = Conv2d::new(channels, 1).bias(false).init(Scheme::KaimingNormalFanOut);
        y.layer(&(number + 1).to_string(), project).layer(&(number + 2).to_string(), BatchNorm::new())
    });
    if stride == 1 && x.channels() == channels { x + y } else { y }
}

/// A block of MobileNetV3.
#[derive(Clone, Copy)]
struct Bottleneck {
    kernel: usize,
    expanded: usize,
    channels: usize,
    squeezes: bool,
    activation: Activation,
    stride: usize,
}

const RE: Activation = Activation::Relu;
const HS: Activation = Activation::HardSwish;

/// Kernel, channels inside, channels out, whether it squeezes and excites, activation, stride.
type Row = (usize, usize, usize, bool, Activation, usize);

/// MobileNetV3-Large for images of 224 pixels: 5.5 million parameters for 1000 classes.
pub fn mobilenet_v3_large(classes: usize) -> Model {
    const ROWS: [Row; 15] = [
        (3, 16, 16, false, RE, 1),
        (3, 64, 24, false, RE, 2),
        (3, 72, 24, false, RE, 1),
        (5, 72, 40, true, RE, 2),
        (5, 120, 40, true, RE, 1),
        (5, 120, 40, true, RE, 1),
        (3, 240, 80, false, HS, 2),
        (3, 200, 80, false, HS, 1),
        (3, 184, 80, false, HS, 1),
        (3, 184, 80, false, HS, 1),
        (3, 480, 112, true, HS, 1),
        (3, 672, 112, true, HS, 1),
        (5, 672, 160, true, HS, 2),
        (5, 960, 160, true, HS, 1),
        (5, 960, 160, true, HS, 1),
    ];
    mobilenet_v3("mobilenet_v3_large", &ROWS, 1280, classes)
}

/// MobileNetV3-Small for images of 224 pixels: 2.5 million parameters for 1000 classes.
pub fn mobilenet_v3_small(classes: usize) -> Model {
    const ROWS: [Row; 11] = [
        (3, 16, 16, true, RE, 2),
        (3, 72, 24, false, RE, 2),
        (3, 88, 24, false, RE, 1),
        (5, 96, 40, true, HS, 2),
        (5, 240, 40, true, HS, 1),
        (5, 240, 40, true, HS, 1),
        (5, 120, 48, true, HS, 1),
        (5, 144, 48, true, HS, 1),
        (5, 288, 96, true, HS, 2),
        (5, 576, 96, true, HS, 1),
        (5, 576, 96, true, HS, 1),
    ];
    mobilenet_v3("mobilenet_v3_small", &ROWS, 1024, classes)
}

fn mobilenet_v3(name: &str, rows: &'static [Row], last_channels: usize, classes: usize) -> Model {
    Model::new(name, [3, 224, 224], move |x| {
        let x = x.within("features", |x| {
            let mut x = conv_norm(x, "0", Conv2d::new(16, 3).stride(2), norm(), HS);
            for (i, &(kernel, expanded, channels, squeezes, activation, stride)) in rows.iter().enumerate() {
                let block = Bottleneck { kernel, expanded, channels, squeezes, activation, stride };
                x = x.within(&(i + 1).to_string(), |x| block.apply(x));
            }
            let channels = 6 * x.channels();
            conv_norm(x, &(rows.len() + 1).to_string(), Conv2d::new(channels, 1), norm(), HS)
        });
        let x = x.global_avg_pool();
        let linear = |features| Linear::new(features).init(Scheme::Small);
        x.within("classifier", |x| {
            let x = x.layer("0", linear(last_channels)).hard_swish();
            x.layer("2", Dropout::new(0.2)).layer("3", linear(classes))
        })
    })
}

/// Batch norm as MobileNetV3 has it.
fn norm() -> BatchNorm {
    BatchNorm::new().eps(1e-3).momentum(0.01)
}

impl Bottleneck {
    fn apply(self, x: Tensor<'_>) -> Tensor<'_> {
        let y = x.within("block", |x| {
            let (mut y, mut number) = (x, 0);
            let mut next = || {
                number += 1;
                (number - 1).to_string()
            };
            if self.expanded != x.channels() {
                y = conv_norm(y, &next(), Conv2d::new(self.expanded, 1), norm(), self.activation);
            }
            let depthwise = Conv2d::new(self.expanded, self.kernel).stride(self.stride).groups(self.expanded);
            y = conv_norm(y, &next(), depthwise, norm(), self.activation);
            if self.squeezes {
                y = y.layer(&next(), SqueezeExcite::new(divisible(self.expanded / 4, 8)).hard_sigmoid());
            }
            conv_norm(y, &next(), Conv2d::new(self.channels, 1), norm(), Activation::None)
        });
        if self.stride == 1 && x.channels() == self.channels { y + x } else { y }
    }
}
