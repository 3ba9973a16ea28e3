//! Models of Keras: `.keras` and `.h5` are read as models with their weights, `.weights.h5` as weights alone; `.keras` and
//! `.weights.h5` are written.
//!
//! ```no_run
//! use tightfit::interop::keras;
//! use tightfit::train::{Config, Trainer};
//!
//! let imported = keras::read("model.keras".as_ref())?;
//! let mut trainer = Trainer::new(imported.model, Config::default(), None)?;
//! imported.weights.apply(&mut trainer)?;
//! # Ok::<(), tightfit::error::ImportError>(())
//! ```
//!
//! Layers have Keras's names, with those of models within before them: `encoder.dense_1.weight`. What weights are called behind
//! that is as in the layers here.
//!
//! **Axes.** Keras has channels last, layers here have them first. A model of images takes and makes them with the channels
//! first, and [`ImportedModel::input_order`] says that data made for Keras must be transposed; within the model, axes are put in
//! order where a layer needs it, so that `Flatten` and `Reshape` find Keras's order. Sequences `[time, features]` are the same in
//! both.
//!
//! **What differs in training.** Running variances of batch normalization follow the unbiased variance of a batch here, and the
//! biased one in Keras. Regularizers, constraints, and initial values other than the usual ones are not taken over. Layers that Keras does
//! not train are [`ImportedModel::frozen`]. Adam and RMSprop have `epsilon` at another place, which matters where gradients are about
//! as small.

mod architecture;
mod archive;
mod compile;
mod config;
mod groups;
mod hdf5;
mod layers;
mod network;
mod parse;
mod value;
mod weights;

pub use architecture::{Architecture, KerasLayer, LayerArrays};

use std::io::Read as _;
use std::path::Path;

use super::{ImportedModel, Weights};
use crate::error::ImportError;
use crate::files;
use archive::Archive;
use config::corrupt;
use hdf5::Hdf5;

/// What a model that was written without Keras says of its version: the least that reads it.
const METADATA: &str = r#"{"keras_version": "3.0.0"}"#;

/// What a file is, by how it begins.
enum Format {
    Archive,
    Hdf5,
}

impl Format {
    fn of(path: &Path) -> Result<Self, ImportError> {
        let (mut file, _) = files::open(path, "give a file that Keras saved")?;
        let mut begin = Vec::new();
        let read = file.by_ref().take(8).read_to_end(&mut begin);
        read.map_err(|source| crate::error::DataError::Io { path: path.to_owned(), source })?;
        match &begin[..] {
            [b'P', b'K', ..] => Ok(Format::Archive),
            b"\x89HDF\r\n\x1a\n" => Ok(Format::Hdf5),
            _ => Err(corrupt(path, "is neither a .keras nor an .h5: give a file that Keras saved")),
        }
    }
}

/// Whether a file holds a model, not weights alone.
///
/// # Errors
/// Where the file cannot be read, or is none of Keras.
pub fn is_model(path: &Path) -> Result<bool, ImportError> {
    Ok(match Format::of(path)? {
        Format::Archive => true,
        Format::Hdf5 => Hdf5::open(path)?.text("", "model_config").is_some(),
    })
}

/// Reads a model with its weights: a `.keras`, or an `.h5` that has the model too.
///
/// # Errors
/// Where the file cannot be read, is not sound, has only weights, or has a layer or a setting that is not there here.
pub fn read(path: &Path) -> Result<ImportedModel, ImportError> {
    let architecture = read_architecture(path)?;
    let weights = read_weights(path, &architecture)?;
    Ok(architecture.into_model(weights))
}

/// Reads a model without its weights: of a `.keras`, or an `.h5` that has the model too.
///
/// # Errors
/// As [`read`].
pub fn read_architecture(path: &Path) -> Result<Architecture, ImportError> {
    match Format::of(path)? {
        Format::Archive => {
            let archive = Archive::open(path)?;
            let metadata = archive.metadata()?;
            let mut architecture = Architecture::parse(path, &archive.config()?, None)?;
            architecture.metadata = metadata.map(Into::into);
            Ok(architecture)
        }
        Format::Hdf5 => {
            let file = Hdf5::open(path)?;
            let text = file.text("", "model_config").ok_or_else(|| {
                corrupt(path, "has weights alone, no model: build the model, or read weights into one that is there")
            })?;
            Architecture::parse(path, &text, file.text("", "training_config").as_deref())
        }
    }
}

/// Reads the weights of a model: from a `.weights.h5`, a `.keras`, or an `.h5`. Names of layers may be others than the model's, as
/// Keras gives new ones to each model: what counts is the order of layers of a class.
///
/// # Errors
/// Where the file cannot be read, is not sound, or has weights of another model.
pub fn read_weights(path: &Path, architecture: &Architecture) -> Result<Weights, ImportError> {
    let file = match Format::of(path)? {
        Format::Hdf5 => Hdf5::open(path)?,
        Format::Archive => {
            let bytes = Archive::open(path)?.weights()?;
            Hdf5::within(path, bytes.ok_or_else(|| corrupt(path, "has no weights: save it anew with model.save"))?)?
        }
    };
    let older = ["model_weights", ""].into_iter().find(|group| file.texts(group, "layer_names").is_some());
    let arrays = match older {
        Some(group) => groups::read_older(&file, group, &architecture.network)?,
        None => groups::read(&file, &architecture.network)?,
    };
    architecture.weights_of(arrays)
}

/// Writes weights as a `.weights.h5` that Keras's `load_weights` takes.
///
/// # Errors
/// Where they are not those of this model, or the file cannot be written.
pub fn write_weights(path: &Path, architecture: &Architecture, weights: &Weights) -> Result<(), ImportError> {
    let bytes = groups::write(&architecture.network, &architecture.keras_arrays(weights)?)?;
    Ok(files::write_whole(path, &bytes)?)
}

/// Writes a model with these weights as a `.keras`. Its settings are those that the architecture was read from, the state of an
/// optimizer is left out.
///
/// # Errors
/// As [`write_weights`], or where the settings are not of Keras 3.
pub fn write(path: &Path, architecture: &Architecture, weights: &Weights) -> Result<(), ImportError> {
    let json: serde_json::Value = serde_json::from_str(&architecture.json)
        .map_err(|error| corrupt(&architecture.path, format!("its settings are no JSON ({error})")))?;
    if json.get("registered_name").is_none() && json.get("module").is_none() {
        return Err(corrupt(
            &architecture.path,
            "its settings are those of an .h5, which a .keras does not have: write its weights alone, or save the model as .keras",
        ));
    }
    let bytes = groups::write(&architecture.network, &architecture.keras_arrays(weights)?)?;
    let metadata = architecture.metadata.as_deref().unwrap_or(METADATA);
    let bytes = archive::bytes(&architecture.json, metadata, &bytes)?;
    Ok(files::write_whole(path, &bytes)?)
}
