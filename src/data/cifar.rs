//! CIFAR-10 in its binary form: <https://www.cs.toronto.edu/~kriz/cifar.html>.

use std::io::Read as _;
use std::path::Path;

use super::{Targets, TensorDataset, Values, corrupt, io_error, reserve};
use crate::error::DataError;
use crate::files;

/// Classes, in the order of their labels.
pub const CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Files of training images, of which all that are there are read.
const TRAIN: [&str; 5] =
    ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];
const TEST: &str = "test_batch.bin";

/// Bytes of an image: three channels of 32 by 32.
const IMAGE_BYTES: usize = 3 * 32 * 32;
/// An image with its label before it.
const RECORD_BYTES: usize = 1 + IMAGE_BYTES;
/// Files have 10,000 images; nobody needs a file of a hundred times as many.
const MAX_FILE_BYTES: u64 = 1_000_000 * RECORD_BYTES as u64;

/// Training and test set, `[3, 32, 32]` each sample, from a folder such as `cifar-10-batches-bin`.
///
/// # Errors
/// Where the folder has no training file or no test file, or one is not what it should be.
pub fn open(folder: impl AsRef<Path>) -> Result<(TensorDataset, TensorDataset), DataError> {
    let folder = folder.as_ref();
    let missing = |name: &str| DataError::Missing {
        path: folder.join(name),
        hint: "unpack cifar-10-binary.tar.gz and give its folder cifar-10-batches-bin".to_owned(),
    };
    let train: Vec<_> = TRAIN.iter().map(|name| folder.join(name)).filter(|path| path.is_file()).collect();
    if train.is_empty() {
        return Err(missing(TRAIN[0]));
    }
    let test = folder.join(TEST);
    if !test.is_file() {
        return Err(missing(TEST));
    }
    Ok((read(&train)?, read(&[test])?))
}

fn read<P: AsRef<Path>>(paths: &[P]) -> Result<TensorDataset, DataError> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for path in paths {
        let path = path.as_ref();
        let (file, length) = files::open(path, "unpack cifar-10-binary.tar.gz")?;
        if length == 0 || length > MAX_FILE_BYTES || !length.is_multiple_of(RECORD_BYTES as u64) {
            return Err(corrupt(
                path,
                format!("{length} bytes are not a number of images of {RECORD_BYTES} bytes each: download it again"),
            ));
        }
        let mut bytes = reserve(path, length as usize)?;
        file.take(length).read_to_end(&mut bytes).map_err(|source| io_error(path, source))?;
        let count = bytes.len() / RECORD_BYTES;
        let room = pixels.try_reserve(count * IMAGE_BYTES).and_then(|()| labels.try_reserve(count));
        room.map_err(|error| io_error(path, error.into()))?;
        for (i, record) in bytes.chunks_exact(RECORD_BYTES).enumerate() {
            if usize::from(record[0]) >= CLASSES.len() {
                return Err(corrupt(
                    path,
                    format!("label {} of image {i} is not below 10: download it again", record[0]),
                ));
            }
            labels.push(u32::from(record[0]));
            pixels.extend_from_slice(&record[1..]);
        }
    }
    TensorDataset::new(Values::U8(pixels), [3, 32, 32], Targets::labels(labels, CLASSES.len() as u32))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::data::{Batch, Dataset as _};

    fn record(label: u8, pixel: u8) -> Vec<u8> {
        let mut record = vec![pixel; RECORD_BYTES];
        record[0] = label;
        record
    }

    #[test]
    fn files_of_a_folder_are_put_together() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let write =
            |name: &str, records: &[Vec<u8>]| fs::write(folder.path().join(name), records.concat()).expect("writes");
        assert!(open(folder.path()).expect_err("nothing there").to_string().contains("cifar-10-binary"));
        write(TRAIN[0], &[record(3, 255), record(9, 0)]);
        assert!(open(folder.path()).expect_err("no test set").to_string().contains(TEST));
        write(TRAIN[1], &[record(0, 51)]);
        write(TEST, &[record(1, 0)]);
        let (train, test) = open(folder.path()).expect("reads");
        assert_eq!((train.len(), test.len(), train.classes()), (3, 1, Some(10)));
        let mut batch = Batch::default();
        train.read(&[2, 0], &mut batch).expect("in range");
        assert_eq!((batch.values("input")[0], batch.values("input")[IMAGE_BYTES]), (0.2, 1.0));
        assert_eq!(batch.ints("target"), [0, 3]);
    }

    #[test]
    fn files_that_are_something_else_are_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (contents, word) in [(vec![0; 3072], "3072 bytes"), (Vec::new(), "is empty"), (record(10, 1), "label 10")] {
            let path = folder.path().join("x.bin");
            fs::write(&path, contents).expect("writes");
            assert!(read(&[&path]).expect_err("refused").to_string().contains(word), "{word}");
        }
    }
}
