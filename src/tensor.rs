//! Shapes, element types, byte sizes and ids of tensors, which all other modules use. The values themselves are in buffers.

use std::fmt::{self, Write as _};
use std::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::error::HostMemory;
pub(crate) use crate::words::{format_value, plural};

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Index of a value in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ValueId(pub u32);

/// Index of a node (one execution of an op) in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u32);

impl ValueId {
    /// The id as a position in a slice.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    /// The id as a position in a slice.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DType {
    /// 32-bit IEEE float.
    F32,
    /// 16-bit IEEE float, two in a word: how values are stored. Arithmetic is always f32.
    F16,
    /// The upper 16 bits of an f32, two in a word: how values are stored. Arithmetic is always f32.
    BF16,
    /// Unsigned 32-bit integer: labels and indices.
    U32,
    /// Unsigned 8-bit integer, four in a word: pixels, before they are normalized.
    U8,
}

impl DType {
    /// Bytes of one element.
    pub fn size_bytes(self) -> u64 {
        match self {
            DType::F32 | DType::U32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::U8 => 1,
        }
    }

    /// The format, where it is a float of 16 bits.
    pub(crate) fn half(self) -> Option<Half> {
        match self {
            DType::F16 => Some(Half::F16),
            DType::BF16 => Some(Half::Bf16),
            DType::F32 | DType::U32 | DType::U8 => None,
        }
    }
}

/// A format of floats in 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Half {
    /// IEEE: a sign, 5 bits of exponent, 10 of fraction; from 6·10⁻⁸ to 65,504.
    F16,
    /// The upper half of an f32: 8 bits of exponent, 7 of fraction.
    Bf16,
}

impl Half {
    /// As the type of a tensor.
    pub fn dtype(self) -> DType {
        match self {
            Half::F16 => DType::F16,
            Half::Bf16 => DType::BF16,
        }
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dtype().fmt(f)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::U32 => "u32",
            DType::U8 => "u8",
        })
    }
}

/// Extents of a tensor, outermost first. Rank 0 is not used: a scalar has shape `[1]`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// Number of elements.
    pub fn numel(&self) -> usize {
        // Saturates where the host counts in 32 bits: whoever needs so many is refused.
        self.0.iter().fold(1, |numel, &extent| numel.saturating_mul(extent))
    }

    /// Strides in elements of a contiguous tensor of this shape.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.0.len()];
        for i in (1..self.0.len()).rev() {
            strides[i - 1] = strides[i] * self.0[i];
        }
        strides
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Shape(dims.to_vec())
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Shape(dims)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Shape(dims.to_vec())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{dim}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Shape and element type: all that planning needs to know of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TensorDesc {
    /// Extents.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

impl TensorDesc {
    /// An f32 tensor.
    pub fn f32(shape: impl Into<Shape>) -> Self {
        TensorDesc { shape: shape.into(), dtype: DType::F32 }
    }

    /// A u32 tensor.
    pub fn u32(shape: impl Into<Shape>) -> Self {
        TensorDesc { shape: shape.into(), dtype: DType::U32 }
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.shape.numel()
    }

    /// Bytes of the contiguous data, in whole words of four.
    pub fn size_bytes(&self) -> u64 {
        let bytes = (self.numel() as u64).saturating_mul(self.dtype.size_bytes());
        bytes.checked_next_multiple_of(4).unwrap_or(u64::MAX)
    }

    /// Words of the contiguous data.
    pub(crate) fn words(&self) -> usize {
        match self.dtype {
            DType::F32 | DType::U32 => self.numel(),
            DType::F16 | DType::BF16 => self.numel().div_ceil(2),
            DType::U8 => self.numel().div_ceil(4),
        }
    }

    /// The tensor as ops compute with it: in f32, however it is stored.
    pub(crate) fn computed(&self) -> TensorDesc {
        let dtype = if self.dtype.half().is_some() { DType::F32 } else { self.dtype };
        TensorDesc { shape: self.shape.clone(), dtype }
    }
}

impl fmt::Display for TensorDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

/// A copy, where there is memory for it.
pub(crate) fn copied<T: Copy>(values: &[T]) -> Result<Vec<T>, HostMemory> {
    let mut copy = room(values.len())?;
    copy.extend_from_slice(values);
    Ok(copy)
}

/// Digits and sign of a number that is written without an exponent.
const MOST_DIGITS: usize = 12;

/// Numbers as people read them: very large and very small ones with an exponent.
///
/// ```
/// # use tightfit::tensor::format_number;
/// assert_eq!(format_number(0.25_f32), "0.25");
/// assert_eq!(format_number(-1e300_f64), "-1e300");
/// ```
pub fn format_number(number: impl fmt::Display + fmt::LowerExp) -> String {
    let plain = number.to_string();
    if plain.len() > MOST_DIGITS { format!("{number:e}") } else { plain }
}

/// Bytes as people read them: `14.7 MiB`.
///
/// ```
/// # use tightfit::tensor::format_bytes;
/// assert_eq!(format_bytes(512), "512 B");
/// assert_eq!(format_bytes(15_414_067), "14.7 MiB");
/// ```
pub fn format_bytes(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        // What would be printed as 1024.0 is 1.0 of the next unit.
        if amount < 1023.95 {
            break;
        }
        amount /= 1024.0;
        unit = next;
    }
    format!("{amount:.1} {unit}")
}

/// An empty vector with room for so many values of the host: not to have it is an error, no abort.
pub(crate) fn room<T>(count: usize) -> Result<Vec<T>, HostMemory> {
    let mut values = Vec::new();
    let size_bytes = count.saturating_mul(size_of::<T>()) as u64;
    values.try_reserve_exact(count).map_err(|_| HostMemory { size_bytes })?;
    Ok(values)
}
