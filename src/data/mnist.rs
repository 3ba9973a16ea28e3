//! MNIST from a folder.

use std::path::{Path, PathBuf};

use super::{Dataset, Samples, Targets, corrupt, idx};
use crate::error::DataError;

/// Number of classes: the ten digits.
pub const CLASSES: u32 = 10;

const FETCH: &str =
    "`tightfit data mnist` fetches the full set, and the source repository holds a subset in data/mnist";

/// Reads the training and the test set from the four files in `dir`: samples of shape `[1, 28, 28]` with values from 0 to
/// 1, labels from 0 to 9.
///
/// The files are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
/// `t10k-labels-idx1-ubyte`. Each may be gzipped, with or without `.gz` at the end, and may have a dot in place of the
/// last-but-one dash (`train-images.idx3-ubyte`). Sets in the same format, such as Fashion-MNIST, work too, also with
/// another image size.
///
/// # Errors
/// [`DataError::Missing`] when the folder or a file is not there, [`DataError::Corrupt`] when a file is damaged or holds a
/// label above 9, [`DataError::Mismatch`] when the files do not fit together.
pub fn open(dir: impl AsRef<Path>) -> Result<(Dataset, Dataset), DataError> {
    let dir = dir.as_ref();
    if !dir.exists() {
        return Err(DataError::Missing { path: dir.to_path_buf(), hint: FETCH.into() });
    }
    if !dir.is_dir() {
        return Err(corrupt(dir, "is a file; give the folder that holds the four IDX files"));
    }
    // Look for all four before reading the first: reading takes a moment.
    let paths = [find(dir, "train", "images", 3)?, find(dir, "train", "labels", 1)?];
    let test_paths = [find(dir, "t10k", "images", 3)?, find(dir, "t10k", "labels", 1)?];
    let train = read_pair(&paths[0], &paths[1])?;
    let test = read_pair(&test_paths[0], &test_paths[1])?;
    if train.sample_shape() != test.sample_shape() {
        return Err(DataError::Mismatch(format!(
            "{}: training images have the shape {}, test images {}: the files are not of one set",
            dir.display(),
            train.sample_shape(),
            test.sample_shape()
        )));
    }
    Ok((train, test))
}

/// The file of one part, under any of its usual names.
fn find(dir: &Path, split: &str, what: &str, rank: u8) -> Result<PathBuf, DataError> {
    let name = format!("{split}-{what}-idx{rank}-ubyte");
    let dotted = format!("{split}-{what}.idx{rank}-ubyte");
    [format!("{name}.gz"), name.clone(), format!("{dotted}.gz"), dotted.clone()]
        .iter()
        .map(|name| dir.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| DataError::Missing {
            path: dir.join(&name),
            hint: format!("`{dotted}` and both with .gz were looked for too; {FETCH}"),
        })
}

/// Reads images and their labels.
fn read_pair(images_path: &Path, labels_path: &Path) -> Result<Dataset, DataError> {
    let labels = idx::read(labels_path)?;
    if labels.dims.len() != 1 {
        return Err(corrupt(labels_path, format!("has the extents {:?}, but labels have one", labels.dims)));
    }
    if let Some((index, label)) = labels.data.iter().enumerate().find(|(_, label)| u32::from(**label) >= CLASSES) {
        return Err(corrupt(
            labels_path,
            format!("label {label} at index {index} is out of range: labels go from 0 to {}", CLASSES - 1),
        ));
    }
    let images = idx::read(images_path)?;
    let [count, rows, columns] = images.dims[..] else {
        return Err(corrupt(images_path, format!("has the extents {:?}, but images have three", images.dims)));
    };
    if count != labels.data.len() {
        return Err(DataError::Mismatch(format!(
            "{} holds {count} images but {} holds {} labels: the two files are not of one set",
            images_path.display(),
            labels_path.display(),
            labels.data.len()
        )));
    }
    let labels = labels.data.into_iter().map(u32::from).collect();
    Dataset::new(Samples::U8(images.data), [1, rows, columns], Targets::labels(labels, CLASSES))
}
