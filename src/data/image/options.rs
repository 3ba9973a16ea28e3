//! How images become samples.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::DataError;
use crate::tensor::format_bytes;

/// Files that are longer are refused.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Extents of an image that is asked for.
const MAX_EXTENT: usize = 1 << 15;
/// Bytes for each pixel of a file while it is decoded, at most: 16 bits for each of four channels, twice where an image is turned.
/// Coefficients of a progressive JPEG, and pixels that are made of them, are less.
const DECODER_BYTES: u64 = 16;
/// Bytes of a file for each pixel, at most, and besides.
const PIXEL_FILE_BYTES: u64 = 8;
const OTHER_FILE_BYTES: u64 = 1 << 20;

/// How an image file becomes an array of bytes `[channels, height, width]`. It is saved with a model, so that new files are read in the
/// same way.
///
/// ```
/// use tightfit::data::{ImageOptions, Resize};
///
/// let options = ImageOptions { size: Some([224, 224]), resize: Resize::Crop, ..ImageOptions::default() };
/// let text = serde_json::to_string(&options)?;
/// assert_eq!(text, r#"{"size":[224,224],"channels":3,"resize":"crop","max-pixels":100000000}"#);
/// assert_eq!(serde_json::from_str::<ImageOptions>(r#"{"size":[224,224],"resize":"crop"}"#)?, options);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct ImageOptions {
    /// Height and width to which every image is resized. Without it, all must have the size of the first.
    pub size: Option<[usize; 2]>,
    /// 3: red, green, blue, of grey images the same three times. 1: grey, of colors the luma that Pillow makes of them,
    /// (19595 R + 38470 G + 7471 B + 32768) / 65536.
    pub channels: usize,
    /// What happens to images of other proportions.
    pub resize: Resize,
    /// Files with more pixels are refused before they are decoded. Memory for reading follows from it: see
    /// [`scratch_bytes`](Self::scratch_bytes).
    pub max_pixels: u64,
}

impl Default for ImageOptions {
    /// Images of one size, in color, of at most 100 megapixels.
    fn default() -> Self {
        ImageOptions { size: None, channels: 3, resize: Resize::Stretch, max_pixels: 100_000_000 }
    }
}

impl ImageOptions {
    /// Color images of this height and width, stretched to it.
    pub fn sized(height: usize, width: usize) -> Self {
        ImageOptions { size: Some([height, width]), ..ImageOptions::default() }
    }

    /// Whether they make sense.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where channels are neither 1 nor 3, or the size is 0 or above 32,768.
    pub fn check(&self) -> Result<(), DataError> {
        if ![1, 3].contains(&self.channels) {
            return Err(DataError::Mismatch(format!(
                "images cannot be read with {} channels: ask for 1 (grey) or 3 (color)",
                self.channels
            )));
        }
        match self.size {
            Some([height, width]) if [height, width].iter().any(|extent| !(1..=MAX_EXTENT).contains(extent)) => {
                Err(DataError::Mismatch(format!(
                    "images cannot be resized to {height} x {width} (height x width): each must be from 1 to {MAX_EXTENT}"
                )))
            }
            _ => Ok(()),
        }
    }

    /// How long files may be: 256 MiB, or 1 MiB and 8 bytes for each pixel that is allowed where that is less.
    pub(in crate::data) fn file_bytes(&self) -> u64 {
        MAX_FILE_BYTES.min(self.max_pixels.saturating_mul(PIXEL_FILE_BYTES).saturating_add(OTHER_FILE_BYTES))
    }

    /// Bytes of host memory at most to read one file: 16 for each pixel that [`max_pixels`](Self::max_pixels) allows, and the file twice,
    /// of at most 256 MiB, or of 1 MiB and 8 bytes for each of these pixels where that is less. Photos of a usual size take far less.
    pub fn scratch_bytes(&self) -> u64 {
        (2 * self.file_bytes()).saturating_add(self.max_pixels.saturating_mul(DECODER_BYTES))
    }

    /// The same, reading no file that would take more than so many bytes: [`scratch_bytes`](Self::scratch_bytes) is then at most that.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where so few bytes are not enough for any image.
    pub fn within(&self, scratch_bytes: u64) -> Result<Self, DataError> {
        // Of two lines, one above and one below the longest file.
        let below = scratch_bytes.saturating_sub(2 * OTHER_FILE_BYTES) / (DECODER_BYTES + 2 * PIXEL_FILE_BYTES);
        let above = scratch_bytes.saturating_sub(2 * MAX_FILE_BYTES) / DECODER_BYTES;
        match self.max_pixels.min(below.max(above)) {
            0 => Err(DataError::Mismatch(format!("{} are not enough to read an image", format_bytes(scratch_bytes)))),
            max_pixels => Ok(ImageOptions { max_pixels, ..self.clone() }),
        }
    }
}

/// How an image of other proportions becomes one of the size that is asked for. Bilinear with antialiasing, as Pillow's
/// `Image.resize(size, BILINEAR)`, to within 1 of 255.
///
/// As a text, in files and on the command line: `stretch`, `pad`, `pad:114` or `crop`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Resize {
    /// Height and width by themselves: proportions change. As Pillow's `Image.resize`.
    #[default]
    Stretch,
    /// Scaled until all of it is inside, in the middle. As Pillow's `ImageOps.pad`.
    Pad {
        /// What the rest is, in every channel.
        fill: u8,
    },
    /// Scaled until it covers everything, and the middle cut out. As Pillow's `ImageOps.fit`.
    Crop,
}

impl fmt::Display for Resize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resize::Stretch => f.write_str("stretch"),
            Resize::Pad { fill: 0 } => f.write_str("pad"),
            Resize::Pad { fill } => write!(f, "pad:{fill}"),
            Resize::Crop => f.write_str("crop"),
        }
    }
}

impl FromStr for Resize {
    type Err = DataError;

    fn from_str(text: &str) -> Result<Self, DataError> {
        let fill = || text.strip_prefix("pad:")?.parse().ok();
        match text {
            "stretch" => Ok(Resize::Stretch),
            "pad" => Ok(Resize::Pad { fill: 0 }),
            "crop" => Ok(Resize::Crop),
            _ => fill().map(|fill| Resize::Pad { fill }).ok_or_else(|| {
                DataError::Mismatch(format!(
                    "images cannot be resized by `{}`: choose stretch, pad, pad:FILL with a fill from 0 to 255, or crop",
                    text.escape_debug()
                ))
            }),
        }
    }
}

impl TryFrom<String> for Resize {
    type Error = DataError;

    fn try_from(text: String) -> Result<Self, DataError> {
        text.parse()
    }
}

impl From<Resize> for String {
    fn from(resize: Resize) -> String {
        resize.to_string()
    }
}
