//! HDF5: arrays and texts by path.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hdf5_reader::error::Error;
use hdf5_reader::group::Group;
use hdf5_reader::storage::{BytesStorage, DynStorage, FileStorage};
use hdf5_reader::{Dataset, Datatype, Hdf5File, OpenOptions};
use hdf5_writer::{AttributeBuilder, DatasetBuilder, Hdf5Builder, WriteOptions};

use super::config::corrupt;
use crate::error::ImportError;
use crate::files;
use crate::interop::Weight;
use crate::tensor::Shape;

/// What arrays may take unpacked for each byte of the file: Keras does not pack them, and who does saves less.
const MOST_INFLATION: u64 = 64;

/// A file that is read.
pub(super) struct Hdf5 {
    path: PathBuf,
    file: Hdf5File,
    /// Bytes that arrays may still take.
    left: std::cell::Cell<u64>,
}

impl Hdf5 {
    /// A file of its own.
    pub(super) fn open(path: &Path) -> Result<Self, ImportError> {
        // It is a regular file that holds something.
        let (file, length) = files::open(path, "give a file that Keras saved")?;
        let storage = FileStorage::from_file(file).map_err(|error| damaged(path, &error))?;
        Hdf5::new(path, Arc::new(storage), length)
    }

    /// A file within another.
    pub(super) fn within(path: &Path, bytes: Vec<u8>) -> Result<Self, ImportError> {
        let length = bytes.len() as u64;
        Hdf5::new(path, Arc::new(BytesStorage::new(bytes)), length)
    }

    fn new(path: &Path, storage: DynStorage, length: u64) -> Result<Self, ImportError> {
        let most = length.saturating_mul(MOST_INFLATION).saturating_add(1 << 20);
        let bytes = usize::try_from(most).unwrap_or(usize::MAX);
        // Links to other files and arrays in them are not followed: there is nothing that resolves them.
        let options = OpenOptions::default()
            .with_chunk_cache_bytes(0)
            .with_max_chunk_bytes(bytes)
            .with_max_read_bytes(bytes)
            .with_max_object_header_bytes(bytes.min(16 << 20));
        let file = Hdf5File::from_storage_with_options(storage, options).map_err(|error| damaged(path, &error))?;
        Ok(Hdf5 { path: path.to_owned(), file, left: std::cell::Cell::new(most) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn group(&self, path: &str) -> Option<Group> {
        if path.is_empty() { self.file.root_group().ok() } else { self.file.group(path).ok() }
    }

    /// Whether there is a group.
    pub(super) fn has(&self, path: &str) -> bool {
        self.group(path).is_some()
    }

    /// Names of the groups within one.
    pub(super) fn groups(&self, path: &str) -> Vec<String> {
        self.group(path).and_then(|group| group.member_names().ok()).map_or_else(Vec::new, |(groups, _)| groups)
    }

    /// A text that belongs to a group.
    pub(super) fn text(&self, group: &str, name: &str) -> Option<String> {
        self.group(group)?.attribute(name).ok()?.read_string().ok()
    }

    /// A list of texts that belong to a group. Where it is long, Keras writes it in parts.
    pub(super) fn texts(&self, group: &str, name: &str) -> Option<Vec<String>> {
        let group = self.group(group)?;
        let list = |name: &str| {
            let attribute = group.attribute(name).ok()?;
            // An empty list is one of numbers.
            if attribute.num_elements().ok()? == 0 {
                return Some(Vec::new());
            }
            attribute.read_strings().ok()
        };
        if let Some(texts) = list(name) {
            return Some(texts);
        }
        let parts: Vec<_> = (0..4096).map_while(|part| list(&format!("{name}{part}"))).collect();
        (!parts.is_empty()).then(|| parts.concat())
    }

    /// An array of numbers; `None` where there is none of this path.
    pub(super) fn array(&self, path: &str) -> Result<Option<Weight>, ImportError> {
        let Ok(dataset) = self.file.dataset(path) else { return Ok(None) };
        self.read(&dataset).map(Some).map_err(|reason| {
            let path: String = path.chars().take(200).collect();
            corrupt(&self.path, format!("array `{}` {reason}", path.escape_debug()))
        })
    }

    fn read(&self, dataset: &Dataset) -> Result<Weight, String> {
        let extents = dataset.shape().iter().map(|&extent| usize::try_from(extent).ok());
        let shape: Vec<usize> = extents.collect::<Option<_>>().ok_or("is too large")?;
        let numel = shape.iter().try_fold(1usize, |numel, &extent| numel.checked_mul(extent));
        let numel =
            numel.filter(|&numel| numel as u64 <= self.left.get() / 4).ok_or("is larger than its file can hold")?;
        self.left.set(self.left.get() - 4 * numel as u64);
        let wrong = |error: Error| format!("cannot be read ({}): save the model anew", one_line(&error));
        let values: Vec<f32> = match dataset.dtype() {
            Datatype::FloatingPoint { size: 4, .. } => {
                dataset.read_array::<f32>().map_err(wrong)?.iter().copied().collect()
            }
            Datatype::FloatingPoint { size: 8, .. } => {
                dataset.read_array::<f64>().map_err(wrong)?.iter().map(|&value| value as f32).collect()
            }
            _ => return Err("is not of single or double precision: save the model in float32".to_owned()),
        };
        Weight::new(Shape::from(shape), values).ok_or_else(|| "has not as many numbers as its shape says".to_owned())
    }
}

fn one_line(error: &dyn std::fmt::Display) -> String {
    error.to_string().replace(char::is_control, " ").chars().take(200).collect()
}

fn damaged(path: &Path, error: &Error) -> ImportError {
    corrupt(path, format!("is not a sound HDF5 file ({}): save it anew, or fetch it again", one_line(error)))
}

/// A file that is written.
#[derive(Default)]
pub(super) struct NewHdf5(Hdf5Builder);

impl NewHdf5 {
    /// Adds a text to a group, which is made.
    pub(super) fn text(&mut self, group: &str, name: &str, text: &str) {
        let builder = std::mem::take(&mut self.0);
        self.0 = builder.group_attribute(group, AttributeBuilder::fixed_string(name, text));
    }

    /// Adds an array.
    pub(super) fn array(&mut self, path: &str, weight: &Weight) -> Result<(), ImportError> {
        let shape: Vec<u64> = weight.shape().iter().map(|&extent| extent as u64).collect();
        let dataset = DatasetBuilder::typed_data(path, shape, weight.values()).map_err(|error| refused(&error))?;
        self.0 = std::mem::take(&mut self.0).dataset(dataset);
        Ok(())
    }

    /// Adds a whole number.
    pub(super) fn count(&mut self, path: &str, count: i64) -> Result<(), ImportError> {
        let dataset = DatasetBuilder::typed_data(path, Vec::new(), &[count]).map_err(|error| refused(&error))?;
        self.0 = std::mem::take(&mut self.0).dataset(dataset);
        Ok(())
    }

    /// All of it.
    pub(super) fn bytes(self) -> Result<Vec<u8>, ImportError> {
        let plan = self.0.into_plan().map_err(|error| refused(&error))?;
        plan.encode(WriteOptions::default()).map_err(|error| refused(&error))
    }
}

fn refused(error: &hdf5_writer::Error) -> ImportError {
    ImportError::Weights { reason: format!("HDF5 cannot hold them: {}", one_line(error)) }
}
