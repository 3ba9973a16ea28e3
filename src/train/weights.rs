//! Parameters in safetensors files.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Seek as _, SeekFrom, Write};
use std::path::Path;

use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::foreign;
use crate::error::{DataError, DeviceError, TrainError};
use crate::files;
use crate::tensor::{DType, TensorDesc, plural};

/// A header of names and shapes is never longer.
const MAX_HEADER_BYTES: u64 = 4 << 20;

/// What a file of a model's weights holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// Parameters and buffers by name, in the order of the names.
    pub(super) tensors: Vec<(String, TensorDesc)>,
    /// Numbers of steps, as PyTorch keeps them beside running statistics.
    pub(super) counters: Vec<String>,
    /// What else the file says, by a name.
    pub(super) metadata: Option<(String, String)>,
}

/// Shows a tensor that lasts piece by piece, by its name.
pub(super) type ReadTensor<'a> = dyn FnMut(&str, &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> + 'a;

/// What was taken from a file of weights, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Tensors whose values were taken.
    pub loaded: Vec<String>,
    /// Tensors of the model that the file does not have.
    pub missing: Vec<String>,
    /// Tensors of the file that the model does not have.
    pub unexpected: Vec<String>,
    /// Tensors of both that differ in shape or type: name, what the file has, what the model has.
    pub mismatched: Vec<(String, String, String)>,
}

impl Loaded {
    /// What does not fit, if anything does not.
    fn fault(&self) -> Option<String> {
        if let Some((name, found, expected)) = self.mismatched.first() {
            return Some(format!("`{name}` is {found}, the model's is {expected}"));
        }
        if let Some(name) = self.missing.first() {
            return Some(format!("it has no tensor `{name}`"));
        }
        self.unexpected.first().map(|name| format!("it holds `{}`, which the model does not have", name.escape_debug()))
    }
}

impl fmt::Display for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loaded { loaded, missing, unexpected, mismatched } = self;
        write!(f, "{} of {} tensors loaded", loaded.len(), loaded.len() + missing.len() + mismatched.len())?;
        for (name, found, expected) in mismatched {
            write!(f, "; `{name}` is {found}, the model's is {expected}: not taken, the model keeps its own")?;
        }
        for (names, what) in [(missing, "not in the file"), (unexpected, "not in the model")] {
            if !names.is_empty() {
                let names: Vec<_> = names.iter().map(|name| format!("`{}`", name.escape_debug())).collect();
                write!(f, "; {what}: {}", names.join(", "))?;
            }
        }
        Ok(())
    }
}

impl Layout {
    /// Bytes of the file.
    pub(super) fn size_bytes(&self) -> u64 {
        let tensors: u64 = self.tensors.iter().map(|(_, desc)| desc.size_bytes()).sum();
        self.header().len() as u64 + (self.counters.len() * size_of::<u64>()) as u64 + tensors
    }

    /// The length of the header and the header, as the safetensors library writes them.
    fn header(&self) -> Vec<u8> {
        let mut end = 0;
        let mut entry = |name: &str, dtype: Dtype, shape: &[usize], size_bytes: u64| {
            let start = end;
            end += size_bytes as usize;
            (name.to_owned(), TensorInfo { dtype, shape: shape.to_vec(), data_offsets: (start, end) })
        };
        let counters = self.counters.iter().map(|name| (name, Dtype::I64, &[][..], size_of::<u64>() as u64));
        let tensors = self.tensors.iter().map(|(name, desc)| (name, stored(desc), &desc.shape[..], desc.size_bytes()));
        let entries =
            counters.chain(tensors).map(|(name, dtype, shape, size_bytes)| entry(name, dtype, shape, size_bytes));
        let metadata = self.metadata.clone().map(|metadata| HashMap::from([metadata]));
        let metadata = Metadata::new(metadata, entries.collect()).expect("bug: tensors that safetensors cannot hold");
        let mut json = serde_json::to_vec(&metadata).expect("bug: names that JSON cannot hold");
        json.resize(json.len().next_multiple_of(size_of::<u64>()), b' ');
        [&(json.len() as u64).to_le_bytes(), &json[..]].concat()
    }

    /// Writes tensors that are finite, one after the other as `read` shows them piece by piece; no reader ever sees half a
    /// file. Takes no memory but for the header.
    pub(super) fn save(
        &self,
        path: &Path,
        steps: u64,
        mut read: impl FnMut(&str, &mut dyn FnMut(&[u8])) -> Result<(), DeviceError>,
    ) -> Result<(), TrainError> {
        files::write_with(path, |file| self.write(path, file, steps, &mut read))
    }

