//! Files of other frameworks: what they describe becomes a [`Model`] with weights by name, ready to be planned and trained.
//!
//! | file | what is read | module |
//! |---|---|---|
//! | `.keras`, `.h5` of Keras | layers, weights, compiled loss and optimizer | [`keras`] |
//! | `.weights.h5` | weights for a model that is there | [`keras`] |
//! | `.onnx` | the graph and its initializers | [`onnx`] |
//! | `.pt`, `.pth` of PyTorch | a state dict | [`torch`] |
//!
//! Nothing in such a file is trusted: sizes are checked before memory is taken, and nothing in it is run.

mod file;
pub mod keras;
mod numbers;
pub mod onnx;
pub mod safetensors;
pub mod torch;
mod weights;

pub use file::{Source, is_foreign, is_model_file, read_model, read_tensors, read_weights, write};
pub use weights::{Weight, Weights};

use crate::nn::Model;
use crate::train::{Loss, Optimizer};

/// Where the channels of images stand in samples of a file's own framework.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelOrder {
    /// `[channels, height, width]`, as models take them here.
    #[default]
    First,
    /// `[height, width, channels]`: data that is made for the file's framework must be transposed.
    Last,
}

/// Which numbers pixels are for a model of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pixels {
    /// The file does not say; from 0 to 1 is usual.
    #[default]
    Unknown,
    /// From 0 to 255: the model begins with Keras's `Rescaling`, or its input in ONNX is of bytes.
    Bytes,
}

/// A model from a file of another framework.
#[derive(Clone, Debug)]
pub struct ImportedModel {
    /// The model. Its layers have the names that they have in the file.
    pub model: Model,
    /// Values of its parameters and buffers, by the names of [`Model::state_dict`]; empty where the file has none.
    pub weights: Weights,
    /// The loss that it was compiled with, if the file says so.
    pub loss: Option<Loss>,
    /// The optimizer that it was compiled with, if the file says so.
    pub optimizer: Option<Optimizer>,
    /// Order of the axes of samples that the file's framework takes.
    pub input_order: ChannelOrder,
    /// Order of the axes of what the file's framework predicts.
    pub output_order: ChannelOrder,
    /// What numbers of pixels it takes.
    pub pixels: Pixels,
    /// What the names of parameters begin with that the file's framework does not train, as [`Config::freeze`](crate::train::Config::freeze)
    /// takes it.
    pub frozen: Vec<String>,
}
