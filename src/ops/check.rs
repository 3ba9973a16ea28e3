//! Checks that shape rules share.

use crate::error::OpError;
use crate::tensor::{DType, Shape, TensorDesc, format_number};

/// The op has `expected` inputs.
pub fn expect_count(op: &'static str, inputs: &[TensorDesc], expected: usize) -> Result<(), OpError> {
    if inputs.len() == expected { Ok(()) } else { Err(OpError::InputCount { op, expected, found: inputs.len() }) }
}

/// The input has this element type.
pub fn expect_dtype(op: &'static str, input: &'static str, desc: &TensorDesc, dtype: DType) -> Result<(), OpError> {
    if desc.dtype == dtype {
        Ok(())
    } else {
        Err(OpError::Input { op, input, expected: format!("of type {dtype}"), found: desc.clone() })
    }
}

/// The input has this many dimensions.
pub fn expect_rank(op: &'static str, input: &'static str, desc: &TensorDesc, rank: usize) -> Result<(), OpError> {
    if desc.shape.len() == rank {
        Ok(())
    } else {
        Err(OpError::Input { op, input, expected: format!("of {rank} dimensions"), found: desc.clone() })
    }
}

/// The input has exactly this shape.
pub fn expect_shape(
    op: &'static str,
    input: &'static str,
    desc: &TensorDesc,
    shape: impl Into<Shape>,
) -> Result<(), OpError> {
    let shape = shape.into();
    if desc.shape == shape {
        Ok(())
    } else {
        Err(OpError::Input { op, input, expected: format!("of shape {shape}"), found: desc.clone() })
    }
}

/// The setting is finite.
pub fn expect_finite(op: &'static str, setting: &'static str, value: f32) -> Result<(), OpError> {
    if value.is_finite() {
        return Ok(());
    }
    Err(OpError::Setting {
        op,
        setting,
        value: format_number(value),
        reason: "it must be a number that is finite".to_owned(),
    })
}
