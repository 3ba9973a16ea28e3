//! Parts, axes and shapes of tensors, matrix products, and other types of elements.

use super::Tensor;
use super::broadcast::{expand, expect_numbers, joined, reshape, unsqueeze};
use crate::error::GraphError;
use crate::nn::scope::Scope;
use crate::ops::elementwise::to_float::ToFloat;
use crate::ops::embedding::one_hot::OneHot;
use crate::ops::matmul::matmul::MatMul;
use crate::ops::shape::concat::Concat;
use crate::ops::shape::detach::Detach;
use crate::ops::shape::permute::Permute;
use crate::ops::shape::slice::Slice;
use crate::tensor::{Shape, ValueId};

/// Parts and axes. The batch is axis 0, negative axes count from the end.
impl<'a> Tensor<'a> {
    /// What is at one index of an axis, which is left out: `x.index(1, 0)` is the first channel of each sample, `x.index(1, -1)` the
    /// last. Where no axis is left, the shape is `[1]`.
    #[must_use]
    pub fn index(self, axis: isize, index: isize) -> Tensor<'a> {
        self.with_ops("index", |scope, x| {
            let axis = resolve(scope, x, axis)?;
            let shape = scope.shape(x);
            let extent = shape[axis];
            let start = from_end(index, extent).ok_or_else(|| {
                let shape = Shape::from(&shape[..]);
                scope.error(format!("there is no index {index} along axis {axis} of {shape}, which has {extent}"))
            })?;
            let part = scope.apply(Slice { axis, start, length: 1 }, &[x])?;
            reshape(scope, part, without(&shape, axis))
        })
    }

    /// With one more axis, of extent 1, before this one: `[batch, 1]` of `[batch]` with axis 1 or -1. With axis 0 the samples are no
    /// longer apart along axis 0, and a batch cannot be cut into micro-batches.
    #[must_use]
    pub fn unsqueeze(self, axis: isize) -> Tensor<'a> {
        self.with_ops("unsqueeze", |scope, x| {
            expect_numbers(scope, x)?;
            let axis = insertion(scope, x, axis)?;
            unsqueeze(scope, x, axis)
        })
    }

    /// Without an axis, whose extent is 1. `[1]` stays as it is.
    #[must_use]
    pub fn squeeze(self, axis: isize) -> Tensor<'a> {
        self.with_ops("squeeze", |scope, x| {
            let axis = resolve(scope, x, axis)?;
            let shape = scope.shape(x);
            if shape[axis] != 1 {
                let (extent, shape) = (shape[axis], Shape::from(shape));
                return Err(scope.error(format!("axis {axis} of {shape} has extent {extent}: only one of 1 can go")));
            }
            reshape(scope, x, without(&shape, axis))
        })
    }

    /// With two axes in each other's place. With axis 0 as one of them, samples are mixed, and a batch cannot be cut into micro-batches.
    #[must_use]
    pub fn transpose(self, a: isize, b: isize) -> Tensor<'a> {
        self.with_ops("transpose", |scope, x| {
            expect_numbers(scope, x)?;
            let (a, b) = (resolve(scope, x, a)?, resolve(scope, x, b)?);
            let mut axes: Vec<_> = (0..scope.shape(x).len()).collect();
            axes.swap(a, b);
            scope.apply(Permute { axes }, &[x])
        })
    }

    /// Repeated until it has this shape, batch included, as NumPy's `broadcast_to`: along axes of extent 1, and axes that it lacks at
    /// the front. Operators do so by themselves. The repetitions take memory.
    #[must_use]
    pub fn expand(self, shape: impl Into<Shape>) -> Tensor<'a> {
        let shape = shape.into();
        self.with_ops("expand", |scope, x| {
            expect_numbers(scope, x)?;
            let own = scope.shape(x);
            if joined(&own, &shape).as_deref() != Some(&shape) {
                let own = Shape::from(own);
                return Err(scope.error(format!(
                    "cannot expand {own} to {shape}: counted from the last axis, its extents must be equal or 1"
                )));
            }
            expand(scope, x, &shape)
        })
    }

    /// This tensor and others of its shape along a new axis, before this one: `a.stack(&[b], 1)` of `[batch, n]` is
    /// `[batch, 2, n]`.
    #[must_use]
    pub fn stack(self, others: &[Tensor<'a>], axis: isize) -> Tensor<'a> {
        self.with_ops("stack", |scope, first| {
            let shape = scope.shape(first);
            if let Some(other) = others.iter().find(|other| other.shape_in(scope) != shape) {
                let (first, other) = (Shape::from(shape), Shape::from(other.shape_in(scope)));
                return Err(scope.error(format!("puts {first} and {other} together: they must have one shape")));
            }
            let axis = insertion(scope, first, axis)?;
            let values = std::iter::once(first).chain(others.iter().map(|other| other.value));
            let mut parts = values.map(|value| unsqueeze(scope, value, axis)).collect::<Result<Vec<_>, _>>()?;
            let op = Concat { axis };
            // In pairs of neighbours, so that each element is copied few times.
            while parts.len() > 1 {
                let pairs = parts.chunks(2);
                let join = |pair: &[ValueId]| if let [one] = pair { Ok(*one) } else { scope.apply(op, pair) };
                parts = pairs.map(join).collect::<Result<Vec<_>, _>>()?;
            }
            Ok(parts[0])
        })
    }

    /// The products of the matrices in the last two axes, as NumPy's `matmul`: `[…, m, k]` times `[…, k, n]` is `[…, m, n]`. Axes before
    /// these are broadcast as the operators do. Without any, the batch is the rows of the first matrix: `[batch, k]` times `[k, n]`.
    /// A vector is a matrix of one row before a matrix, of one column behind one, and that axis is then left out:
    /// `[…, m, k]` times `[k]` is `[…, m]`. Two vectors have the product `[1]`.
    #[must_use]
    pub fn matmul(self, other: Tensor<'a>) -> Tensor<'a> {
        self.with_ops("matmul", |scope, a| matmul(scope, a, other.value))
    }

    /// The same numbers, through which no gradient goes.
    #[must_use]
    pub fn detach(self) -> Tensor<'a> {
        self.with_op("detach", Detach)
    }

    /// Of indices, `[…]`: a row of zeros with a 1 at the index for each, `[…, classes]`.
    #[must_use]
    pub fn one_hot(self, classes: usize) -> Tensor<'a> {
        self.with_op("one_hot", OneHot { classes })
    }

    /// Of indices or labels: the same as numbers.
    #[must_use]
    pub fn to_float(self) -> Tensor<'a> {
        self.with_op("to_float", ToFloat)
    }

    /// Its shape, while the model is being added to.
    fn shape_in(self, scope: &Scope<'_>) -> Vec<usize> {
        scope.shape(self.value)
    }
}

