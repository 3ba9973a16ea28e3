//! Built-in models, by the names that the command line takes.

use super::Sequential;

/// Names of the built-in models.
pub const NAMES: [&str; 3] = ["mnist-mlp", "mnist-cnn", "mnist-lstm"];

/// A built-in model; `None` if there is none of that name.
pub fn builtin(name: &str) -> Option<Sequential> {
    Some(match name {
        "mnist-mlp" => mnist_mlp(),
        "mnist-cnn" => mnist_cnn(),
        "mnist-lstm" => mnist_lstm(),
        _ => return None,
    })
}

/// Three linear layers, 784-512-512-10.
pub fn mnist_mlp() -> Sequential {
    Sequential::new("mnist-mlp", [784]).linear(512).relu().linear(512).relu().linear(10)
}

/// Two 3×3 convolutions without padding, 2×2 max pooling, a hidden layer of 128.
pub fn mnist_cnn() -> Sequential {
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
}

/// An image as a sequence of 28 rows: an LSTM of 128 units, its last state classified.
pub fn mnist_lstm() -> Sequential {
    Sequential::new("mnist-lstm", [28, 28]).lstm(128).linear(10)
}
