//! Images without labels.

use std::path::{Path, PathBuf};

use super::options::ImageOptions;
use super::paths::{Paths, check_index, none_in, walk};
use super::reader::Reader;
use crate::data::{Dataset, Features, Sample, corrupt};
use crate::error::DataError;

/// Images without labels, for predictions: files, and all below folders.
///
/// A file is taken whatever its name is; of folders, as of those of an [`ImageFolder`](super::ImageFolder), those that are images by
/// their names, sorted.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageFiles {
    reader: Reader,
    paths: Paths,
    left_out: usize,
}

impl ImageFiles {
    /// Finds the images of files and folders, in their order.
    ///
    /// # Errors
    /// Where one cannot be read, or a folder has no images; [`DataError::Mismatch`] where there are no paths, or options make no sense.
    pub fn open(files: &[impl AsRef<Path>], options: ImageOptions) -> Result<Self, DataError> {
        let (mut paths, mut left_out) = (Paths::default(), 0);
        for path in files.iter().map(AsRef::as_ref) {
            let before = paths.len();
            if path.is_dir() {
                left_out += walk(path, &mut paths)?;
                if paths.len() == before {
                    return Err(none_in(path));
                }
                continue;
            }
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                return Err(corrupt(path, "has no name in UTF-8: rename it"));
            };
            paths.enter(path.parent().unwrap_or(Path::new("")).to_owned());
            paths.add(name)?;
        }
        if paths.len() == 0 {
            return Err(DataError::Mismatch("there are no images: give files or folders".to_owned()));
        }
        paths.shrink();
        let reader = Reader::of_file(options, &paths.get(0))?;
        Ok(ImageFiles { reader, paths, left_out })
    }

    /// The file of a sample; `None` past the end.
    pub fn path(&self, index: usize) -> Option<PathBuf> {
        (index < self.paths.len()).then(|| self.paths.get(index))
    }

    /// How images are read, with the size that all have.
    pub fn options(&self) -> ImageOptions {
        self.reader.options()
    }

    /// How many files were left out, because they are hidden or no images by their names.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

impl Dataset for ImageFiles {
    fn len(&self) -> usize {
        self.paths.len()
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        check_index(index, self.len())?;
        Ok(Sample::new(self.reader.file(&self.paths.get(index))?))
    }

    fn features(&self) -> Result<Features, DataError> {
        Ok(self.reader.features())
    }

    fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
        check_index(index, self.len())?;
        Ok(None)
    }

    fn origin(&self, index: usize) -> String {
        self.path(index).map_or_else(|| format!("sample {index}"), |path| path.display().to_string())
    }

    fn host_bytes(&self) -> u64 {
        self.paths.host_bytes()
    }

    fn scratch_bytes(&self) -> u64 {
        self.reader.scratch_bytes()
    }
}