/// A position of so many, from the end where it is negative.
fn from_end(index: isize, extent: usize) -> Option<usize> {
    let from_end = || extent.checked_sub(index.unsigned_abs());
    if index < 0 { from_end() } else { Some(index.unsigned_abs()).filter(|&index| index < extent) }
}

/// The axis of a tensor that is meant.
fn resolve(scope: &Scope<'_>, value: ValueId, axis: isize) -> Result<usize, GraphError> {
    let shape = scope.shape(value);
    from_end(axis, shape.len()).ok_or_else(|| {
        let (last, shape) = (shape.len() - 1, Shape::from(shape));
        scope.error(format!("there is no axis {axis} in {shape}: choose one of 0, the batch, to {last}"))
    })
}

/// The axes of a tensor that are meant: all where none is named.
pub(super) fn resolve_all(scope: &Scope<'_>, value: ValueId, axes: &[isize]) -> Result<Vec<usize>, GraphError> {
    if axes.is_empty() {
        return Ok((0..scope.shape(value).len()).collect());
    }
    axes.iter().map(|&axis| resolve(scope, value, axis)).collect()
}

/// Where a new axis goes.
fn insertion(scope: &Scope<'_>, value: ValueId, axis: isize) -> Result<usize, GraphError> {
    let shape = scope.shape(value);
    from_end(axis, shape.len() + 1).ok_or_else(|| {
        let (last, shape) = (shape.len(), Shape::from(shape));
        scope.error(format!("a new axis of {shape} cannot be axis {axis}: choose one of 0 to {last}"))
    })
}

