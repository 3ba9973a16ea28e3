//! The IDX format, in which MNIST and sets like it are distributed.
//!
//! A file starts with two zero bytes, a byte for the element type (only `0x08`, unsigned bytes, is read here), a byte for
//! the number of dimensions, and each extent as a big-endian u32. The elements follow, the last dimension fastest. Files
//! may be gzipped: the first two bytes tell, whatever the name is.

use std::io::{self, BufRead as _, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::{corrupt, io_error, reserve};
use crate::error::DataError;
use crate::files;

/// The largest number of elements that is read: a safeguard against files that unpack without end.
pub const MAX_ELEMENTS: u64 = 1 << 31;

/// Deflate codes at most 258 bytes in 2 bits, so a file cannot unpack to more than 1032 times its size.
const MAX_INFLATION: u64 = 1032;
const MAX_DIMS: u8 = 8;

/// The contents of an IDX file of unsigned bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idx {
    /// Extents, outermost first; for images: count, rows, columns.
    pub dims: Vec<usize>,
    /// All elements; as many as the product of `dims`.
    pub data: Vec<u8>,
}

/// Reads an IDX file, plain or gzipped.
///
/// # Errors
/// [`DataError::Missing`] or [`DataError::Io`] when it cannot be opened or read, [`DataError::Corrupt`] when it is not a whole,
/// valid IDX file.
pub fn read(path: &Path) -> Result<Idx, DataError> {
    Reader::open(path)?.read()
}

/// A file of which the header was read: what it holds can be compared with other files before it is unpacked.
pub(super) struct Reader<'a> {
    path: &'a Path,
    input: Box<dyn Read>,
    pub(super) dims: Vec<usize>,
}

impl<'a> Reader<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Self, DataError> {
        let (file, input_bytes) = files::open(path, "give an IDX file")?;
        let mut input = BufReader::new(file);
        let gzipped = input.fill_buf().map_err(|error| io_error(path, error))?.starts_with(&[0x1f, 0x8b]);
        let (mut input, limit_bytes): (Box<dyn Read>, u64) = if gzipped {
            (Box::new(MultiGzDecoder::new(input)), input_bytes.saturating_mul(MAX_INFLATION))
        } else {
            (Box::new(input), input_bytes)
        };
        let dims = header(&mut input, limit_bytes, path)?;
        Ok(Reader { path, input, dims })
    }

    /// The elements.
    pub(super) fn read(self) -> Result<Idx, DataError> {
        let Reader { path, mut input, dims } = self;
        let elements: usize = dims.iter().product();
        let mut data = reserve(path, elements)?;
        input.by_ref().take(elements as u64).read_to_end(&mut data).map_err(|error| read_error(path, error))?;
        if data.len() < elements {
            return Err(truncated(path));
        }
        // Reading to the end also makes the gzip decoder check its checksum.
        let more = input.read(&mut [0u8]).map_err(|error| read_error(path, error))?;
        if more != 0 {
            return Err(corrupt(path, format!("goes on after the {dims:?} elements of its header: fetch it again")));
        }
        Ok(Idx { dims, data })
    }
}

/// Reads the header of a plain IDX stream of at most `limit_bytes`: the extents, whose product is bounded.
fn header(mut input: impl Read, limit_bytes: u64, path: &Path) -> Result<Vec<usize>, DataError> {
    let mut magic = [0u8; 4];
    fill(&mut input, &mut magic, path)?;
    let [zero_a, zero_b, element, rank] = magic;
    if (zero_a, zero_b) != (0, 0) || !(0x08..=0x0e).contains(&element) || rank == 0 || rank > MAX_DIMS {
        return Err(corrupt(
            path,
            format!("is not an IDX file: it starts with {magic:02x?}, expected [00, 00, 08, number of dimensions]"),
        ));
    }
    if element != 0x08 {
        return Err(corrupt(
            path,
            format!("holds elements of type {element:#04x}; only unsigned bytes (0x08) can be read, convert it first"),
        ));
    }

    let mut dims = Vec::with_capacity(usize::from(rank));
    let mut elements = 1u64;
    for _ in 0..rank {
        let mut extent = [0u8; 4];
        fill(&mut input, &mut extent, path)?;
        let extent = u32::from_be_bytes(extent);
        if extent == 0 {
            return Err(corrupt(path, format!("holds nothing: extent {} in its header is 0", dims.len())));
        }
        elements = elements.saturating_mul(u64::from(extent));
        dims.push(extent as usize);
    }
    if elements > MAX_ELEMENTS {
        return Err(corrupt(
            path,
            format!("announces {dims:?} elements, more than the {MAX_ELEMENTS} that are read: the header is damaged"),
        ));
    }
    let header_bytes = 4 + 4 * u64::from(rank);
    if header_bytes + elements > limit_bytes {
        return Err(truncated(path));
    }
    Ok(dims)
}

fn fill(input: &mut impl Read, buffer: &mut [u8], path: &Path) -> Result<(), DataError> {
    input.read_exact(buffer).map_err(|error| read_error(path, error))
}

fn truncated(path: &Path) -> DataError {
    corrupt(path, "ends too early: it was not copied or downloaded as a whole, fetch it again")
}

fn read_error(path: &Path, error: io::Error) -> DataError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => truncated(path),
        // What flate2 reports for damaged data and a wrong checksum.
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            corrupt(path, format!("is damaged ({error}): fetch it again"))
        }
        _ => io_error(path, error),
    }
}
