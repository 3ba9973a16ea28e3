//! Tensors whose values are known when a graph is made: initializers, constants, and what follows from shapes.

use std::path::Path;
use std::sync::Arc;

use super::proto::{self, element};
use crate::files::Positioned;

/// Elements that a folded tensor may have at most: shapes, indices and masks are small.
pub(super) const MAX_FOLDED: usize = 1 << 22;

/// Elements of a weight that a file makes of one number.
pub(super) const MAX_FILLED: usize = 1 << 28;

/// A tensor of known values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Constant {
    pub(super) shape: Vec<usize>,
    pub(super) data: Data,
}

/// Values, the last axis running fastest.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Bools(Vec<bool>),
    /// So many times the same number.
    Filled(f32, usize),
}

impl Data {
    pub(super) fn len(&self) -> usize {
        match self {
            Data::Floats(values) => values.len(),
            Data::Ints(values) => values.len(),
            Data::Bools(values) => values.len(),
            Data::Filled(_, count) => *count,
        }
    }

    /// The values at these places.
    pub(super) fn pick(&self, places: impl Iterator<Item = usize>) -> Data {
        match self {
            Data::Floats(values) => Data::Floats(places.map(|place| values[place]).collect()),
            Data::Ints(values) => Data::Ints(places.map(|place| values[place]).collect()),
            Data::Bools(values) => Data::Bools(places.map(|place| values[place]).collect()),
            Data::Filled(value, _) => Data::Floats(places.map(|_| *value).collect()),
        }
    }
}

/// Elements of a tensor of this shape; `None` where they cannot be counted.
pub(super) fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent))
}

impl Constant {
    pub(super) fn new(shape: impl Into<Vec<usize>>, data: Data) -> Self {
        let shape = shape.into();
        assert_eq!(elements(&shape), Some(data.len()), "bug: a constant of shape {shape:?}");
        Constant { shape, data }
    }

    pub(super) fn ints(shape: impl Into<Vec<usize>>, values: Vec<i64>) -> Self {
        Constant::new(shape, Data::Ints(values))
    }

    pub(super) fn floats(shape: impl Into<Vec<usize>>, values: Vec<f32>) -> Self {
        Constant::new(shape, Data::Floats(values))
    }

    /// With all elements, as operators take it, where they are not too many.
    pub(super) fn spread(self: &Arc<Self>) -> Result<Arc<Self>, String> {
        match self.data {
            Data::Filled(_, count) if count > MAX_FOLDED => {
                Err(format!("it takes a tensor of shape {:?} before the model runs: that is too large", self.shape))
            }
            Data::Filled(value, count) => Ok(Arc::new(Constant::floats(self.shape.clone(), vec![value; count]))),
            _ => Ok(Arc::clone(self)),
        }
    }

    /// As whole numbers; `None` where they are not.
    pub(super) fn to_ints(&self) -> Option<Vec<i64>> {
        match &self.data {
            Data::Ints(values) => Some(values.clone()),
            Data::Bools(values) => Some(values.iter().map(|&value| i64::from(value)).collect()),
            Data::Floats(_) | Data::Filled(..) => None,
        }
    }

    /// As numbers of single precision.
    pub(super) fn to_floats(&self) -> Vec<f32> {
        match &self.data {
            Data::Floats(values) => values.clone(),
            Data::Ints(values) => values.iter().map(|&value| value as f32).collect(),
            Data::Bools(values) => values.iter().map(|&value| f32::from(u8::from(value))).collect(),
            Data::Filled(value, count) => vec![*value; *count],
        }
    }

    pub(super) fn to_bools(&self) -> Vec<bool> {
        match &self.data {
            Data::Floats(values) => values.iter().map(|&value| value != 0.0).collect(),
            Data::Ints(values) => values.iter().map(|&value| value != 0).collect(),
            Data::Bools(values) => values.clone(),
            Data::Filled(value, count) => vec![*value != 0.0; *count],
        }
    }

    /// The one number that all elements are.
    pub(super) fn uniform(&self) -> Option<f32> {
        let all = |values: &[f32]| {
            let first = *values.first()?;
            values.iter().all(|value| value.to_bits() == first.to_bits()).then_some(first)
        };
        match &self.data {
            Data::Floats(values) => all(values),
            Data::Filled(value, count) => (*count > 0).then_some(*value),
            _ => all(&self.to_floats()),
        }
    }
}

