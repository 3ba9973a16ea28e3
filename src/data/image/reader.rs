//! What all sources of images share: how a file becomes a sample's array.

use std::path::Path;

use super::decode::{self, Header, Pixels};
use super::options::ImageOptions;
use super::resize::Geometry;
use crate::data::{Array, Features, corrupt};
use crate::error::DataError;
use crate::tensor::DType;

/// Reads images of one size.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::data) struct Reader {
    options: ImageOptions,
    size: [usize; 2],
}

impl Reader {
    /// `first` says of which size images are where none was asked for.
    pub(super) fn new(
        options: ImageOptions,
        first: impl FnOnce(&ImageOptions) -> Result<Header, DataError>,
    ) -> Result<Self, DataError> {
        options.check()?;
        let size = match options.size {
            Some(size) => size,
            None => {
                let header = first(&options)?;
                [header.height, header.width]
            }
        };
        Ok(Reader { options, size })
    }

    /// As [`Reader::new`], where the first image is a file.
    pub(super) fn of_file(options: ImageOptions, first: &Path) -> Result<Self, DataError> {
        Reader::new(options, |options| Ok(decode::read_header(first, options)?.0))
    }

    /// As [`Reader::new`], where the first image is a part of a file.
    pub(in crate::data) fn of_bytes(
        options: ImageOptions,
        path: &Path,
        first: impl FnOnce() -> Result<Vec<u8>, DataError>,
    ) -> Result<Self, DataError> {
        Reader::new(options, |options| header_of(&first()?, path, options))
    }

    /// The options with the size that all images have.
    pub(in crate::data) fn options(&self) -> ImageOptions {
        ImageOptions { size: Some(self.size), ..self.options.clone() }
    }

    /// The bytes of an image file.
    pub(super) fn read_file(&self, path: &Path) -> Result<Vec<u8>, DataError> {
        decode::read_file(path, &self.options)
    }

    pub(in crate::data) fn max_pixels(&self) -> u64 {
        self.options.max_pixels
    }

    pub(in crate::data) fn size(&self) -> [usize; 2] {
        self.size
    }

    pub(in crate::data) fn features(&self) -> Features {
        let [height, width] = self.size;
        Features::new(DType::U8, [self.options.channels, height, width])
    }

    pub(in crate::data) fn scratch_bytes(&self) -> u64 {
        let [height, width] = self.size.map(|extent| extent as u64);
        self.options.scratch_bytes().saturating_add(3 * height * width * self.options.channels as u64)
    }

    pub(super) fn file(&self, path: &Path) -> Result<Array, DataError> {
        self.bytes(&self.read_file(path)?, path)
    }

    /// The image in the contents of a file, which messages call `path`.
    pub(in crate::data) fn bytes(&self, bytes: &[u8], path: &Path) -> Result<Array, DataError> {
        Ok(self.with_geometry(bytes, path)?.0)
    }

    /// The same, its own height and width, and where it went.
    pub(super) fn with_geometry(&self, bytes: &[u8], path: &Path) -> Result<(Array, [usize; 2], Geometry), DataError> {
        let pixels = decode::pixels(bytes, &self.options).map_err(|reason| corrupt(path, reason))?;
        let from = [pixels.height, pixels.width];
        let geometry = Geometry::new(from, self.size, self.options.resize);
        Ok((self.resized(pixels, &geometry, path)?.into_array()?, from, geometry))
    }

    fn resized(&self, pixels: Pixels, geometry: &Geometry, path: &Path) -> Result<Pixels, DataError> {
        let found = [pixels.height, pixels.width];
        if found == self.size {
            return Ok(pixels);
        }
        if self.options.size.is_none() {
            let [[height, width], [of_first, wide]] = [found, self.size];
            return Err(corrupt(
                path,
                format!(
                    "is {height} x {width} (height x width), but the first image is {of_first} x {wide}: give a size to which all are \
                     resized"
                ),
            ));
        }
        geometry.bilinear(&pixels, self.options.resize.fill())
    }
}

/// Reads one image file as `[channels, height, width]`, resized where a size is given.
///
/// # Errors
/// [`DataError::Missing`] or [`DataError::Io`] where the file cannot be read, [`DataError::Corrupt`] where it is no whole PNG or JPEG, or
/// too large.
pub fn read(path: impl AsRef<Path>, options: &ImageOptions) -> Result<Array, DataError> {
    let path = path.as_ref();
    decode(&decode::read_file(path, options)?, path, options)
}

/// The same, of the contents of a file; messages call it `path`. Alpha is dropped, as Pillow's `convert("RGB")` does, 16 bits become the
/// nearest of 8, and the image is turned as its EXIF orientation says.
///
/// # Errors
/// [`DataError::Corrupt`] where it is no whole PNG or JPEG, or too large.
pub fn decode(bytes: &[u8], path: impl AsRef<Path>, options: &ImageOptions) -> Result<Array, DataError> {
    let path = path.as_ref();
    Reader::new(options.clone(), |options| header_of(bytes, path, options))?.bytes(bytes, path)
}

fn header_of(bytes: &[u8], path: &Path, options: &ImageOptions) -> Result<Header, DataError> {
    decode::header(bytes, options.max_pixels).map_err(|reason| corrupt(path, reason))
}
