//! Keras's layers, made of ours. Each file has the layers of some classes and reads their settings.

mod activation;
mod attention;
mod conv;
mod core;
mod merge;
mod norm;
mod pool;
mod recurrent;
mod shape;

use super::config::Config;
use super::value::Layer;
use crate::error::ImportError;

/// The layer of a class. `input` is the shape of its samples where the file says it.
///
/// # Errors
/// Where it has a setting, or is of a class, that is not there here.
pub(super) fn parse(config: &Config<'_>, input: Option<&[usize]>) -> Result<Box<dyn Layer>, ImportError> {
    for key in ["kernel_regularizer", "bias_regularizer", "recurrent_regularizer", "activity_regularizer"] {
        if config.get(key).is_some() {
            log::warn!("layer `{}`: {key} is not taken over: use weight decay", config.name.escape_debug());
        }
    }
    let layer = match core::parse(config, input)? {
        Some(layer) => Some(layer),
        None => conv::parse(config)?,
    };
    let layer = match layer {
        Some(layer) => Some(layer),
        None => match activation::parse(config, input)? {
            Some(layer) => Some(layer),
            None => pool::parse(config)?,
        },
    };
    let layer = match layer {
        Some(layer) => Some(layer),
        None => match norm::parse(config)? {
            Some(layer) => Some(layer),
            None => merge::parse(config)?,
        },
    };
    let layer = match layer {
        Some(layer) => Some(layer),
        None => match shape::parse(config)? {
            Some(layer) => Some(layer),
            None => attention::parse(config, input)?,
        },
    };
    let layer = match layer {
        Some(layer) => Some(layer),
        None => recurrent::parse(config, input)?,
    };
    layer.ok_or_else(|| config.unsupported(advice(config.class)))
}

/// What to do about a class that is not there.
fn advice(class: &str) -> String {
    let what = match class {
        "Lambda" => "has code of Python's, which is not run: make its formula of layers",
        "Masking" => "is not supported, because layers here take no masks: cut or pad the sequences",
        "GaussianNoise" | "GaussianDropout" | "AlphaDropout" => {
            "is not supported: use Dropout, or save the model without it for prediction"
        }
        "RNN" | "StackedRNNCells" | "ConvLSTM1D" | "ConvLSTM2D" | "ConvLSTM3D" => {
            "is not supported: use LSTM, GRU or SimpleRNN"
        }
        _ if class.starts_with("Random") => {
            "is not supported as a layer: leave it out, and let the data be augmented (see docs/data.md)"
        }
        _ => "is not among the layers that are supported (see docs/keras.md): replace it by some of those",
    };
    what.to_owned()
}
