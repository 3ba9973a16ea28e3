//! PNG and JPEG files as pixels.

use std::fs::File;
use std::io::{Cursor, Read as _};
use std::path::Path;

use image::metadata::Orientation;
use image::{ColorType, DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};

use super::options::ImageOptions;
use crate::data::{Array, Values, corrupt, io_error};
use crate::error::DataError;
use crate::files;
use crate::tensor::room;

/// Where such files come from, for messages.
pub(super) const HINT: &str = "give a PNG or JPEG image";
/// In so many bytes at the beginning most files say what they are.
const HEADER_BYTES: u64 = 256 << 10;
/// What decoders may take besides pixels, such as profiles of colors.
const MARGIN_BYTES: u64 = 32 << 20;

/// What a file says of itself, before it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// As it is seen: turned where the camera was.
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) format: &'static str,
    pub(super) color: &'static str,
    pub(super) is_turned: bool,
}

/// Pixels of an image, row by row, the channels of a pixel together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pixels {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
    pub(super) bytes: Vec<u8>,
}

impl Pixels {
    /// The same as a sample has them: channel by channel.
    pub(super) fn into_array(self) -> Result<Array, DataError> {
        let Pixels { height, width, channels, bytes } = self;
        let bytes = if channels == 1 {
            bytes
        } else {
            let mut planes = room(bytes.len())?;
            (0..channels).for_each(|channel| planes.extend(bytes.iter().skip(channel).step_by(channels)));
            planes
        };
        Array::new(Values::U8(bytes), [channels, height, width])
    }
}

/// The bytes of an image file.
pub(super) fn read_file(path: &Path, options: &ImageOptions) -> Result<Vec<u8>, DataError> {
    files::read(path, options.file_bytes(), HINT)
}

/// What a file says of itself, and how long it is. Of large files only the beginning is read.
pub(super) fn read_header(path: &Path, options: &ImageOptions) -> Result<(Header, u64), DataError> {
    let (file, length) = files::open(path, HINT)?;
    let first = beginning(path, &file)?;
    let header = match header(&first, options.max_pixels) {
        Err(_) if length > HEADER_BYTES => header(&read_file(path, options)?, options.max_pixels),
        header => header,
    };
    Ok((header.map_err(|reason| corrupt(path, reason))?, length))
}

fn beginning(path: &Path, file: &File) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    file.take(HEADER_BYTES).read_to_end(&mut bytes).map_err(|error| io_error(path, error))?;
    Ok(bytes)
}

/// As [`read_header`], of the contents of a file. Errors are what follows the name of the file.
pub(super) fn header(bytes: &[u8], max_pixels: u64) -> Result<Header, String> {
    let (format, mut decoder) = decoder(bytes, max_pixels)?;
    let (width, height) = decoder.dimensions();
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let (width, height) = if swaps(orientation) { (height, width) } else { (width, height) };
    Ok(Header {
        height: height as usize,
        width: width as usize,
        format: if format == ImageFormat::Png { "PNG" } else { "JPEG" },
        color: color_name(decoder.color_type()),
        is_turned: orientation != Orientation::NoTransforms,
    })
}

/// The pixels of the contents of a file, turned as it says. Errors are what follows the name of the file.
pub(super) fn pixels(bytes: &[u8], options: &ImageOptions) -> Result<Pixels, String> {
    let (format, mut decoder) = decoder(bytes, options.max_pixels)?;
    if format == ImageFormat::Jpeg && !ends(bytes) {
        return Err(truncated());
    }
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut image = DynamicImage::from_decoder(decoder).map_err(|error| reason(&error))?;
    image.apply_orientation(orientation);
    let (width, height) = (image.width() as usize, image.height() as usize);
    let is_color = image.color().has_color();
    let bytes = match (options.channels, is_color) {
        (1, false) => image.into_luma8().into_raw(),
        (1, true) => luma(&image.into_rgb8().into_raw())?,
        _ => image.into_rgb8().into_raw(),
    };
    Ok(Pixels { height, width, channels: options.channels, bytes })
}

