//! Comparisons and functions of single elements.

use super::Tensor;
use super::broadcast::together;
use crate::ops::Op;
use crate::ops::elementwise::compare::{Compare, Relation};
use crate::ops::elementwise::{abs, clamp, cos, exp, log, maximum, minimum, pow, select, sin, sqrt};

/// What a tensor is compared or combined with: another tensor or a number.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// Broadcast as the operators do.
    Tensor(Tensor<'a>),
    /// The same for all elements.
    Number(f32),
}

impl<'a> From<Tensor<'a>> for Operand<'a> {
    fn from(tensor: Tensor<'a>) -> Self {
        Operand::Tensor(tensor)
    }
}

impl From<f32> for Operand<'_> {
    fn from(number: f32) -> Self {
        Operand::Number(number)
    }
}

/// Functions of single elements.
impl<'a> Tensor<'a> {
    /// `min(max(x, min), max)`
    #[must_use]
    pub fn clamp(self, min: f32, max: f32) -> Tensor<'a> {
        self.with_op("clamp", clamp::Clamp { min, max })
    }

    /// `e^x`
    #[must_use]
    pub fn exp(self) -> Tensor<'a> {
        self.with_op("exp", exp::Exp)
    }

    /// The natural logarithm.
    #[must_use]
    pub fn log(self) -> Tensor<'a> {
        self.with_op("log", log::Log)
    }

    /// `√x`
    #[must_use]
    pub fn sqrt(self) -> Tensor<'a> {
        self.with_op("sqrt", sqrt::Sqrt)
    }

    /// `|x|`
    #[must_use]
    pub fn abs(self) -> Tensor<'a> {
        self.with_op("abs", abs::Abs)
    }

    /// `x^exponent`
    #[must_use]
    pub fn pow(self, exponent: f32) -> Tensor<'a> {
        self.with_op("pow", pow::Pow { exponent })
    }

    /// `x²`
    #[must_use]
    pub fn square(self) -> Tensor<'a> {
        self.with_op("square", pow::Pow { exponent: 2.0 })
    }

    /// `1 / x`
    #[must_use]
    pub fn reciprocal(self) -> Tensor<'a> {
        self.with_op("reciprocal", pow::Pow { exponent: -1.0 })
    }

    /// The sine of an angle in radians.
    #[must_use]
    pub fn sin(self) -> Tensor<'a> {
        self.with_op("sin", sin::Sin)
    }

    /// The cosine of an angle in radians.
    #[must_use]
    pub fn cos(self) -> Tensor<'a> {
        self.with_op("cos", cos::Cos)
    }
}

/// Comparisons, which make 1 where they hold and 0 elsewhere and have no gradient, and what is chosen by them. Tensors are
/// broadcast as by the operators.
///
/// NaN is neither less than, equal to nor greater than anything.
impl<'a> Tensor<'a> {
    /// 1 where `self > other`, else 0.
    #[must_use]
    pub fn gt(self, other: impl Into<Operand<'a>>) -> Tensor<'a> {
        self.compare(Relation::Greater, other.into())
    }

    /// 1 where `self ≥ other`, else 0.
    #[must_use]
    pub fn ge(self, other: impl Into<Operand<'a>>) -> Tensor<'a> {
        self.compare(Relation::GreaterEqual, other.into())
    }

    /// 1 where `self < other`, else 0.
    #[must_use]
    pub fn lt(self, other: impl Into<Operand<'a>>) -> Tensor<'a> {
        self.compare(Relation::Less, other.into())
    }

    /// 1 where `self ≤ other`, else 0.
    #[must_use]
    pub fn le(self, other: impl Into<Operand<'a>>) -> Tensor<'a> {
        self.compare(Relation::LessEqual, other.into())
    }

    /// 1 where `self = other`, else 0.
    #[must_use]
    pub fn eq(self, other: impl Into<Operand<'a>>) -> Tensor<'a> {
        self.compare(Relation::Equal, other.into())
    }

    /// 1 where `self ≠ other`, else 0.
    #[must_use]
    pub fn ne(self, other: impl Into<Operand<'a>>) -> Tensor<'a> {
        self.compare(Relation::NotEqual, other.into())
    }

    /// Of a condition: `a` where it is not 0, else `b`, as `torch.where(condition, a, b)`. `x.gt(0.0).where_else(x, 0.1 * x)`
    /// is a leaky ReLU.
    ///
    /// What is not chosen has no part in the output, nor a gradient: a NaN there goes no further. But where the formula of
    /// what is not chosen has an infinite derivative, 0 times that is NaN: of `x.gt(0.0).where_else(x.sqrt(), 0.0)` at 0.
    /// Choose before: `x.gt(0.0).where_else(x, 1.0).sqrt()`.
    #[must_use]
    pub fn where_else(self, a: impl Into<Operand<'a>>, b: impl Into<Operand<'a>>) -> Tensor<'a> {
        let (a, b) = (a.into(), b.into());
        self.with_ops("where", |scope, condition| {
            let number = |operand| if let Operand::Number(number) = operand { Some(number) } else { None };
            let op = select::Select { a: number(a), b: number(b) };
            match (a, b) {
                (Operand::Tensor(a), Operand::Tensor(b)) => {
                    let inputs = together(scope, [condition, a.value, b.value])?;
                    scope.apply(op, &inputs)
                }
                (Operand::Tensor(one), Operand::Number(_)) | (Operand::Number(_), Operand::Tensor(one)) => {
                    let inputs = together(scope, [condition, one.value])?;
                    scope.apply(op, &inputs)
                }
                (Operand::Number(_), Operand::Number(_)) => scope.apply(op, &[condition]),
            }
        })
    }

    /// The larger of the two; NaN where either is. Where both are equal, tensors share the gradient in halves, and next to a number
    /// there is none, as in PyTorch's `maximum` and `clamp`.
    #[must_use]
    pub fn maximum(self, other: impl Into<Operand<'a>>) -> Tensor<'a> {
        match other.into() {
            Operand::Tensor(other) => self.pair("maximum", other, maximum::Maximum),
            Operand::Number(min) => self.with_op("maximum", clamp::Clamp { min, max: f32::INFINITY }),
        }
    }

    /// The smaller of the two; NaN where either is. The gradient is as that of [`Tensor::maximum`].
    #[must_use]
    pub fn minimum(self, other: impl Into<Operand<'a>>) -> Tensor<'a> {
        match other.into() {
            Operand::Tensor(other) => self.pair("minimum", other, minimum::Minimum),
            Operand::Number(max) => self.with_op("minimum", clamp::Clamp { min: f32::NEG_INFINITY, max }),
        }
    }

    fn compare(self, relation: Relation, other: Operand<'a>) -> Tensor<'a> {
        match other {
            Operand::Tensor(other) => self.pair(relation.name(), other, Compare { relation, number: None }),
            Operand::Number(number) => self.with_op(relation.name(), Compare { relation, number: Some(number) }),
        }
    }

    /// An op of two tensors of one shape, which these are brought to.
    pub(super) fn pair(self, name: &str, other: Tensor<'a>, op: impl Op) -> Tensor<'a> {
        self.with_ops(name, |scope, value| {
            let inputs = together(scope, [value, other.value])?;
            scope.apply(op, &inputs)
        })
    }
}
