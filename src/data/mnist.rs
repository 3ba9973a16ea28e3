//! MNIST from a folder.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::idx::Reader;
use super::tensors::check_reshape;
use super::{Targets, TensorDataset, Values, corrupt, reserve};
use crate::error::DataError;
use crate::files;
use crate::tensor::Shape;

/// Number of classes of MNIST: the ten digits.
pub const CLASSES: u32 = 10;

const FETCH: &str =
    "`tightfit data mnist` fetches the full set, and the source repository holds a subset in data/mnist";

/// Reads the training and the test set from the four files in `dir`: samples of shape `[1, 28, 28]` with values from 0 to
/// 1, labels as they are: there are as many classes as
/// the largest of them says.
///
/// The files are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
/// `t10k-labels-idx1-ubyte`. Each may be gzipped, with or without `.gz` at the end, and may have a dot in place of the
/// last-but-one dash (`train-images.idx3-ubyte`). Sets in the same format, such as Fashion-MNIST or EMNIST, work too, also
/// with another image size and other numbers of classes.
///
/// # Errors
/// [`DataError::Missing`] when the folder or a file is not there, [`DataError::Corrupt`] when a file is damaged,
/// [`DataError::Mismatch`] when the files do not fit together.
pub fn open(dir: impl AsRef<Path>) -> Result<(TensorDataset, TensorDataset), DataError> {
    read(dir.as_ref(), None)
}

/// As [`open`], with samples of another shape, such as `[784]` for MNIST's `[1, 28, 28]`: whether it has as many elements is
/// seen before anything is unpacked.
///
/// # Errors
/// As [`open`]; [`DataError::Mismatch`] when the shape has another number of elements.
pub fn open_as(dir: impl AsRef<Path>, shape: impl Into<Shape>) -> Result<(TensorDataset, TensorDataset), DataError> {
    let shape = shape.into();
    let (train, test) = read(dir.as_ref(), Some(&shape))?;
    Ok((train.with_sample_shape(shape.clone())?, test.with_sample_shape(shape)?))
}

/// The shape of the images in `dir`, such as `[1, 28, 28]`; only the headers of the files are read.
///
/// # Errors
/// As [`open`].
pub fn image_shape(dir: impl AsRef<Path>) -> Result<Shape, DataError> {
    with_headers(dir.as_ref(), |train, _| Ok(train.image_shape()))
}

/// Whether images of shape `from` can be taken for samples of shape `to`.
///
/// # Errors
/// [`DataError::Mismatch`] where they have another number of elements, or their channels would have to move.
pub fn check_shape(from: &Shape, to: &Shape) -> Result<(), DataError> {
    check_reshape(from, to)
}

fn read(dir: &Path, shape: Option<&Shape>) -> Result<(TensorDataset, TensorDataset), DataError> {
    with_headers(dir, |train, test| {
        if let Some(shape) = shape {
            check_reshape(&train.image_shape(), shape)?;
        }
        let (train, test) = (train.read()?, test.read()?);
        // Neither part need have samples of every class.
        let classes = train.labels.iter().chain(&test.labels).max().map_or(0, |&largest| largest + 1);
        Ok((train.dataset(classes)?, test.dataset(classes)?))
    })
}

/// All headers before the first contents: packed files may be a thousandth of what they unpack to.
fn with_headers<T>(dir: &Path, then: impl FnOnce(Pair<'_>, Pair<'_>) -> Result<T, DataError>) -> Result<T, DataError> {
    let metadata = fs::metadata(dir).map_err(|source| match source.kind() {
        ErrorKind::NotFound => DataError::Missing { path: dir.to_path_buf(), hint: FETCH.into() },
        _ => DataError::Io { path: dir.to_path_buf(), source },
    })?;
    if !metadata.is_dir() {
        return Err(corrupt(dir, "is no folder; give the one that holds the four IDX files"));
    }
    let paths = [find(dir, "train", "images", 3)?, find(dir, "train", "labels", 1)?];
    let test_paths = [find(dir, "t10k", "images", 3)?, find(dir, "t10k", "labels", 1)?];
    let train = Pair::open(&paths[0], &paths[1])?;
    let test = Pair::open(&test_paths[0], &test_paths[1])?;
    if train.image_shape() != test.image_shape() {
        return Err(DataError::Mismatch(format!(
            "{}: training images have the shape {}, test images {}: the files are not of one set",
            dir.display(),
            train.image_shape(),
            test.image_shape()
        )));
    }
    then(train, test)
}

/// The file of one part, under any of its usual names.
fn find(dir: &Path, split: &str, what: &str, rank: u8) -> Result<PathBuf, DataError> {
    let name = format!("{split}-{what}-idx{rank}-ubyte");
    let dotted = format!("{split}-{what}.idx{rank}-ubyte");
    let names = [format!("{name}.gz"), name.clone(), format!("{dotted}.gz"), dotted.clone()];
    let mut paths =
        names.map(|name| dir.join(name)).into_iter().filter(|path| files::is_there(path)).collect::<Vec<_>>();
    // What is no file is found only where no file is: opening it says what it is.
    paths.sort_by_key(|path| !path.is_file());
    paths.into_iter().next().ok_or_else(|| DataError::Missing {
        path: dir.join(&name),
        hint: format!("`{dotted}` and both with .gz were looked for too; {FETCH}"),
    })
}

/// Images and their labels, of which only the headers were read.
struct Pair<'a> {
    images: Reader<'a>,
    labels: Reader<'a>,
    labels_path: &'a Path,
    extents: [usize; 2],
}

impl<'a> Pair<'a> {
    fn open(images_path: &'a Path, labels_path: &'a Path) -> Result<Self, DataError> {
        let labels = Reader::open(labels_path)?;
        let [label_count] = labels.dims[..] else {
            return Err(corrupt(labels_path, format!("has the extents {:?}, but labels have one", labels.dims)));
        };
        let images = Reader::open(images_path)?;
        let [count, rows, columns] = images.dims[..] else {
            return Err(corrupt(images_path, format!("has the extents {:?}, but images have three", images.dims)));
        };
        if count != label_count {
            return Err(DataError::Mismatch(format!(
                "{} holds {count} images but {} holds {label_count} labels: the two files are not of one set",
                images_path.display(),
                labels_path.display()
            )));
        }
        Ok(Pair { images, labels, labels_path, extents: [rows, columns] })
    }

    fn image_shape(&self) -> Shape {
        let [rows, columns] = self.extents;
        [1, rows, columns].into()
    }

    /// Images, and their labels.
    fn read(self) -> Result<Contents, DataError> {
        let (shape, labels) = (self.image_shape(), self.labels.read()?.data);
        let mut targets = reserve(self.labels_path, labels.len())?;
        targets.extend(labels.into_iter().map(u32::from));
        Ok(Contents { pixels: self.images.read()?.data, shape, labels: targets })
    }
}

/// What a pair of files holds.
struct Contents {
    pixels: Vec<u8>,
    shape: Shape,
    labels: Vec<u32>,
}

impl Contents {
    fn dataset(self, classes: u32) -> Result<TensorDataset, DataError> {
        TensorDataset::new(Values::U8(self.pixels), self.shape, Targets::labels(self.labels, classes))
    }
}
