//! Files of any format, by what is in them and how they are named.

use std::path::Path;

use super::{ImportedModel, Weights, keras, onnx, safetensors, torch};
use crate::error::{DataError, ImportError};
use crate::files::{self, Format};
use crate::nn::Model;

/// A model, and the file that it was read from, if it was.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The model.
    pub model: &'a Model,
    /// A file of [`read_model`].
    pub file: Option<&'a Path>,
}

/// The format of a file that is there.
fn format_of(path: &Path) -> Result<Option<Format>, ImportError> {
    let (mut file, _) = files::open(path, "give a file that is there")?;
    Ok(Format::of(&mut file, path).map_err(|source| DataError::Io { path: path.to_owned(), source })?)
}

fn refused(path: &Path, reason: &str) -> ImportError {
    DataError::Corrupt { path: path.to_owned(), reason: reason.to_owned() }.into()
}

/// Whether a file that is there is named or begins as one of another framework's models does: a file of Keras or ONNX.
pub fn is_model_file(path: &Path) -> bool {
    // What is no regular file, such as a pipe, is not opened.
    let format = if path.is_file() { format_of(path).ok().flatten().or_else(|| Format::of_name(path)) } else { None };
    match format {
        // Weights alone are no model.
        Some(Format::Hdf5) => keras::is_model(path).unwrap_or(true),
        format => matches!(format, Some(Format::Keras | Format::Onnx)),
    }
}

/// Whether a file has another format than the safetensors files that a trainer reads and writes by itself: by what is in it, or where it is
/// not there, by its ending.
pub fn is_foreign(path: &Path) -> bool {
    let format = if path.is_file() { format_of(path).ok().flatten() } else { Format::of_name(path) };
    matches!(format, Some(Format::Torch | Format::Keras | Format::Hdf5 | Format::Onnx))
}

/// A model from a file of Keras (`.keras`, `.h5`) or ONNX.
///
/// # Errors
/// Where the file is missing or broken, or has a layer or an operator that is not there here.
pub fn read_model(path: impl AsRef<Path>) -> Result<ImportedModel, ImportError> {
    let path = path.as_ref();
    match format_of(path)? {
        Some(Format::Keras | Format::Hdf5) => keras::read(path),
        Some(Format::Onnx) => onnx::read(path),
        Some(Format::Torch) => Err(refused(
            path,
            "a file of PyTorch holds weights, but not what is done with them: torch.onnx.export writes the model as a file that can be read",
        )),
        Some(Format::Safetensors) => Err(refused(
            path,
            "a safetensors file holds weights, but no model: name the model, and give the file as --weights",
        )),
        _ => Err(refused(path, "it is no file of Keras or ONNX that can be read: give a .keras, .h5 or .onnx file")),
    }
}

/// The weights of a model from a file of safetensors, PyTorch, Keras or ONNX.
///
/// # Errors
/// Where the file is missing or broken, or has not all weights of the model. Weights alone, as Keras writes them (`.weights.h5`), are those of
/// a model of Keras.
pub fn read_weights(path: impl AsRef<Path>, source: Source<'_>) -> Result<Weights, ImportError> {
    let path = path.as_ref();
    let Source { model, file } = source;
    let fitted = |weights: Weights| {
        weights.fitted(model).map_err(|error| match error {
            ImportError::Weights { reason } => {
                DataError::Mismatch(format!("{}: its weights do not fit the model: {reason}", path.display())).into()
            }
            other => other,
        })
    };
    match format_of(path)? {
        Some(Format::Torch) => fitted(torch::read(path)?),
        Some(Format::Safetensors) => fitted(safetensors::read(path)?),
        Some(Format::Keras) => fitted(keras::read(path)?.weights),
        Some(Format::Hdf5) if keras::is_model(path)? => fitted(keras::read(path)?.weights),
        Some(Format::Hdf5) => match file {
            Some(file) if is_model_file(file) => keras::read_weights(path, &keras::read_architecture(file)?),
            _ => Err(refused(
                path,
                "its weights are named by their places in a model of Keras: give that model, as a .keras file, in place of its name",
            )),
        },
        Some(Format::Onnx) => fitted(onnx::read(path)?.weights),
        Some(Format::Numpy | Format::Other(_)) | None => {
            Err(refused(path, "no weights can be read from it: give a file of safetensors, PyTorch, Keras or ONNX"))
        }
    }
}

/// All tensors of a file of safetensors or PyTorch, whatever model they are of.
///
/// # Errors
/// Where the file is missing or broken, or of another format.
pub fn read_tensors(path: impl AsRef<Path>) -> Result<Weights, ImportError> {
    let path = path.as_ref();
    match format_of(path)? {
        Some(Format::Torch) => torch::read(path),
        Some(Format::Safetensors) => safetensors::read(path),
        Some(Format::Hdf5) => {
            Err(refused(path, "its weights are named by their places in a model of Keras: name that model"))
        }
        _ => Err(refused(path, "no weights can be read from it: give a file of safetensors or PyTorch")),
    }
}

/// Whether a file of HDF5 is named as one of weights alone.
fn is_weights_alone(path: &Path) -> bool {
    path.to_string_lossy().to_ascii_lowercase().ends_with(".weights.h5")
}

/// Writes a model with its weights: the ending of the file says how.
///
/// | ending | format |
/// |---|---|
/// | `.safetensors` | weights alone, by the names of [`Model::state_dict`] |
/// | `.onnx` | an inference graph |
/// | `.keras` | a model of Keras with other weights; `source` must be one |
/// | `.weights.h5` | weights alone, as Keras loads them into the model of `source` |
///
/// # Errors
/// Where the ending is another one, the model cannot be written so, or the file cannot be written.
pub fn write(
    path: impl AsRef<Path>,
    source: Source<'_>,
    weights: &Weights,
    options: onnx::Options,
) -> Result<(), ImportError> {
    let path = path.as_ref();
    let of_keras = || {
        let is_keras = |file: &&Path| matches!(format_of(file), Ok(Some(Format::Keras | Format::Hdf5)));
        source.file.filter(is_keras).ok_or_else(|| {
            refused(path, "only a model that came from a file of Keras is written as one: write .safetensors or .onnx")
        })
    };
    weights.check(source.model)?;
    match Format::of_name(path) {
        Some(Format::Safetensors) => safetensors::write(path, weights),
        Some(Format::Onnx) => onnx::write(path, source.model, weights, options),
        Some(Format::Keras) => keras::write(path, &keras::read_architecture(of_keras()?)?, weights),
        Some(Format::Hdf5) if !is_weights_alone(path) => {
            Err(refused(path, "Keras reads such a file as a whole model: end it in .weights.h5 for weights alone"))
        }
        Some(Format::Hdf5) => keras::write_weights(path, &keras::read_architecture(of_keras()?)?, weights),
        _ => Err(refused(
            path,
            "its ending names no format that is written: end it in .safetensors, .onnx, .keras or .weights.h5",
        )),
    }
}
