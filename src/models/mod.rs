//! Built-in models, by the names that the command line takes.

use crate::nn::{Conv2d, Model, Scheme, Sequential};

/// Names of the built-in models.
pub const NAMES: [&str; 5] = ["mnist-mlp", "mnist-cnn", "mnist-lstm", "mnist-deep", "mnist-unet"];

/// A built-in model; `None` if there is none of that name.
pub fn builtin(name: &str) -> Option<Model> {
    Some(match name {
        "mnist-mlp" => mnist_mlp(),
        "mnist-cnn" => mnist_cnn(),
        "mnist-lstm" => mnist_lstm(),
        "mnist-deep" => mnist_deep(),
        "mnist-unet" => mnist_unet(),
        _ => return None,
    })
}

/// Three linear layers, 784-512-512-10.
pub fn mnist_mlp() -> Model {
    Sequential::new("mnist-mlp", [784]).linear(512).relu().linear(512).relu().linear(10).into()
}

/// Two 3×3 convolutions without padding, 2×2 max pooling, a hidden layer of 128.
pub fn mnist_cnn() -> Model {
    Sequential::new("mnist-cnn", [1, 28, 28])
        .conv2d(32, 3)
        .relu()
        .conv2d(64, 3)
        .relu()
        .max_pool2d(2)
        .flatten()
        .linear(128)
        .relu()
        .linear(10)
        .into()
}

/// An image as a sequence of 28 rows: an LSTM of 128 units, its last state classified.
pub fn mnist_lstm() -> Model {
    Sequential::new("mnist-lstm", [28, 28]).lstm(128).linear(10).into()
}

/// Thirty 3×3 convolutions of 16 channels at full size, one after the other: little to train, much to remember.
pub fn mnist_deep() -> Model {
    let model = Sequential::new("mnist-deep", [1, 28, 28]);
    (0..30).fold(model, |model, _| same_size(model, 16)).max_pool2d(4).flatten().linear(10).into()
}

/// In the manner of a U-Net: two steps down to 7×7 and two up again, each joined by what was there on the way down.
pub fn mnist_unet() -> Model {
    let two = |model, channels| same_size(same_size(model, channels), channels);
    let model = two(Sequential::new("mnist-unet", [1, 28, 28]), 16).skip("28x28").max_pool2d(2);
    let model = two(model, 32).skip("14x14").max_pool2d(2);
    let model = two(model, 64).upsample(2).concat("14x14");
    let model = two(model, 32).upsample(2).concat("28x28");
    two(model, 16).max_pool2d(4).flatten().linear(10).into()
}

/// A 3×3 convolution that keeps the size of the image, and ReLU; weights start so that a deep chain of them learns.
fn same_size(model: Sequential, channels: usize) -> Sequential {
    model.push(Conv2d::new(channels, 3).padding(1).init(Scheme::KaimingUniform)).relu()
}
