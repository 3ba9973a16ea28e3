//! Arrays of NumPy: files `.npy`, and `.npz` with several of them.

mod dataset;
mod header;
mod npz;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub use self::dataset::{ArrayDataset, ArrayOptions};
use self::header::{Element, Header, PREFIX_BYTES};
use super::{Values, corrupt, label_bits, reserve};
use crate::error::DataError;
use crate::files::Positioned;
use crate::tensor::DType;

/// An array of numbers in a file `.npy`, of which parts are read by their place.
///
/// Booleans, integers and floats of 16 to 64 bits are read, in either order of bytes; floats become `f32`.
///
/// ```
/// use tightfit::data::Values;
/// use tightfit::data::npy::Npy;
/// use tightfit::tensor::DType;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("x.npy");
/// // numpy.save("x.npy", numpy.array([1, 2, 3], dtype="<i2"))
/// let mut bytes = b"\x93NUMPY\x01\x00\x37\x00{'descr': '<i2', 'fortran_order': False, 'shape': (3,)}".to_vec();
/// bytes.extend([1, 0, 2, 0, 3, 0]);
/// std::fs::write(&path, bytes)?;
/// let array = Npy::open(&path)?;
/// assert_eq!(array.shape(), [3]);
/// assert_eq!(array.read(1..3, DType::F32)?, Values::F32(vec![2.0, 3.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Npy {
    source: Source,
    /// Where the numbers begin.
    start: u64,
    header: Header,
    numel: usize,
}

/// Where an array is.
#[derive(Clone, Debug)]
enum Source {
    /// In a file, or uncompressed in an archive.
    File(Arc<Positioned>, Option<String>),
    /// Unpacked, from a file of this path.
    Memory(Arc<Positioned>, String, Arc<Vec<u8>>),
}

impl Source {
    fn file(&self) -> &Positioned {
        match self {
            Source::File(file, _) | Source::Memory(file, ..) => file,
        }
    }

    /// The name in an archive.
    fn member(&self) -> Option<&str> {
        match self {
            Source::File(_, member) => member.as_deref(),
            Source::Memory(_, member, _) => Some(member),
        }
    }

    fn corrupt(&self, reason: &str) -> DataError {
        match self.member() {
            Some(member) => corrupt(self.file().path(), format!("array `{}` {reason}", member.escape_debug())),
            None => corrupt(self.file().path(), reason),
        }
    }

    fn bytes(&self, start: u64, count: usize) -> Result<Vec<u8>, DataError> {
        match self {
            Source::File(file, _) => file.bytes_at(start, count),
            Source::Memory(file, _, bytes) => {
                let start = usize::try_from(start).ok();
                let part = start.and_then(|start| bytes.get(start..start.checked_add(count)?));
                let part = part.ok_or_else(|| self.corrupt("ends too early"))?;
                let mut copy = reserve(file.path(), count)?;
                copy.extend_from_slice(part);
                Ok(copy)
            }
        }
    }
}

