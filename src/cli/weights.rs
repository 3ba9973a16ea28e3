//! Files of weights in any format that is read or written.

use std::path::{Path, PathBuf};

use tightfit::error::{ImportError, TrainError};
use tightfit::interop::{self, Pixels, Source, Weights};
use tightfit::train::{Preprocessing, Trainer};

use super::failure::Failure;
use super::overwrite::Kind;
use super::run_file::RunFile;

/// The file that the model is read from, where it is one of another framework.
pub(crate) fn model_file(file: &RunFile) -> Option<&Path> {
    Some(Path::new(file.model())).filter(|path| interop::is_model_file(path))
}

/// The file of weights that a model starts from: one that is named, or the model's own.
pub(crate) fn of(file: &RunFile) -> Result<Option<PathBuf>, Failure> {
    if let Some(path) = &file.model.weights {
        return Ok(Some(path.clone()));
    }
    let Some(path) = model_file(file) else { return Ok(None) };
    let holds_weights = !interop::read_model(path)?.weights.is_empty();
    Ok(holds_weights.then(|| path.to_owned()))
}

/// The same for a command that needs weights.
pub(crate) fn required(file: &RunFile) -> Result<PathBuf, Failure> {
    of(file)?.ok_or_else(|| Failure::bad_input("--weights FILE is needed: parameters that `train --save` wrote"))
}

/// Takes the parameters of a model out of a file.
pub(crate) fn load(trainer: &mut Trainer, path: &Path, file: &RunFile) -> Result<(), Failure> {
    if !interop::is_foreign(path) {
        return Ok(trainer.load(path)?);
    }
    let source = Source { model: trainer.model(), file: model_file(file) };
    Ok(interop::read_weights(path, source)?.apply(trainer)?)
}

/// How data was read that a model was trained on; other frameworks do not say.
pub(crate) fn preprocessing(path: &Path) -> Result<Option<Preprocessing>, Failure> {
    Ok(if interop::is_foreign(path) { None } else { Preprocessing::of_weights(path)? })
}

/// Whether the model is one of another framework that takes pixels from 0 to 255.
pub(crate) fn scales_pixels(file: &RunFile) -> bool {
    let read = |path| interop::read_model(path).ok();
    model_file(file).and_then(read).is_some_and(|imported| imported.pixels == Pixels::Bytes)
}

/// Writes the parameters of a model in the format that the ending of the file names; safetensors where it names none.
pub(crate) fn save(trainer: &mut Trainer, path: &Path, file: &RunFile) -> Result<(), TrainError> {
    if Format::of(path) == Format::Safetensors {
        return trainer.save(path);
    }
    let write = |trainer: &mut Trainer| {
        let weights = Weights::of(trainer)?;
        let source = Source { model: trainer.model(), file: model_file(file) };
        interop::write(path, source, &weights, interop::onnx::Options::default())
    };
    write(trainer).map_err(|error| match error {
        ImportError::Data(error) => error.into(),
        ImportError::Train(error) => error,
        ImportError::Graph(error) => error.into(),
        error => TrainError::Setting(error.to_string()),
    })
}

/// A format that weights are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Safetensors,
    Keras,
    Hdf5,
    Onnx,
}

impl Format {
    /// Of a file with this ending: safetensors where it is no other.
    pub(crate) fn of(path: &Path) -> Self {
        let ending = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        match &*ending {
            "keras" => Format::Keras,
            "h5" => Format::Hdf5,
            "onnx" => Format::Onnx,
            _ => Format::Safetensors,
        }
    }
}

/// Refuses a file that weights cannot be written to.
pub(crate) fn check_save(option: &str, path: &Path, file: &RunFile) -> Result<(), Failure> {
    let format = Format::of(path);
    let is_of_keras = || model_file(file).is_some_and(|path| Format::of(path) != Format::Onnx);
    if matches!(format, Format::Keras | Format::Hdf5) && !is_of_keras() {
        return Err(Failure::bad_input(format!(
            "{option} {}: only a model that came from a file of Keras is written as one: end it in .safetensors or .onnx",
            path.display()
        )));
    }
    let is_of_h5 = || model_file(file).is_some_and(|path| Format::of(path) == Format::Hdf5);
    if format == Format::Keras && is_of_h5() {
        return Err(Failure::bad_input(format!(
            "{option} {}: the settings in an .h5 are not those of a .keras: end it in .weights.h5, .safetensors or .onnx",
            path.display()
        )));
    }
    if format == Format::Hdf5 && !path.to_string_lossy().to_ascii_lowercase().ends_with(".weights.h5") {
        return Err(Failure::bad_input(format!(
            "{option} {}: Keras reads such a file as a whole model: end it in .weights.h5 for weights alone",
            path.display()
        )));
    }
    Kind::Weights(format).check(option, path)
}
