//! Datasets: what a model is trained and tested on, how it is read from files, and in which order it is fed.
//!
//! | module | what |
//! |---|---|
//! | [`mnist`] | MNIST and sets in its format, from a folder |
//! | [`idx`] | the file format of MNIST |
//! | `download` | fetches MNIST, resumable and checked; with the feature `download` |
//! | `image` | images in folders and lists, with labels, numbers or masks; with the feature `images` |
//! | `TarShards` | images in tar archives, as WebDataset writes them; with the feature `images` |
//! | [`series`] | numeric series from CSV, of one or several columns, cut into windows |
//! | [`cifar`] | CIFAR-10, from its binary files |
//! | [`npy`] | arrays of NumPy: `.npy` and `.npz` |
//! | [`table`] | tables: CSV, and Parquet with the feature `parquet` |
//! | [`text`] | text, character by character, and files of tokens |
//! | [`loader`] | shuffled batches from a seed |
//! | [`augment`] | images changed at random |
//! | [`split`] | parts for training, validation and test; weights of classes |
//! | `sheet` | a picture of some samples; with the feature `images` |
//!
//! Files are untrusted: lengths are checked before memory is taken, and anything wrong is a
//! [`DataError`] that names the file and says what to do.

mod adapters;
mod array;
pub mod augment;
mod batch;
pub mod cifar;
mod dataset;
#[cfg(feature = "download")]
pub mod download;
mod features;
pub mod idx;
#[cfg(feature = "images")]
pub mod image;
pub mod loader;
pub mod mnist;
pub mod npy;
mod random;
mod sample;
mod sampler;
mod sequence;
pub mod series;
#[cfg(feature = "images")]
pub mod sheet;
pub mod split;
mod subset;
pub mod table;
#[cfg(feature = "images")]
mod tar;
mod targets;
mod tensors;
pub mod text;
mod transform;

pub use adapters::{BinaryTarget, OneHot, Reshaped};
pub use array::{Array, Values};
pub(crate) use batch::unit;
pub use batch::{Batch, INPUT, SAMPLE_WEIGHT, TARGET};
pub use dataset::Dataset;
pub use features::{Features, TargetKind};
#[cfg(feature = "images")]
pub use image::{
    ImageFiles, ImageFolder, ImageList, ImageOptions, ListOptions, ListTarget, MaskOptions, MaskedImages, Resize,
};
pub use loader::{
    Batches, DataLoader, Epoch, EpochBatches, EpochOptions, LoaderMemory, OnError, Order, Stream, StreamState,
};
pub use npy::{ArrayDataset, ArrayOptions};
pub use sample::Sample;
pub use sampler::WeightedSampler;
pub use subset::Subset;
pub use table::{Table, TableOptions, TablePreprocessing};
#[cfg(feature = "images")]
pub use tar::{TarOptions, TarShards, TarTarget};
pub use targets::Targets;
pub(crate) use targets::{label_bits, shown_label};
pub use tensors::TensorDataset;
pub(crate) use tensors::moved_channels;
pub use transform::{BatchTransform, Key, Transform};

use std::path::Path;

use crate::error::DataError;
use crate::tensor::room;

/// An I/O error with the file it belongs to.
fn io_error(path: &Path, source: std::io::Error) -> DataError {
    DataError::Io { path: path.to_path_buf(), source }
}

/// An empty vector with room for so many values of a file.
fn reserve<T>(path: &Path, count: usize) -> Result<Vec<T>, DataError> {
    room(count).map_err(|missing| io_error(path, std::io::Error::new(std::io::ErrorKind::OutOfMemory, missing)))
}

/// Contents that are not what they should be.
fn corrupt(path: &Path, reason: impl Into<String>) -> DataError {
    DataError::Corrupt { path: path.to_path_buf(), reason: reason.into() }
}