impl Npy {
    /// Opens a file. Its numbers stay in it.
    ///
    /// # Errors
    /// [`DataError::Missing`] and [`DataError::Io`] where it cannot be read; [`DataError::Corrupt`] where it is no such file, is not
    /// as long as its header says, is in Fortran's order, or holds something else than numbers.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let file = Positioned::open(path.as_ref(), "give a file that numpy.save wrote")?;
        let end = file.len();
        Npy::new(Source::File(Arc::new(file), None), 0, end)
    }

    /// An array between two places.
    fn new(source: Source, start: u64, end: u64) -> Result<Self, DataError> {
        let available = end.saturating_sub(start);
        let wrong = |reason: String| source.corrupt(&reason);
        let prefix = source.bytes(start, available.min(PREFIX_BYTES as u64) as usize)?;
        let (text_start, text_end) = header::extent(&prefix).map_err(wrong)?;
        if text_end as u64 > available {
            return Err(source.corrupt("ends in its header: fetch it again"));
        }
        let text = source.bytes(start + text_start as u64, text_end - text_start)?;
        let header = header::parse(&text).map_err(wrong)?;
        let numel = header.shape.iter().try_fold(1usize, |numel, extent| numel.checked_mul(*extent));
        let bytes = numel.and_then(|numel| numel.checked_mul(header.size));
        let found = available - text_end as u64;
        match (numel, bytes) {
            (Some(numel), Some(bytes)) if bytes as u64 == found => {
                Ok(Npy { source, start: start + text_end as u64, header, numel })
            }
            _ => Err(source.corrupt(&format!(
                "has {found} bytes of numbers, which are not as many as its shape {:?} says: fetch it again",
                header.shape
            ))),
        }
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.header.shape
    }

    /// How its numbers are read unless something else is asked for: bytes as they are, other integers as u32, floats and booleans as
    /// f32.
    pub fn dtype(&self) -> DType {
        match (self.header.element, self.header.size) {
            (Element::Unsigned, 1) => DType::U8,
            (Element::Unsigned | Element::Signed, _) => DType::U32,
            (Element::Float | Element::Bool, _) => DType::F32,
        }
    }

    /// Whether it holds integers, or booleans.
    pub fn is_integer(&self) -> bool {
        self.header.element != Element::Float
    }

    /// Some of its numbers, in the order of the file: as floats, bytes, or u32.
    ///
    /// # Errors
    /// Where they cannot be read, are not there, or one cannot be such a number: negative, too large, or a fraction.
    pub fn read(&self, range: Range<usize>, dtype: DType) -> Result<Values, DataError> {
        self.read_ignoring(range, dtype, None)
    }

    /// The same, where one integer may be negative.
    fn read_ignoring(&self, range: Range<usize>, dtype: DType, ignored: Option<i64>) -> Result<Values, DataError> {
        if range.start > range.end || range.end > self.numel {
            return Err(self.corrupt(&format!("has {} numbers, not {} to {}", self.numel, range.start, range.end)));
        }
        let size = self.header.size;
        let mut bytes = self.source.bytes(self.start + (range.start * size) as u64, range.len() * size)?;
        let path = self.source.file().path();
        if self.header.element == Element::Unsigned && size == 1 && dtype == DType::U8 {
            return Ok(Values::U8(bytes));
        }
        if self.header.big_endian {
            bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        let numbers = bytes.chunks_exact(size);
        let place = |at: usize| self.index(range.start + at);
        if dtype == DType::F32 || dtype == DType::F16 {
            let mut values = reserve(path, range.len())?;
            values.extend(numbers.map(|bytes| self.float(bytes)));
            return Ok(Values::F32(values));
        }
        if !self.is_integer() {
            return Err(self.corrupt("holds floats where integers are expected: convert it with astype"));
        }
        let most = if dtype == DType::U8 { u32::from(u8::MAX) } else { u32::MAX };
        let mut values: Vec<u32> = reserve(path, range.len())?;
        for (at, bytes) in numbers.enumerate() {
            let value = self.integer(bytes);
            let is_ignored = ignored.is_some_and(|ignored| i128::from(ignored) == value);
            let found = match ignored.filter(|_| is_ignored) {
                Some(label) => label_bits(label),
                None => u32::try_from(value).ok().filter(|value| *value <= most),
            };
            values.push(found.ok_or_else(|| {
                let advice = if value < 0 { "a label that is to be ignored must be named, and signed inputs are read as floats" } else { "convert it" };
                self.corrupt(&format!("holds {value} at {}, which is not between 0 and {most}: {advice}", place(at)))
            })?);
        }
        if dtype == DType::U8 {
            return Ok(Values::U8(values.into_iter().map(|value| value as u8).collect()));
        }
        Ok(Values::U32(values))
    }

    /// A number of this many bytes, the least significant first.
    fn integer(&self, bytes: &[u8]) -> i128 {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let value = u64::from_le_bytes(wide);
        match self.header.element {
            Element::Signed => {
                let unused = 64 - 8 * bytes.len() as u32;
                i128::from((value << unused) as i64 >> unused)
            }
            Element::Bool => i128::from(value != 0),
            Element::Unsigned | Element::Float => i128::from(value),
        }
    }

    fn float(&self, bytes: &[u8]) -> f32 {
        match (self.header.element, bytes) {
            (Element::Float, &[a, b]) => half(u16::from_le_bytes([a, b])),
            (Element::Float, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            (Element::Float, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]) as f32,
            _ => self.integer(bytes) as f32,
        }
    }

    /// A number's place, as Python would index it.
    fn index(&self, mut at: usize) -> String {
        let mut index = vec![0; self.header.shape.len()];
        for (place, extent) in index.iter_mut().zip(&self.header.shape).rev() {
            *place = at % (*extent).max(1);
            at /= (*extent).max(1);
        }
        format!("{index:?}")
    }

    fn corrupt(&self, reason: &str) -> DataError {
        self.source.corrupt(reason)
    }

    /// Bytes that are in memory.
    fn host_bytes(&self) -> u64 {
        match &self.source {
            Source::File(..) => 0,
            Source::Memory(_, _, bytes) => bytes.capacity() as u64,
        }
    }
}

/// A float of 16 bits, from its bits.
fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    }
}