/// The values of a file's tensor. `folder` is where files of external data lie.
pub(super) fn decode(tensor: &proto::Tensor, folder: Option<&Path>) -> Result<Constant, String> {
    let shape = tensor.dims.iter().map(|&dim| usize::try_from(dim).ok()).collect::<Option<Vec<_>>>();
    let count = shape.as_deref().and_then(elements);
    let (Some(shape), Some(count)) = (shape, count) else {
        return Err(format!("its shape {:?} is not possible", &tensor.dims[..tensor.dims.len().min(8)]));
    };
    let kind = tensor.data_type.unwrap_or(0);
    let Some(width) = width(kind) else {
        return Err(format!("its elements are of {}, which is not read: convert them to float", element::name(kind)));
    };
    let bytes = count.checked_mul(width).ok_or_else(|| "it has too many elements".to_owned())?;
    let data = if tensor.data_location == Some(1) {
        from_bytes(kind, &external(tensor, bytes, folder)?)
    } else if let Some(raw) = tensor.raw_data.as_ref().filter(|raw| !raw.is_empty() || count == 0) {
        if raw.len() != bytes {
            return Err(format!("it has {} bytes of values where its shape takes {bytes}", raw.len()));
        }
        from_bytes(kind, raw)
    } else {
        from_fields(kind, tensor)
    };
    if data.len() != count {
        return Err(format!("it has {} values where its shape takes {count}", data.len()));
    }
    Ok(Constant { shape, data })
}

/// Bytes of an element.
fn width(kind: i32) -> Option<usize> {
    Some(match kind {
        element::UINT8 | element::INT8 | element::BOOL => 1,
        element::UINT16 | element::INT16 | element::FLOAT16 | element::BFLOAT16 => 2,
        element::FLOAT | element::INT32 | element::UINT32 => 4,
        element::DOUBLE | element::INT64 | element::UINT64 => 8,
        _ => return None,
    })
}

fn external(tensor: &proto::Tensor, bytes: usize, folder: Option<&Path>) -> Result<Vec<u8>, String> {
    let setting = |name: &str| {
        let entry = tensor.external_data.iter().find(|entry| entry.key.as_deref() == Some(name))?;
        entry.value.as_deref()
    };
    let location = setting("location").unwrap_or_default();
    // Only names: no folder above, no other disk.
    let path = Path::new(location);
    let is_below = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let folder = folder.filter(|_| is_below && !location.is_empty()).ok_or_else(|| {
        format!("its values are in the file `{}`, which is not one beside the model", location.escape_debug())
    })?;
    let number = |name: &str| match setting(name) {
        None => Ok(None),
        Some(text) => text.trim().parse::<u64>().map(Some).map_err(|_| format!("its external {name} is no number")),
    };
    let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
    if length.is_some_and(|length| length != bytes as u64) {
        return Err(format!("its external length is not the {bytes} bytes that its shape takes"));
    }
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let hint = "the model keeps its values there: put both into one folder";
    let file = Positioned::open(&folder.join(path), hint).map_err(|error| error.to_string())?;
    if offset.checked_add(bytes as u64).is_none_or(|end| end > file.len()) {
        return Err(format!("`{}` ends before its values do", location.escape_debug()));
    }
    file.bytes_at(offset, bytes).map_err(|error| error.to_string())
}