    /// Writes what [`save`](Self::save) writes to what will be the file at `path`.
    pub(super) fn write(
        &self,
        path: &Path,
        file: &mut dyn Write,
        steps: u64,
        read: &mut ReadTensor<'_>,
    ) -> Result<(), TrainError> {
        let io = |source| DataError::Io { path: path.to_owned(), source };
        file.write_all(&self.header()).map_err(io)?;
        for _ in &self.counters {
            file.write_all(&steps.to_le_bytes()).map_err(io)?;
        }
        for (name, desc) in &self.tensors {
            let (mut written, mut finite) = (Ok(()), true);
            read(name, &mut |piece| {
                finite = finite && is_finite(stored(desc), piece);
                if written.is_ok() {
                    written = file.write_all(piece);
                }
            })?;
            written.map_err(io)?;
            if !finite {
                return Err(DataError::Mismatch(format!(
                    "{}: not written, since `{name}` holds values that are not finite",
                    path.display()
                ))
                .into());
            }
        }
        Ok(())
    }

    /// Reads the tensors of a file that are finite and fit, and hands them to `write`, once all of them were seen to be right.
    /// Where `strict`, the file must hold exactly the model's tensors; those in `counters` may be there too.
    pub(super) fn load(
        &self,
        path: &Path,
        strict: bool,
        mut write: impl FnMut(&str, &[u8]) -> Result<(), DeviceError>,
    ) -> Result<Loaded, TrainError> {
        let corrupt = |reason: String| DataError::Corrupt { path: path.to_owned(), reason };
        let io = |source| DataError::Io { path: path.to_owned(), source };
        let (mut file, metadata, start) = open(path)?;
        let loaded = self.compare(&metadata);
        if strict && let Some(fault) = loaded.fault() {
            let rest = match loaded.loaded.len() {
                0 => String::new(),
                fits => format!(
                    "; `train --skip-mismatched` and Trainer::load_matching take the {} that fit",
                    plural(fits, "tensor")
                ),
            };
            return Err(corrupt(format!("{fault}: it belongs to another model{rest}")).into());
        }
        if loaded.loaded.is_empty() {
            return Err(corrupt("no tensor in it fits one of the model: it belongs to another model".to_owned()).into());
        }
        let mut bytes = Vec::new();
        for checked in [false, true] {
            for name in &loaded.loaded {
                let info = metadata.info(name).expect("bug: a tensor that was compared");
                let (from, to) = info.data_offsets;
                read_range(&mut file, start + from as u64, to - from, &mut bytes).map_err(io)?;
                if checked {
                    write(name, &bytes)?;
                } else if !is_finite(info.dtype, &bytes) {
                    return Err(corrupt(format!("`{name}` holds values that are not finite: train it again")).into());
                }
            }
        }
        Ok(loaded)
    }

    /// What a file holds.
    pub(super) fn of_file(path: &Path) -> Result<Self, TrainError> {
        let (mut file, length) = files::open(path, "it belongs to a checkpoint: take another")?;
        let (metadata, _) = read_header(&mut file, length)
            .map_err(|error| DataError::Corrupt { path: path.to_owned(), reason: error.to_string() })?;
        let mut tensors: Vec<_> = metadata
            .tensors()
            .into_iter()
            .filter(|(_, info)| info.dtype == Dtype::F32)
            .map(|(name, info)| (name, TensorDesc::f32(info.shape.clone())))
            .collect();
        tensors.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(Layout { tensors, ..Layout::default() })
    }

    /// Which tensors of a file fit.
    fn compare(&self, metadata: &Metadata) -> Loaded {
        let mut result = Loaded::default();
        for (name, desc) in &self.tensors {
            match metadata.info(name) {
                None => result.missing.push(name.clone()),
                Some(info) if info.dtype == stored(desc) && info.shape[..] == desc.shape[..] => {
                    result.loaded.push(name.clone());
                }
                Some(info) => {
                    result.mismatched.push((
                        name.clone(),
                        format!("{}{:?}", format!("{:?}", info.dtype).to_lowercase(), info.shape),
                        desc.to_string(),
                    ));
                }
            }
        }
        let known = |name: &String| {
            self.counters.contains(name) || self.tensors.binary_search_by(|(known, _)| known.cmp(name)).is_ok()
        };
        result.unexpected = metadata.offset_keys().into_iter().filter(|name| !known(name)).collect();
        result
    }
}

