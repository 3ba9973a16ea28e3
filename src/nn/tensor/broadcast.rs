//! NumPy's broadcasting: tensors of different shapes brought to one.

use crate::error::GraphError;
use crate::nn::scope::Scope;
use crate::ops::shape::expand::Expand;
use crate::ops::shape::permute::Permute;
use crate::ops::shape::reshape::Reshape;
use crate::tensor::{DType, Shape, ValueId};

/// The shape that two are brought to, counted from the last axis: each extent is that of both, or of one where the other has 1
/// or no such axis.
pub(super) fn joined(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let (long, short) = if a.len() < b.len() { (b, a) } else { (a, b) };
    let mut shape = long.to_vec();
    for (extent, &other) in shape[long.len() - short.len()..].iter_mut().zip(short) {
        match (*extent, other) {
            (1, _) => *extent = other,
            (_, 1) => {}
            (one, other) if one == other => {}
            _ => return None,
        }
    }
    Some(shape)
}

/// Repeats a tensor until it has this shape, which it must fit into. Where it has it already, nothing runs.
pub(crate) fn expand(scope: &mut Scope<'_>, value: ValueId, shape: &[usize]) -> Result<ValueId, GraphError> {
    let mut value = value;
    while scope.shape(value).len() < shape.len() {
        value = unsqueeze(scope, value, 0)?;
    }
    if scope.shape(value) == shape { Ok(value) } else { scope.apply(Expand { shape: shape.into() }, &[value]) }
}

/// Another axis, of extent 1, before this one.
pub(super) fn unsqueeze(scope: &mut Scope<'_>, value: ValueId, axis: usize) -> Result<ValueId, GraphError> {
    let mut shape = scope.shape(value);
    let has_batch = axis == 0 && shape[0] > 1 && scope.depends_on_samples(value);
    shape.insert(if has_batch { 1 } else { axis }, 1);
    let value = reshape(scope, value, shape)?;
    if !has_batch {
        return Ok(value);
    }
    // Samples are no longer apart along axis 0. A permutation says so, a reshape would not, and the batch would be cut.
    let mut axes: Vec<_> = (0..scope.shape(value).len()).collect();
    axes.swap(0, 1);
    scope.apply(Permute { axes }, &[value])
}

/// The same elements under another shape, batch included.
pub(super) fn reshape(scope: &mut Scope<'_>, value: ValueId, shape: Vec<usize>) -> Result<ValueId, GraphError> {
    scope.apply(Reshape { shape: shape.into() }, &[value])
}

/// Brings tensors of numbers to one shape.
pub(crate) fn together<const N: usize>(
    scope: &mut Scope<'_>,
    values: [ValueId; N],
) -> Result<[ValueId; N], GraphError> {
    for value in values {
        expect_numbers(scope, value)?;
    }
    let shapes = values.map(|value| scope.shape(value));
    let shape = shapes.iter().try_fold(Vec::new(), |shape, other| joined(&shape, other)).ok_or_else(|| {
        let shapes: Vec<_> = shapes.iter().map(|shape| Shape::from(&shape[..]).to_string()).collect();
        scope.error(format!(
            "cannot broadcast {}: counted from the last axis, extents must be equal or 1 (the batch is axis 0)",
            shapes.join(" and ")
        ))
    })?;
    let mut together = values;
    for value in &mut together {
        *value = expand(scope, *value, &shape)?;
    }
    Ok(together)
}

/// The tensor holds numbers.
pub(super) fn expect_numbers(scope: &Scope<'_>, value: ValueId) -> Result<(), GraphError> {
    let desc = scope.desc(value);
    if desc.dtype == DType::U32 {
        return Err(scope.error(format!("takes numbers, found {desc}: make them of it with to_float or one_hot")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_joined_as_in_numpy() {
        for (a, b, shape) in [
            (&[8, 3][..], &[8, 3][..], Some(&[8, 3][..])),
            (&[8, 3], &[3], Some(&[8, 3])),
            (&[1], &[8, 3], Some(&[8, 3])),
            (&[8, 1], &[1, 3], Some(&[8, 3])),
            (&[8, 1, 6, 1], &[7, 1, 5], Some(&[8, 7, 6, 5])),
            (&[8, 3], &[8], None),
            (&[2, 1], &[8, 4, 3], None),
        ] {
            assert_eq!(joined(a, b).as_deref(), shape, "{a:?} {b:?}");
            assert_eq!(joined(b, a).as_deref(), shape, "{b:?} {a:?}");
        }
    }
}
