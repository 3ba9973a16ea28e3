//! State dicts of PyTorch: `.pt` and `.pth`. The pickle in them is taken apart, never run.

use std::path::Path;

use pytorch_reader::{DType, PytorchError, PytorchReader, Tensor};

use super::numbers::NumberType;
use super::{Weight, Weights};
use crate::error::{DataError, ImportError};
use crate::files;

/// Times that tensors together may be larger than the file, which has shared ones once.
const SHARED: u64 = 4;

/// All tensors of a file that `torch.save` wrote, as f32, by their names. What a file nests in dictionaries, such as a checkpoint with
/// `model` and `optimizer`, has the keys before its names, as in `model.conv1.weight`: [`Weights::fitted`] takes what a model needs.
///
/// ```no_run
/// use tightfit::interop::torch;
/// use tightfit::models;
///
/// let model = models::resnet50(1000, models::Stem::ImageNet);
/// let weights = torch::read("resnet50.pth")?.fitted(&model)?;
/// println!("{} tensors", weights.len());
/// # Ok::<(), tightfit::error::ImportError>(())
/// ```
///
/// # Errors
/// Where the file is missing, is no file of PyTorch, is cut off, or holds something that is no tensor of numbers, such as one that is
/// sparse or quantized.
pub fn read(path: impl AsRef<Path>) -> Result<Weights, ImportError> {
    let path = path.as_ref();
    // The system's word on what is no regular file, before anything reads it.
    let (_, length) = files::open(path, "give a file that torch.save wrote")?;
    let reader = PytorchReader::new(path).map_err(|error| corrupt(path, refused(&error)))?;
    let mut weights = Weights::new();
    let mut left = length.saturating_mul(SHARED);
    let mut tensors: Vec<_> = reader.into_tensors().into_iter().collect();
    tensors.sort_by(|one, other| one.0.cmp(&other.0));
    for (name, tensor) in tensors {
        // A view may repeat one number, and tensors may share what is stored: far more than the file holds is no honest file.
        let bytes = tensor
            .shape()
            .iter()
            .try_fold(tensor.dtype().size() as u64, |bytes, &extent| bytes.checked_mul(extent as u64));
        let bytes = bytes.filter(|bytes| *bytes <= length);
        left = bytes.and_then(|bytes| left.checked_sub(bytes)).ok_or_else(|| {
            let name = name.escape_debug();
            corrupt(path, format!("`{name}` is larger than the file: call .contiguous() on it and save it again"))
        })?;
        let values = values(&tensor)
            .map_err(|error| corrupt(path, format!("{}: save it again", error.to_string().escape_debug())))?;
        let shape = tensor.shape().to_vec();
        let weight = Weight::new(shape, values)
            .ok_or_else(|| corrupt(path, format!("`{}` is cut off: save it again", name.escape_debug())))?;
        weights.insert(name, weight);
    }
    if weights.is_empty() {
        let reason = "it holds no tensors: save a state dict, torch.save(model.state_dict(), FILE)".to_owned();
        return Err(corrupt(path, reason));
    }
    Ok(weights)
}

fn corrupt(path: &Path, reason: String) -> ImportError {
    DataError::Corrupt { path: path.to_owned(), reason }.into()
}

/// Why a file is not read, in one line.
/// Characters of what is wrong: a file may have numbers of any length.
const MOST_SHOWN: usize = 200;

fn refused(error: &PytorchError) -> String {
    let text = error.to_string();
    let line: String = text.lines().next().unwrap_or_default().escape_debug().take(MOST_SHOWN).collect();
    format!("not a file of PyTorch that can be read ({line}): save it again, torch.save(model.state_dict(), FILE)")
}

/// The numbers of a tensor.
fn values(tensor: &Tensor) -> std::io::Result<Vec<f32>> {
    let number = match tensor.dtype() {
        DType::F64 => NumberType::F64,
        DType::F32 => NumberType::F32,
        DType::F16 => NumberType::F16,
        DType::BF16 => NumberType::Bf16,
        DType::I64 => NumberType::I64,
        DType::I32 => NumberType::I32,
        DType::I16 => NumberType::I16,
        DType::I8 => NumberType::I8,
        DType::U64 => NumberType::U64,
        DType::U32 => NumberType::U32,
        DType::U16 => NumberType::U16,
        DType::U8 | DType::Bool => NumberType::U8,
    };
    Ok(number.to_f32(&tensor.read()?))
}