/// What a file of weights says besides its tensors.
pub(super) fn metadata_of(path: &Path) -> Result<Option<HashMap<String, String>>, TrainError> {
    Ok(open(path)?.1.metadata().clone())
}

/// A file of weights, its header, and where tensors begin; a file of another kind is said to be one.
fn open(path: &Path) -> Result<(File, Metadata, u64), TrainError> {
    let (mut file, length) = files::open(path, "`tightfit train … --save FILE` writes one")?;
    match read_header(&mut file, length) {
        Ok((metadata, start)) => Ok((file, metadata, start)),
        Err(error) => {
            let io = |source| DataError::Io { path: path.to_owned(), source };
            let whole = || format!("not a whole safetensors file ({error}): save it again");
            let reason = foreign::advice(&mut file, path).map_err(io)?.unwrap_or_else(whole);
            Err(DataError::Corrupt { path: path.to_owned(), reason }.into())
        }
    }
}

/// The type that a tensor has in a file.
fn stored(desc: &TensorDesc) -> Dtype {
    match desc.dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::U32 => Dtype::U32,
        DType::U8 => Dtype::U8,
    }
}

/// Whether numbers of single precision are finite; of another type, all are taken as they are.
fn is_finite(dtype: Dtype, bytes: &[u8]) -> bool {
    let is_single = dtype == Dtype::F32;
    !is_single || bytes.chunks_exact(size_of::<f32>()).all(|x| bytemuck::pod_read_unaligned::<f32>(x).is_finite())
}

/// The header of a file that has all the bytes that it names, and where they begin.
fn read_header(file: &mut File, length: u64) -> Result<(Metadata, u64), Error> {
    let invalid = |text: &str| Error::new(ErrorKind::InvalidData, text);
    let mut size = [0; size_of::<u64>()];
    file.read_exact(&mut size)?;
    let size = u64::from_le_bytes(size);
    if size > MAX_HEADER_BYTES.min(length) {
        return Err(invalid("its header is too long"));
    }
    let mut json = Vec::new();
    read_range(file, size_of::<u64>() as u64, size as usize, &mut json)?;
    let metadata: Metadata = serde_json::from_slice(&json)?;
    let start = size_of::<u64>() as u64 + size;
    if start.checked_add(metadata.data_len() as u64) != Some(length) {
        return Err(invalid("its length is not what its header says"));
    }
    Ok((metadata, start))
}

/// Replaces the contents of `bytes` by those from one place of a file.
fn read_range(file: &mut File, from: u64, size: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
    bytes.clear();
    bytes.try_reserve_exact(size)?;
    bytes.resize(size, 0);
    file.seek(SeekFrom::Start(from))?;
    file.read_exact(bytes)
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::TensorView;

    use super::*;

    #[test]
    fn files_are_those_of_the_safetensors_library() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("w");
        let desc = |shape: &[usize]| TensorDesc::f32(shape.to_vec());
        let tensors = vec![("a.bias".to_owned(), desc(&[3])), ("b.weight".to_owned(), desc(&[2, 2]))];
        let layout = Layout { tensors, counters: vec!["b.num_batches_tracked".to_owned()], metadata: None };
        let bytes = |name: &str| vec![name.as_bytes()[0]; if name == "a.bias" { 12 } else { 16 }];
        let read = |name: &str, visit: &mut dyn FnMut(&[u8])| {
            let bytes = bytes(name);
            visit(&bytes[..4]);
            visit(&bytes[4..]);
            Ok(())
        };
        layout.save(&path, 7, read).expect("saves");
        let (a, b, steps) = (bytes("a.bias"), bytes("b.weight"), 7u64.to_le_bytes());
        let view = |dtype, shape: &[usize], data| TensorView::new(dtype, shape.to_vec(), data).expect("fits");
        let views = [
            ("a.bias", view(Dtype::F32, &[3], &a)),
            ("b.weight", view(Dtype::F32, &[2, 2], &b)),
            ("b.num_batches_tracked", view(Dtype::I64, &[], &steps)),
        ];
        let expected = safetensors::serialize(views, None).expect("serializes");
        assert_eq!(std::fs::read(&path).expect("reads"), expected);
        assert_eq!(layout.size_bytes(), expected.len() as u64);
    }
}