fn from_bytes(kind: i32, bytes: &[u8]) -> Data {
    fn each<const N: usize, T>(bytes: &[u8], value: impl Fn([u8; N]) -> T) -> Vec<T> {
        bytes.chunks_exact(N).map(|chunk| value(chunk.try_into().expect("bug: a chunk of N bytes"))).collect()
    }
    match kind {
        element::FLOAT => Data::Floats(each(bytes, f32::from_le_bytes)),
        element::DOUBLE => Data::Floats(each(bytes, |b| f64::from_le_bytes(b) as f32)),
        element::FLOAT16 => Data::Floats(each(bytes, |b| half(u16::from_le_bytes(b)))),
        element::BFLOAT16 => Data::Floats(each(bytes, |b| brain(u16::from_le_bytes(b)))),
        element::BOOL => Data::Bools(bytes.iter().map(|&b| b != 0).collect()),
        element::UINT8 => Data::Ints(bytes.iter().map(|&b| i64::from(b)).collect()),
        element::INT8 => Data::Ints(each(bytes, |b| i64::from(i8::from_le_bytes(b)))),
        element::UINT16 => Data::Ints(each(bytes, |b| i64::from(u16::from_le_bytes(b)))),
        element::INT16 => Data::Ints(each(bytes, |b| i64::from(i16::from_le_bytes(b)))),
        element::INT32 => Data::Ints(each(bytes, |b| i64::from(i32::from_le_bytes(b)))),
        element::UINT32 => Data::Ints(each(bytes, |b| i64::from(u32::from_le_bytes(b)))),
        element::INT64 => Data::Ints(each(bytes, i64::from_le_bytes)),
        _ => Data::Ints(each(bytes, |b| u64::from_le_bytes(b).try_into().unwrap_or(i64::MAX))),
    }
}

fn from_fields(kind: i32, tensor: &proto::Tensor) -> Data {
    let small = || tensor.int32_data.iter();
    match kind {
        element::FLOAT => Data::Floats(tensor.float_data.clone()),
        element::DOUBLE => Data::Floats(tensor.double_data.iter().map(|&value| value as f32).collect()),
        element::FLOAT16 => Data::Floats(small().map(|&bits| half(bits as u16)).collect()),
        element::BFLOAT16 => Data::Floats(small().map(|&bits| brain(bits as u16)).collect()),
        element::BOOL => Data::Bools(small().map(|&value| value != 0).collect()),
        element::INT64 => Data::Ints(tensor.int64_data.clone()),
        element::UINT32 | element::UINT64 => {
            Data::Ints(tensor.uint64_data.iter().map(|&value| value.try_into().unwrap_or(i64::MAX)).collect())
        }
        _ => Data::Ints(small().map(|&value| i64::from(value)).collect()),
    }
}

/// The number that these bits of IEEE 754's binary16 are.
fn half(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let (exponent, fraction) = (u32::from(bits >> 10) & 0x1f, u32::from(bits & 0x3ff));
    match (exponent, fraction) {
        // 2⁻²⁴ is the smallest.
        (0, fraction) => f32::from_bits(sign | (fraction as f32 * f32::from_bits(0x3380_0000)).to_bits()),
        (0x1f, fraction) => f32::from_bits(sign | 0x7f80_0000 | (fraction << 13)),
        _ => f32::from_bits(sign | ((exponent + 112) << 23) | (fraction << 13)),
    }
}

/// The number that these bits of bfloat16 are.
fn brain(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bits_are_all_converted() {
        for bits in 0..=u16::MAX {
            let expected = half::f16::from_bits(bits).to_f32();
            let found = super::half(bits);
            assert!(found == expected || found.is_nan() && expected.is_nan(), "{bits:#x}: {found} {expected}");
        }
        assert_eq!(brain(0x3fc0), 1.5);
    }

    #[test]
    fn values_must_be_as_many_as_the_shape_says() {
        let tensor = |dims: &[i64], raw: usize| proto::Tensor {
            dims: dims.to_vec(),
            data_type: Some(element::FLOAT),
            raw_data: Some(vec![0; raw]),
            ..proto::Tensor::default()
        };
        assert_eq!(decode(&tensor(&[2, 2], 16), None), Ok(Constant::floats([2, 2], vec![0.0; 4])));
        assert_eq!(decode(&tensor(&[], 4), None), Ok(Constant::floats([], vec![0.0])));
        for (dims, raw) in [(&[2, 2][..], 12), (&[-1], 4), (&[i64::MAX, i64::MAX], 4), (&[1 << 40], 4), (&[3], 0)] {
            assert!(decode(&tensor(dims, raw), None).is_err(), "{dims:?} {raw}");
        }
        let mut elsewhere = tensor(&[1], 0);
        elsewhere.data_location = Some(1);
        for location in ["../x", "/etc/passwd", "", "a/../../x"] {
            let entry = proto::Entry { key: Some("location".into()), value: Some(location.into()) };
            elsewhere.external_data = vec![entry];
            let message = decode(&elsewhere, Some(Path::new("/tmp"))).expect_err("refused");
            assert!(message.contains("not one beside the model"), "{message}");
        }
    }
}