/// The shape without an axis; `[1]` where none is left.
fn without(shape: &[usize], axis: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if shape.len() == 1 {
        return vec![1];
    }
    shape.remove(axis);
    shape
}

fn matmul(scope: &mut Scope<'_>, a: ValueId, b: ValueId) -> Result<ValueId, GraphError> {
    expect_numbers(scope, a)?;
    expect_numbers(scope, b)?;
    let mut shapes = [a, b].map(|value| scope.shape(value));
    let are_vectors = shapes.each_ref().map(|shape| shape.len() == 1);
    if are_vectors != [false, false] {
        let [k, rows] = [shapes[0].last(), shapes[1].get(shapes[1].len().saturating_sub(2))];
        if k.is_some() && k == rows {
            return matmul_of_vectors(scope, [a, b], &shapes, are_vectors);
        }
    }
    // One matrix for all needs no axes but its own.
    let mut b = b;
    let own = shapes[1].len().saturating_sub(2);
    let is_one = (1..shapes[0].len() - 1).contains(&own) && shapes[1][..own].iter().all(|&extent| extent == 1);
    if is_one && !scope.depends_on_samples(b) {
        shapes[1].drain(..own);
        b = reshape(scope, b, shapes[1].clone())?;
    }
    let refused = |reason: &str| {
        let [a, b] = shapes.clone().map(Shape::from);
        scope.error(format!("cannot multiply {a} by {b}: {reason}"))
    };
    let ([lead_a @ .., m, k], [lead_b @ .., rows, n]) = (&shapes[0][..], &shapes[1][..]) else {
        return Err(refused("the only axis of a vector must be as long as the one that it is summed with"));
    };
    if k != rows {
        return Err(refused("the last axis of the first must be as long as the last but one of the second"));
    }
    let lead = joined(lead_a, lead_b)
        .ok_or_else(|| refused("counted from the end, the axes before the matrices must be equal or 1"))?;
    if lead_b.is_empty() {
        // One matrix for all: the rows of the others are those of one.
        let rows = lead.iter().product::<usize>() * m;
        let a = if lead.is_empty() { a } else { reshape(scope, a, vec![rows, *k])? };
        let product = scope.apply(MatMul::default(), &[a, b])?;
        return if lead.is_empty() { Ok(product) } else { reshape(scope, product, [&lead[..], &[*m, *n]].concat()) };
    }
    let mut matrices = |value, own: &[usize], [rows, columns]: [usize; 2]| {
        let whole = [own, &[rows, columns]].concat();
        let value = expand(scope, value, &whole)?;
        if own.len() == 1 { Ok(value) } else { reshape(scope, value, vec![own.iter().product(), rows, columns]) }
    };
    let (a, b) = (matrices(a, &lead, [*m, *k])?, matrices(b, &lead, [*k, *n])?);
    let product = scope.apply(MatMul::default(), &[a, b])?;
    if lead.len() == 1 { Ok(product) } else { reshape(scope, product, [&lead[..], &[*m, *n]].concat()) }
}

/// Where one or both have a single axis, which is as long as what it is summed with.
fn matmul_of_vectors(
    scope: &mut Scope<'_>,
    values: [ValueId; 2],
    shapes: &[Vec<usize>; 2],
    are_vectors: [bool; 2],
) -> Result<ValueId, GraphError> {
    let [mut a, mut b] = values;
    let mut shape: Vec<usize> = Vec::new();
    if are_vectors[0] {
        a = unsqueeze(scope, a, 0)?;
    } else {
        shape.extend(&shapes[0][..shapes[0].len() - 1]);
    }
    if are_vectors[1] {
        b = unsqueeze(scope, b, 1)?;
    } else {
        let (lead, columns) = (&shapes[1][..shapes[1].len() - 2], shapes[1][shapes[1].len() - 1]);
        shape.extend(lead);
        shape.push(columns);
    }
    if shape.is_empty() {
        shape.push(1);
    }
    let product = matmul(scope, a, b)?;
    reshape(scope, product, shape)
}
