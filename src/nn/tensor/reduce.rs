//! Reductions over axes.

use super::Tensor;
use super::axes::resolve_all;
use super::broadcast::{expand, expect_numbers};
use crate::error::GraphError;
use crate::nn::scope::Scope;
use crate::ops::Op;
use crate::ops::elementwise::{pow, scale, sqrt, sub};
use crate::ops::reduce::{amax, amin, mean, sum};
use crate::tensor::{Shape, ValueId};

/// Reductions over axes. The batch is axis 0, negative axes count from the end, and no axis at all means every one. Reduced axes
/// are left out, or stay with extent 1 where `keepdim` is set; where none is left, the shape is `[1]`.
///
/// A reduction over axis 0 mixes the samples of a batch: where the model goes on from it, a batch can then not be cut into
/// micro-batches.
impl<'a> Tensor<'a> {
    /// The sum.
    #[must_use]
    pub fn sum(self, axes: &[isize], keepdim: bool) -> Tensor<'a> {
        self.reduce("sum", axes, |axes| sum::Sum { axes, keepdim })
    }

    /// The mean.
    #[must_use]
    pub fn mean(self, axes: &[isize], keepdim: bool) -> Tensor<'a> {
        self.reduce("mean", axes, |axes| mean::Mean { axes, keepdim })
    }

    /// The largest element, NaN where one is. Elements that are equal to it share its gradient in equal parts.
    #[must_use]
    pub fn max(self, axes: &[isize], keepdim: bool) -> Tensor<'a> {
        self.reduce("max", axes, |axes| amax::Amax { axes, keepdim })
    }

    /// The smallest element, NaN where one is. Elements that are equal to it share its gradient in equal parts.
    #[must_use]
    pub fn min(self, axes: &[isize], keepdim: bool) -> Tensor<'a> {
        self.reduce("min", axes, |axes| amin::Amin { axes, keepdim })
    }

    /// The variance of n elements: `Σ (x − mean)² / (n − correction)`. With 1 in place of 0 for `correction` it is the unbiased
    /// estimate from a sample, PyTorch's default.
    ///
    /// Source: <https://pytorch.org/docs/stable/generated/torch.var.html>
    #[must_use]
    pub fn var(self, axes: &[isize], correction: usize, keepdim: bool) -> Tensor<'a> {
        self.with_ops("var", |scope, x| var(scope, x, axes, correction, keepdim))
    }

    /// The standard deviation: the square root of [`Tensor::var`]. Its gradient is NaN where all elements are equal.
    #[must_use]
    pub fn std(self, axes: &[isize], correction: usize, keepdim: bool) -> Tensor<'a> {
        self.with_ops("std", |scope, x| {
            let var = var(scope, x, axes, correction, keepdim)?;
            scope.apply(sqrt::Sqrt, &[var])
        })
    }

    fn reduce<O: Op>(self, name: &str, axes: &[isize], op: impl FnOnce(Vec<usize>) -> O) -> Tensor<'a> {
        self.with_ops(name, |scope, x| {
            expect_numbers(scope, x)?;
            let axes = resolve_all(scope, x, axes)?;
            scope.apply(op(axes), &[x])
        })
    }
}

fn var(
    scope: &mut Scope<'_>,
    x: ValueId,
    axes: &[isize],
    correction: usize,
    keepdim: bool,
) -> Result<ValueId, GraphError> {
    expect_numbers(scope, x)?;
    let axes = resolve_all(scope, x, axes)?;
    let shape = scope.shape(x);
    let terms: usize = axes.iter().map(|&axis| shape[axis]).product();
    if terms <= correction {
        let shape = Shape::from(shape);
        return Err(scope.error(format!(
            "the variance over axes {axes:?} of {shape} needs more than correction = {correction} elements, found {terms}"
        )));
    }
    let mean = scope.apply(mean::Mean { axes: axes.clone(), keepdim: true }, &[x])?;
    let mean = expand(scope, mean, &shape)?;
    let deviation = scope.apply(sub::Sub, &[x, mean])?;
    let squares = scope.apply(pow::Pow { exponent: 2.0 }, &[deviation])?;
    if correction == 0 {
        return scope.apply(mean::Mean { axes, keepdim }, &[squares]);
    }
    let sum = scope.apply(sum::Sum { axes, keepdim }, &[squares])?;
    scope.apply(scale::Scale { factor: (1.0 / (terms - correction) as f64) as f32 }, &[sum])
}
