//! Parameters in safetensors files.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use sha2::{Digest, Sha256};

use super::state::Tensors;
use crate::error::DataError;
use crate::tensor::TensorDesc;

/// A header of names and shapes is never longer.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Numbers of steps, as PyTorch keeps them beside running statistics.
pub(super) struct Counters<'a> {
    pub(super) names: &'a [String],
    pub(super) steps: u64,
}

/// SHA-256 over the bytes of all parameters in the order of their names, in hex.
pub(super) fn sha256(parameters: &Tensors) -> String {
    let mut hasher = Sha256::new();
    for (_, data) in parameters.values() {
        hasher.update(bytemuck::cast_slice::<f32, u8>(data));
    }
    hasher.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Makes sure that a file can be written at `path`, without leaving a trace.
pub(super) fn check_writable(path: &Path) -> Result<(), DataError> {
    let target = target(path)?;
    let (temporary, _) = create_temporary(&target)?;
    fs::remove_file(&temporary).map_err(io(&temporary))
}

/// Writes parameters that are finite; no reader ever sees half a file.
pub(super) fn save(path: &Path, parameters: &Tensors, counters: &Counters<'_>) -> Result<(), DataError> {
    for (name, (_, data)) in parameters {
        if data.iter().any(|x| !x.is_finite()) {
            return Err(DataError::Mismatch(format!(
                "{}: not written, since `{name}` holds values that are not finite",
                path.display()
            )));
        }
    }
    let views: Vec<_> = parameters
        .iter()
        .map(|(name, (desc, data))| {
            let view = TensorView::new(Dtype::F32, desc.shape.to_vec(), bytemuck::cast_slice(data));
            (name, view.expect("bug: a parameter's data does not have its shape's size"))
        })
        .collect();
    let steps = counters.steps.to_le_bytes();
    let counter = || TensorView::new(Dtype::I64, Vec::new(), &steps).expect("bug: eight bytes are one number");
    let views = views.into_iter().chain(counters.names.iter().map(|name| (name, counter())));
    let bytes = safetensors::serialize(views, None).expect("bug: parameters that safetensors cannot hold");
    write_whole(path, &bytes)
}

/// Writes to a temporary file beside `path`, syncs and renames it, so that no reader ever sees half a file.
///
/// # Errors
/// Where the file cannot be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), DataError> {
    let target = target(path)?;
    let (temporary, mut file) = create_temporary(&target)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&temporary, &target));
    written.map_err(|error| {
        // The half-written file is of no use to anyone; the error that matters is the first.
        let _ = fs::remove_file(&temporary);
        io(path)(error)
    })
}

/// Bytes of a file that is to be read; `None` where it is not a regular one. `hint` says where such files come from.
pub(super) fn file_length(path: &Path, hint: &str) -> Result<Option<u64>, DataError> {
    let metadata = fs::metadata(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => DataError::Missing { path: path.to_owned(), hint: hint.to_owned() },
        _ => DataError::Io { path: path.to_owned(), source },
    })?;
    Ok(metadata.is_file().then_some(metadata.len()))
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> DataError + use<> {
    let path = path.to_owned();
    |source| DataError::Io { path, source }
}

/// The file that `path` names, through links. Devices, pipes and folders are no place for weights.
fn target(path: &Path) -> Result<PathBuf, DataError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => fs::canonicalize(path).map_err(io(path)),
        Ok(_) => Err(DataError::Corrupt {
            path: path.to_owned(),
            reason: "not a regular file, so nothing can be written there: give another name".to_owned(),
        }),
        Err(_) => Ok(path.to_owned()),
    }
}

/// A new file beside `target`, of a name that nobody else has.
fn create_temporary(target: &Path) -> Result<(PathBuf, File), DataError> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for attempt in 0u32.. {
        let temporary = folder.join(format!(".tightfit-{}-{attempt}.tmp", std::process::id()));
        match File::create_new(&temporary) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Ok(file) => return Ok((temporary, file)),
            Err(error) => return Err(io(folder)(error)),
        }
    }
    unreachable!("bug: four billion temporary files")
}

/// Reads exactly the `expected` tensors; those of the names in `counters` may be there too.
pub(super) fn load<'a>(
    path: &Path,
    expected: impl Iterator<Item = (&'a str, &'a TensorDesc)>,
    counters: &[String],
) -> Result<Vec<(String, Vec<f32>)>, DataError> {
    let corrupt = |reason: String| DataError::Corrupt { path: path.to_owned(), reason };
    let expected: Vec<_> = expected.collect();
    let Some(length) = file_length(path, "`tightfit train … --save FILE` writes one")? else {
        return Err(corrupt("not a regular file: give a file that `tightfit train … --save FILE` wrote".to_owned()));
    };
    // Nothing is read that cannot belong to the model.
    let most = expected.iter().map(|(_, desc)| desc.size_bytes()).sum::<u64>() + MAX_HEADER_BYTES;
    if length > most {
        return Err(corrupt(format!(
            "{length} bytes are more than the model's parameters take: it belongs to another model"
        )));
    }
    let bytes = fs::read(path).map_err(io(path))?;
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
        let data: Vec<f32> = bytemuck::pod_collect_to_vec(view.data());
        if data.iter().any(|x| !x.is_finite()) {
            return Err(corrupt(format!("`{name}` holds values that are not finite: train it again")));
        }
        loaded.push((name.to_owned(), data));
    }
    let known = |name: &str| counters.iter().any(|counter| counter == name) || loaded.iter().any(|(n, _)| n == name);
    if let Some(stray) = tensors.names().into_iter().find(|name| !known(name)) {
        return Err(corrupt(format!(
            "it holds `{}`, which the model does not have: it belongs to another model",
            stray.escape_debug()
        )));
    }
    Ok(loaded)
}
