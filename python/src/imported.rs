//! Models of other frameworks, and weights as these have them.

use std::path::{Path, PathBuf};

use numpy::PyArrayDyn;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tightfit::interop::keras::{self, Architecture};
use tightfit::interop::{self, Source, Weight, Weights, onnx};

use crate::arrays::{self, Named};
use crate::errors::OrRaise as _;
use crate::network::Network;

/// A layer of Keras's, by its name behind those of the models that it is in, and its arrays in the order of `layer.weights`.
type Layers<'py> = Vec<(Vec<String>, Vec<Bound<'py, PyAny>>)>;

/// The same as they are made here.
type Arrays<'py> = Vec<(Vec<String>, Vec<Bound<'py, PyArrayDyn<f32>>>)>;

/// A model of Keras from what `model.to_json()` says, without its weights.
#[pyfunction]
pub(crate) fn keras_from_json(py: Python<'_>, json: String) -> PyResult<Network> {
    py.detach(move || Ok::<_, PyErr>(of_keras(Architecture::from_json(&json).or_raise()?, None)))
}

/// A model of Keras from a `.keras`, or an `.h5` that has the model too.
#[pyfunction]
pub(crate) fn read_keras(py: Python<'_>, path: PathBuf) -> PyResult<Network> {
    py.detach(move || {
        let architecture = keras::read_architecture(&path).or_raise()?;
        let weights = keras::read_weights(&path, &architecture).or_raise()?;
        Ok(of_keras(architecture, Some(weights)))
    })
}

fn of_keras(architecture: Architecture, weights: Option<Weights>) -> Network {
    let imported = architecture.clone().into_model(weights.unwrap_or_default());
    Network::imported(imported, Some(architecture))
}

/// A model in ONNX. `sample` is the shape of one sample, where the file leaves more of it free than the batch.
#[pyfunction]
#[pyo3(signature = (path, sample=None))]
pub(crate) fn read_onnx(py: Python<'_>, path: PathBuf, sample: Option<Vec<usize>>) -> PyResult<Network> {
    py.detach(move || {
        let imported = match sample {
            Some(sample) => onnx::read_sized(&path, &sample),
            None => onnx::read(&path),
        };
        Ok(Network::imported(imported.or_raise()?, None))
    })
}

fn architecture(network: &Network) -> PyResult<&Architecture> {
    network.architecture.as_ref().ok_or_else(|| PyValueError::new_err("the model is not one of Keras"))
}

/// Names of the layers that have weights, each behind those of the models that it is in.
#[pyfunction]
pub(crate) fn keras_layers(network: &Network) -> PyResult<Vec<Vec<String>>> {
    Ok(architecture(network)?.layers().into_iter().map(|layer| layer.path).collect())
}

/// The model's weights, of Keras's arrays.
#[pyfunction]
pub(crate) fn keras_weights<'py>(py: Python<'py>, network: &Network, layers: Layers<'py>) -> PyResult<Named<'py>> {
    let mut taken = Vec::new();
    for (path, arrays) in &layers {
        let weights = arrays.iter().map(|array| {
            let (shape, values) = arrays::to_vec(&path.join("/"), array)?;
            Weight::new(shape, values).ok_or_else(|| PyValueError::new_err("an array of another shape than its own"))
        });
        taken.push((path, weights.collect::<PyResult<Vec<_>>>()?));
    }
    let weights = architecture(network)?.weights_from(|path| {
        let found = taken.iter_mut().find(|(name, _)| name.iter().map(String::as_str).eq(path.iter().copied()));
        Ok(found.map(|(_, weights)| std::mem::take(weights)).unwrap_or_default())
    });
    named(py, &weights.or_raise()?)
}

/// Keras's arrays, of the model's weights.
#[pyfunction]
pub(crate) fn keras_arrays<'py>(
    py: Python<'py>,
    network: &Network,
    weights: Vec<(String, Bound<'py, PyAny>)>,
) -> PyResult<Arrays<'py>> {
    let layers = architecture(network)?.arrays_of(&to_weights(&weights)?).or_raise()?;
    let of = |weights: Vec<Weight>| {
        let arrays = weights.iter().map(|weight| arrays::from_vec(py, weight.values().to_vec(), weight.shape()));
        arrays.collect::<PyResult<Vec<_>>>()
    };
    layers.into_iter().map(|(path, weights)| Ok((path, of(weights)?))).collect()
}

/// Weights for a model from a file of any format.
#[pyfunction]
pub(crate) fn read_weights<'py>(py: Python<'py>, network: &Network, path: PathBuf) -> PyResult<Named<'py>> {
    let weights = py.detach(|| {
        // Weights alone of Keras are named by their places in the model that they are of.
        if let Some(architecture) = &network.architecture
            && path.extension().is_some_and(|extension| extension == "h5")
            && !interop::is_model_file(&path)
        {
            return keras::read_weights(&path, architecture).or_raise();
        }
        interop::read_weights(&path, Source { model: &network.model, file: None }).or_raise()
    })?;
    named(py, &weights)
}

/// All tensors of a file of safetensors or PyTorch.
#[pyfunction]
pub(crate) fn read_tensors(py: Python<'_>, path: PathBuf) -> PyResult<Named<'_>> {
    let weights = py.detach(|| interop::read_tensors(&path).or_raise())?;
    named(py, &weights)
}

/// Writes a `.weights.h5`, or a `.keras` with the model, of a model of Keras.
#[pyfunction]
pub(crate) fn write_keras(
    py: Python<'_>,
    network: &Network,
    path: PathBuf,
    weights: Vec<(String, Bound<'_, PyAny>)>,
) -> PyResult<()> {
    let (architecture, weights) = (architecture(network)?, to_weights(&weights)?);
    let is_whole = path.extension().is_some_and(|extension| extension == "keras");
    let write = if is_whole { keras::write } else { keras::write_weights };
    py.detach(|| write(Path::new(&path), architecture, &weights).or_raise())
}

/// Writes an inference graph in ONNX.
#[pyfunction]
pub(crate) fn write_onnx(
    py: Python<'_>,
    network: &Network,
    path: PathBuf,
    weights: Vec<(String, Bound<'_, PyAny>)>,
    opset: i64,
    fold_batch_norm: bool,
) -> PyResult<()> {
    let weights = to_weights(&weights)?;
    py.detach(|| onnx::write(&path, &network.model, &weights, onnx::Options { fold_batch_norm, opset }).or_raise())
}

fn to_weights(weights: &[(String, Bound<'_, PyAny>)]) -> PyResult<Weights> {
    let weights = weights.iter().map(|(name, array)| {
        let (shape, values) = arrays::to_vec(name, array)?;
        let weight = Weight::new(shape, values);
        Ok((name.clone(), weight.ok_or_else(|| PyValueError::new_err("an array of another shape than its own"))?))
    });
    weights.collect()
}

/// Weights as arrays by name.
pub(crate) fn named<'py>(py: Python<'py>, weights: &Weights) -> PyResult<Named<'py>> {
    let arrays = weights
        .iter()
        .map(|(name, weight)| Ok((name.to_owned(), arrays::from_vec(py, weight.values().to_vec(), weight.shape())?)));
    arrays.collect()
}
