//! Numbers of samples, and their shape.

use std::ops::Range;

use crate::error::{DataError, HostMemory};
use crate::tensor::{DType, Shape, copied};

/// Numbers, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Floats, used as they are.
    F32(Vec<f32>),
    /// Bytes, such as pixels: a quarter of the memory. A model takes them as they are where it
    /// [normalizes](crate::nn::Model::normalized) them on the device; any other is given them divided by 255, so that 0 is 0.0 and 255
    /// is 1.0.
    U8(Vec<u8>),
    /// Labels, or indices such as words of a vocabulary.
    U32(Vec<u32>),
}

impl Values {
    /// What they are in host memory.
    pub fn dtype(&self) -> DType {
        match self {
            Values::F32(_) => DType::F32,
            Values::U8(_) => DType::U8,
            Values::U32(_) => DType::U32,
        }
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        match self {
            Values::F32(values) => values.len(),
            Values::U8(values) => values.len(),
            Values::U32(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them as bytes, in the machine's order.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Values::F32(values) => bytemuck::cast_slice(values),
            Values::U8(values) => values,
            Values::U32(values) => bytemuck::cast_slice(values),
        }
    }

    /// None yet, of this type.
    pub(super) fn empty(dtype: DType) -> Self {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 => Values::F32(Vec::new()),
            DType::U8 => Values::U8(Vec::new()),
            DType::U32 => Values::U32(Vec::new()),
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Values::F32(values) => values.clear(),
            Values::U8(values) => values.clear(),
            Values::U32(values) => values.clear(),
        }
    }

    /// Makes room for so many more, and no others.
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), HostMemory> {
        let reserved = match self {
            Values::F32(values) => values.try_reserve_exact(count),
            Values::U8(values) => values.try_reserve_exact(count),
            Values::U32(values) => values.try_reserve_exact(count),
        };
        reserved.map_err(|_| HostMemory { size_bytes: (count as u64).saturating_mul(self.dtype().size_bytes()) })
    }

    /// Appends some of others, which are of the same type.
    pub(super) fn append(&mut self, others: &Values, range: Range<usize>) {
        match (self, others) {
            (Values::F32(values), Values::F32(others)) => values.extend_from_slice(&others[range]),
            (Values::U8(values), Values::U8(others)) => values.extend_from_slice(&others[range]),
            (Values::U32(values), Values::U32(others)) => values.extend_from_slice(&others[range]),
            _ => panic!("bug: numbers of two types in one batch"),
        }
    }

    /// A copy of some of them.
    pub(super) fn part(&self, range: Range<usize>) -> Result<Values, DataError> {
        Ok(match self {
            Values::F32(values) => Values::F32(copied(&values[range])?),
            Values::U8(values) => Values::U8(copied(&values[range])?),
            Values::U32(values) => Values::U32(copied(&values[range])?),
        })
    }
}

/// Numbers of a shape, outermost extent first: what one sample has under one name. One number has the shape `[]`.
///
/// ```
/// use tightfit::data::{Array, Values};
///
/// let image = Array::new(Values::U8(vec![0; 3 * 8 * 8]), [3, 8, 8])?;
/// let label = Array::from(7_u32);
/// assert_eq!((image.shape().len(), label.shape().len()), (3, 0));
/// assert_eq!(Array::from([0.5, 1.0]).shape()[..], [2]);
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    values: Values,
    shape: Shape,
}

impl Array {
    /// Numbers of this shape.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where there are not as many as the shape says.
    pub fn new(values: Values, shape: impl Into<Shape>) -> Result<Self, DataError> {
        let shape = shape.into();
        let numel = shape.iter().try_fold(1usize, |numel, dim| numel.checked_mul(*dim));
        if numel != Some(values.len()) {
            return Err(DataError::Mismatch(format!("{} numbers are not of the shape {shape}", values.len())));
        }
        Ok(Array { values, shape })
    }

    /// The numbers.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// The same, to be changed in place: how many there are stays.
    pub(super) fn values_mut(&mut self) -> &mut Values {
        &mut self.values
    }

    /// The numbers alone.
    pub fn into_values(self) -> Values {
        self.values
    }

    /// The extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// What the numbers are.
    pub fn dtype(&self) -> DType {
        self.values.dtype()
    }
}

macro_rules! array_from {
    ($($number:ty => $kind:ident),*) => {$(
        impl From<$number> for Array {
            fn from(number: $number) -> Self {
                Array { values: Values::$kind(vec![number]), shape: [].into() }
            }
        }

        impl From<Vec<$number>> for Array {
            fn from(values: Vec<$number>) -> Self {
                Array { shape: [values.len()].into(), values: Values::$kind(values) }
            }
        }

        impl<const N: usize> From<[$number; N]> for Array {
            fn from(values: [$number; N]) -> Self {
                values.to_vec().into()
            }
        }
    )*};
}

array_from! { f32 => F32, u8 => U8, u32 => U32 }
