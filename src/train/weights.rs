//! Parameters in safetensors files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use sha2::{Digest, Sha256};

use crate::error::DataError;
use crate::tensor::TensorDesc;

type Parameters = BTreeMap<String, (TensorDesc, Vec<f32>)>;

/// SHA-256 over the bytes of all parameters in the order of their names, in hex.
pub(super) fn sha256(parameters: &Parameters) -> String {
    let mut hasher = Sha256::new();
    for (_, data) in parameters.values() {
        hasher.update(bytemuck::cast_slice::<f32, u8>(data));
    }
    hasher.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Writes to a temporary file beside `path`, syncs and renames it, so that no reader ever sees half a file.
pub(super) fn save(path: &Path, parameters: &Parameters) -> Result<(), DataError> {
    let views: Vec<_> = parameters
        .iter()
        .map(|(name, (desc, data))| {
            let view = TensorView::new(Dtype::F32, desc.shape.to_vec(), bytemuck::cast_slice(data));
            (name, view.expect("bug: a parameter's data does not have its shape's size"))
        })
        .collect();
    let bytes = safetensors::serialize(views, None).expect("bug: parameters that safetensors cannot hold");
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let io = |path: &Path| {
        let path = path.to_owned();
        |source| DataError::Io { path, source }
    };
    let written = (|| {
        let mut file = File::create(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()
    })();
    if let Err(error) = written {
        // The half-written file is of no use to anyone; the error that matters is the first.
        let _ = fs::remove_file(&temporary);
        return Err(io(&temporary)(error));
    }
    fs::rename(&temporary, path).map_err(io(path))
}

/// Reads exactly the `expected` parameters.
pub(super) fn load<'a>(
    path: &Path,
    expected: impl Iterator<Item = (&'a str, &'a TensorDesc)>,
) -> Result<Vec<(String, Vec<f32>)>, DataError> {
    let corrupt = |reason: String| DataError::Corrupt { path: path.to_owned(), reason };
    let bytes = fs::read(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => {
            DataError::Missing { path: path.to_owned(), hint: "`tightfit train … --save FILE` writes one".to_owned() }
        }
        _ => DataError::Io { path: path.to_owned(), source },
    })?;
    let tensors = SafeTensors::deserialize(&bytes)
        .map_err(|error| corrupt(format!("not a whole safetensors file ({error}): save it again")))?;
    let mut loaded = Vec::new();
    for (name, desc) in expected {
        let view = tensors
            .tensor(name)
            .map_err(|_| corrupt(format!("it has no parameter `{name}`: it belongs to another model")))?;
        if view.dtype() != Dtype::F32 || view.shape() != &desc.shape[..] {
            return Err(corrupt(format!(
                "`{name}` is {:?}{:?}, the model's is {desc}: it belongs to another model",
                view.dtype(),
                view.shape()
            )));
        }
        loaded.push((name.to_owned(), bytemuck::pod_collect_to_vec(view.data())));
    }
    if tensors.len() != loaded.len() {
        return Err(corrupt(format!(
            "it holds {} tensors, the model has {} parameters: it belongs to another model",
            tensors.len(),
            loaded.len()
        )));
    }
    Ok(loaded)
}