/// A decoder of the contents of a file, which has been found to have no more pixels than allowed.
fn decoder(bytes: &[u8], max_pixels: u64) -> Result<(ImageFormat, Box<dyn ImageDecoder + '_>), String> {
    let format = match image::guess_format(bytes) {
        Ok(format @ (ImageFormat::Png | ImageFormat::Jpeg)) => format,
        Ok(format) => {
            let name = format.extensions_str().first().copied().unwrap_or("another format");
            return Err(format!("is an image of another format ({name}): convert it to PNG or JPEG"));
        }
        Err(_) => return Err("is neither a PNG nor a JPEG image: convert it, or take it out".to_owned()),
    };
    let mut limits = Limits::default();
    limits.max_alloc = Some(max_pixels.saturating_mul(8).saturating_add(MARGIN_BYTES));
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(|error| reason(&error))?;
    let (width, height) = decoder.dimensions();
    check_pixels(width, height, max_pixels)?;
    Ok((format, Box::new(decoder)))
}

/// Whether so many pixels may be decoded.
pub(super) fn check_pixels(width: u32, height: u32, max_pixels: u64) -> Result<(), String> {
    if width == 0 || height == 0 {
        return Err("is an image without pixels: take it out".to_owned());
    }
    if u64::from(width) * u64::from(height) > max_pixels {
        return Err(format!(
            "is an image of {width} x {height} pixels, more than the {max_pixels} that may be decoded: make it smaller, or raise \
             `max-pixels`"
        ));
    }
    Ok(())
}

fn truncated() -> String {
    "ends too early: it was not copied or downloaded as a whole, fetch it again".to_owned()
}

/// What a decoder says, in one line.
fn reason(error: &ImageError) -> String {
    let words = error.to_string();
    let words: Vec<_> = words.split_whitespace().collect();
    let words = words.join(" ");
    match error {
        ImageError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => truncated(),
        ImageError::Limits(_) => format!("takes more memory than an image of its size does ({words}): take it out"),
        ImageError::Unsupported(_) => format!("is of a kind that cannot be read ({words}): convert it"),
        _ => format!("is damaged ({words}): fetch it again, or take it out"),
    }
}

/// Whether a JPEG has its end. Decoders fill in what is missing, with grey.
fn ends(bytes: &[u8]) -> bool {
    let is_end = |pair: &[u8]| pair == [0xff, 0xd9];
    bytes[scan(bytes).unwrap_or(0)..].windows(2).rev().any(is_end)
}

/// Where the first scan begins: images in headers have an end of their own.
fn scan(bytes: &[u8]) -> Option<usize> {
    let mut at = 2;
    loop {
        match bytes.get(at..at + 2)? {
            [0xff, 0xda] => return Some(at),
            [0xff, 0xff] => at += 1,
            [0xff, _] => {
                let length = bytes.get(at + 2..at + 4)?;
                at += 2 + usize::from(u16::from_be_bytes([length[0], length[1]]));
            }
            _ => return None,
        }
    }
}

/// Grey of colors, as Pillow's `convert("L")`.
fn luma(colors: &[u8]) -> Result<Vec<u8>, String> {
    let mut grey = room(colors.len() / 3).map_err(|missing| missing.to_string())?;
    let of = |[r, g, b]: [u8; 3]| (19595 * u32::from(r) + 38470 * u32::from(g) + 7471 * u32::from(b) + 32768) >> 16;
    grey.extend(colors.as_chunks::<3>().0.iter().map(|color| of(*color) as u8));
    Ok(grey)
}

fn swaps(orientation: Orientation) -> bool {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    matches!(orientation, Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH)
}

fn color_name(color: ColorType) -> &'static str {
    match color {
        ColorType::L8 => "grey",
        ColorType::La8 => "grey with alpha",
        ColorType::L16 => "grey, 16 bits",
        ColorType::La16 => "grey with alpha, 16 bits",
        ColorType::Rgb8 => "color",
        ColorType::Rgba8 => "color with alpha",
        ColorType::Rgb16 => "color, 16 bits",
        ColorType::Rgba16 => "color with alpha, 16 bits",
        _ => "other",
    }
}
