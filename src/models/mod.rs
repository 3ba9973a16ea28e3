//! Built-in models, by the names that the command line takes.
//!
//! | name | what |
//! |---|---|
//! | `mnist-mlp`, `mnist-cnn`, `mnist-lstm`, `mnist-deep`, `mnist-unet` | small models of 28×28 images in ten classes |
//! | `lenet` | [`lenet`]: LeNet-5 |
//! | `resnet18`, `resnet34`, `resnet50`, `resnet101` | [`resnet50`] and the like, for ImageNet |
//! | `resnet18_cifar` | [`resnet18`] for images of 32 pixels in ten classes |
//! | `vgg16` | [`vgg16`] |
//! | `mobilenet_v2`, `mobilenet_v3_small`, `mobilenet_v3_large` | [`mobilenet_v2`] and the like |
//! | `efficientnet_b0` | [`efficientnet_b0`] |
//! | `densenet121` | [`densenet121`] |
//! | `unet`, `unet_small` | [`unet`]: segmentation of images into two classes; with a quarter of the channels |
//! | `mlp` | [`mlp`]: numbers or classes from the columns of a table |
//! | `lstm_forecaster` | [`lstm_forecaster`]: the next values of a series |
//! | `char_lstm`, `gpt` | [`char_lstm`], [`gpt`]: the next character of a text |
//!
//! Parameters and buffers have the names and shapes that torchvision gives them, so that its weights fit.

mod blocks;
mod densenet;
mod efficientnet;
mod lenet;
mod mobilenet;
mod resnet;
mod sequences;
mod unet;
mod vgg;

pub use densenet::densenet121;
pub use efficientnet::efficientnet_b0;
pub use lenet::lenet;
pub use mobilenet::{mobilenet_v2, mobilenet_v3_large, mobilenet_v3_small};
pub use resnet::{Block, Stem, resnet, resnet18, resnet34, resnet50, resnet101};
pub use sequences::{CHARACTERS, char_lstm, gpt, lstm_forecaster};
pub use unet::unet;
pub use vgg::vgg16;

use crate::nn::{Conv2d, Model, Scheme, Sequential};

/// Classes of ImageNet, for which most models of images are known.
const IMAGENET: usize = 1000;

/// Names of the built-in models.
pub const NAMES: [&str; 23] = [
    "mnist-mlp",
    "mnist-cnn",
    "mnist-lstm",
    "mnist-deep",
    "mnist-unet",
    "lenet",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet18_cifar",
    "vgg16",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "densenet121",
    "unet",
    "unet_small",
    "mlp",
    "lstm_forecaster",
    "char_lstm",
    "gpt",
];

/// A built-in model; `None` if there is none of that name.
pub fn builtin(name: &str) -> Option<Model> {
    make(name, None)
}

/// A built-in model with another number of outputs: of classes, of tokens, or of numbers that are predicted. All else is as in
/// [`builtin`].
///
/// ```
/// use tightfit::models;
///
/// let model = models::builtin_for("resnet18", 5).expect("is built in");
/// assert_eq!(model.output_shape()?[..], [5]);
/// # Ok::<(), tightfit::error::GraphError>(())
/// ```
pub fn builtin_for(name: &str, outputs: usize) -> Option<Model> {
    make(name, Some(outputs))
}

fn make(name: &str, outputs: Option<usize>) -> Option<Model> {
    let or = |usual: usize| outputs.unwrap_or(usual);
    let [digits, images] = [10, IMAGENET].map(or);
    Some(match name {
        "mnist-mlp" => mnist_mlp(digits),
        "mnist-cnn" => mnist_cnn(digits),
        "mnist-lstm" => mnist_lstm(digits),
        "mnist-deep" => mnist_deep(digits),
        "mnist-unet" => mnist_unet(digits),
        "lenet" => lenet(digits),
        "resnet18" => resnet18(images, Stem::ImageNet),
        "resnet34" => resnet34(images, Stem::ImageNet),
        "resnet50" => resnet50(images, Stem::ImageNet),
        "resnet101" => resnet101(images, Stem::ImageNet),
        "resnet18_cifar" => resnet18(digits, Stem::Cifar),
        "vgg16" => vgg16(images),
        "mobilenet_v2" => mobilenet_v2(images),
        "mobilenet_v3_small" => mobilenet_v3_small(images),
        "mobilenet_v3_large" => mobilenet_v3_large(images),
        "efficientnet_b0" => efficientnet_b0(images),
        "densenet121" => densenet121(images),
        "unet" => unet(or(2), 64),
        "unet_small" => unet(or(2), 16),
        "mlp" => mlp(8, or(1)),
        "lstm_forecaster" => lstm_forecaster(48, 64, or(1)),
        "char_lstm" => char_lstm(64, or(CHARACTERS)),
        "gpt" => gpt(64, or(CHARACTERS)),
        _ => return None,
    })
}

/// Two hidden layers of 64 over the numbers of a table.
pub fn mlp(inputs: usize, outputs: usize) -> Model {
    Sequential::new("mlp", [inputs]).linear(64).relu().linear(64).relu().linear(outputs).into()
}

/// Three linear layers, 784-512-512 and the classes.
pub fn mnist_mlp(classes: usize) -> Model {
    Sequential::new("mnist-mlp", [784]).linear(512).relu().linear(512).relu().linear(classes).into()
}

/// Two 3×3 convolutions without padding, 2×2 max pooling, a hidden layer of 128.
pub fn mnist_cnn(classes: usize) -> Model {
    Sequential::new("mnist-cnn", [1, 28, 28])
        .conv2d(32, 3)
        .relu()
        .conv2d(64, 3)
        .relu()
        .max_pool2d(2)
        .flatten()
        .linear(128)
        .relu()
        .linear(classes)
        .into()
}

/// An image as a sequence of 28 rows: an LSTM of 128 units, its last state classified.
pub fn mnist_lstm(classes: usize) -> Model {
    Sequential::new("mnist-lstm", [28, 28]).lstm(128).linear(classes).into()
}

/// Thirty 3×3 convolutions of 16 channels at full size, one after the other: little to train, much to remember.
pub fn mnist_deep(classes: usize) -> Model {
    let model = Sequential::new("mnist-deep", [1, 28, 28]);
    (0..30).fold(model, |model, _| same_size(model, 16)).max_pool2d(4).flatten().linear(classes).into()
}

/// In the manner of a U-Net: two steps down to 7×7 and two up again, each joined by what was there on the way down.
pub fn mnist_unet(classes: usize) -> Model {
    let two = |model, channels| same_size(same_size(model, channels), channels);
    let model = two(Sequential::new("mnist-unet", [1, 28, 28]), 16).skip("28x28").max_pool2d(2);
    let model = two(model, 32).skip("14x14").max_pool2d(2);
    let model = two(model, 64).upsample(2).concat("14x14");
    let model = two(model, 32).upsample(2).concat("28x28");
    two(model, 16).max_pool2d(4).flatten().linear(classes).into()
}

/// A 3×3 convolution that keeps the size of the image, and ReLU; weights start so that a deep chain of them learns.
fn same_size(model: Sequential, channels: usize) -> Sequential {
    model.push(Conv2d::new(channels, 3).padding(1).init(Scheme::KaimingUniform)).relu()
}
