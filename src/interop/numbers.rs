//! Numbers of all types as f32.

use half::{bf16, f16};

/// A type of numbers in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberType {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    /// Also booleans of a byte.
    U8,
}

impl NumberType {
    /// Numbers of little-endian bytes; what is left over at the end is passed over.
    pub(super) fn to_f32(self, bytes: &[u8]) -> Vec<f32> {
        fn all<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f32) -> Vec<f32> {
            bytes.as_chunks().0.iter().map(|&bytes| number(bytes)).collect()
        }
        match self {
            NumberType::F64 => all(bytes, |b| f64::from_le_bytes(b) as f32),
            NumberType::F32 => all(bytes, f32::from_le_bytes),
            NumberType::F16 => all(bytes, |b| f16::from_le_bytes(b).to_f32()),
            NumberType::Bf16 => all(bytes, |b| bf16::from_le_bytes(b).to_f32()),
            NumberType::I64 => all(bytes, |b| i64::from_le_bytes(b) as f32),
            NumberType::I32 => all(bytes, |b| i32::from_le_bytes(b) as f32),
            NumberType::I16 => all(bytes, |b| i16::from_le_bytes(b).into()),
            NumberType::I8 => all(bytes, |b| i8::from_le_bytes(b).into()),
            NumberType::U64 => all(bytes, |b| u64::from_le_bytes(b) as f32),
            NumberType::U32 => all(bytes, |b| u32::from_le_bytes(b) as f32),
            NumberType::U16 => all(bytes, |b| u16::from_le_bytes(b).into()),
            NumberType::U8 => all(bytes, |b| u8::from_le_bytes(b).into()),
        }
    }
}
