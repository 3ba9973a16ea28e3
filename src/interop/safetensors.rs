//! Weights in safetensors files, of any type of numbers.

use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::numbers::NumberType;
use super::{Weight, Weights};
use crate::error::{DataError, ImportError};
use crate::files;

/// All tensors of a file, as f32.
///
/// # Errors
/// Where the file is missing, is no safetensors file, is cut off, or holds numbers of a type that has no f32.
pub fn read(path: impl AsRef<Path>) -> Result<Weights, ImportError> {
    let path = path.as_ref();
    let corrupt = |reason: String| ImportError::from(DataError::Corrupt { path: path.to_owned(), reason });
    let hint = "give a safetensors file";
    let (_, length) = files::open(path, hint)?;
    let bytes = files::read(path, length, hint)?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|error| corrupt(format!("not a whole safetensors file ({error}): save it again")))?;
    let mut weights = Weights::new();
    for (name, tensor) in file.tensors() {
        let number = match tensor.dtype() {
            Dtype::F64 => NumberType::F64,
            Dtype::F32 => NumberType::F32,
            Dtype::F16 => NumberType::F16,
            Dtype::BF16 => NumberType::Bf16,
            Dtype::I64 => NumberType::I64,
            Dtype::I32 => NumberType::I32,
            Dtype::I16 => NumberType::I16,
            Dtype::I8 => NumberType::I8,
            Dtype::U64 => NumberType::U64,
            Dtype::U32 => NumberType::U32,
            Dtype::U16 => NumberType::U16,
            Dtype::U8 | Dtype::BOOL => NumberType::U8,
            other => return Err(corrupt(format!("`{}` is of type {other:?}: save it as f32", name.escape_debug()))),
        };
        let weight = Weight::new(tensor.shape().to_vec(), number.to_f32(tensor.data()));
        weights.insert(name, weight.expect("bug: safetensors checks lengths"));
    }
    Ok(weights)
}

/// Writes weights as f32, as a file that PyTorch's and other readers of safetensors take; no reader ever sees half a file.
///
/// # Errors
/// Where the file cannot be written.
pub fn write(path: impl AsRef<Path>, weights: &Weights) -> Result<(), ImportError> {
    let views = weights.iter().map(|(name, weight)| {
        let bytes = bytemuck::cast_slice(weight.values());
        let view = TensorView::new(Dtype::F32, weight.shape().to_vec(), bytes);
        (name, view.expect("bug: as many values as its shape has"))
    });
    let bytes = safetensors::serialize(views, None).expect("bug: tensors that safetensors cannot hold");
    Ok(files::write_whole(path.as_ref(), &bytes)?)
}
