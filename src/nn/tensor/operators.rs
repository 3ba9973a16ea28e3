//! Operators between tensors, and between tensors and numbers.

use std::ops;

use super::Tensor;
use crate::error::GraphError;
use crate::nn::scope::Scope;
use crate::ops::elementwise::{add, add_scalar, div, mul, pow, scale, sub};
use crate::tensor::{ValueId, format_number};

const NEGATIVE: scale::Scale = scale::Scale { factor: -1.0 };

fn plus(scope: &mut Scope<'_>, x: ValueId, value: f32) -> Result<ValueId, GraphError> {
    scope.apply(add_scalar::AddScalar { value }, &[x])
}

fn times(scope: &mut Scope<'_>, x: ValueId, factor: f32) -> Result<ValueId, GraphError> {
    scope.apply(scale::Scale { factor }, &[x])
}

impl<'a> ops::Neg for Tensor<'a> {
    type Output = Tensor<'a>;

    fn neg(self) -> Tensor<'a> {
        self.with_op("neg", NEGATIVE)
    }
}

impl<'a> ops::Add for Tensor<'a> {
    type Output = Tensor<'a>;

    fn add(self, other: Tensor<'a>) -> Tensor<'a> {
        self.pair("add", other, add::Add)
    }
}

impl<'a> ops::Add<f32> for Tensor<'a> {
    type Output = Tensor<'a>;

    fn add(self, number: f32) -> Tensor<'a> {
        self.with_ops("add", |scope, x| plus(scope, x, number))
    }
}

impl<'a> ops::Add<Tensor<'a>> for f32 {
    type Output = Tensor<'a>;

    fn add(self, tensor: Tensor<'a>) -> Tensor<'a> {
        tensor + self
    }
}

impl<'a> ops::Sub for Tensor<'a> {
    type Output = Tensor<'a>;

    fn sub(self, other: Tensor<'a>) -> Tensor<'a> {
        self.pair("sub", other, sub::Sub)
    }
}

impl<'a> ops::Sub<f32> for Tensor<'a> {
    type Output = Tensor<'a>;

    fn sub(self, number: f32) -> Tensor<'a> {
        self.with_ops("sub", |scope, x| plus(scope, x, -number))
    }
}

impl<'a> ops::Sub<Tensor<'a>> for f32 {
    type Output = Tensor<'a>;

    fn sub(self, tensor: Tensor<'a>) -> Tensor<'a> {
        tensor.with_ops("sub", |scope, x| {
            let negative = scope.apply(NEGATIVE, &[x])?;
            plus(scope, negative, self)
        })
    }
}

impl<'a> ops::Mul for Tensor<'a> {
    type Output = Tensor<'a>;

    fn mul(self, other: Tensor<'a>) -> Tensor<'a> {
        self.pair("mul", other, mul::Mul)
    }
}

impl<'a> ops::Mul<f32> for Tensor<'a> {
    type Output = Tensor<'a>;

    fn mul(self, number: f32) -> Tensor<'a> {
        self.with_ops("mul", |scope, x| times(scope, x, number))
    }
}

impl<'a> ops::Mul<Tensor<'a>> for f32 {
    type Output = Tensor<'a>;

    fn mul(self, tensor: Tensor<'a>) -> Tensor<'a> {
        tensor * self
    }
}

impl<'a> ops::Div for Tensor<'a> {
    type Output = Tensor<'a>;

    fn div(self, other: Tensor<'a>) -> Tensor<'a> {
        self.pair("div", other, div::Div)
    }
}

/// The product with the number's reciprocal.
impl<'a> ops::Div<f32> for Tensor<'a> {
    type Output = Tensor<'a>;

    fn div(self, number: f32) -> Tensor<'a> {
        self.with_ops("div", |scope, x| {
            let factor = 1.0 / number;
            if !factor.is_finite() {
                let number = format_number(number);
                return Err(scope.error(format!("cannot divide by {number}: its reciprocal is not finite")));
            }
            times(scope, x, factor)
        })
    }
}

impl<'a> ops::Div<Tensor<'a>> for f32 {
    type Output = Tensor<'a>;

    fn div(self, tensor: Tensor<'a>) -> Tensor<'a> {
        tensor.with_ops("div", |scope, x| {
            let reciprocal = scope.apply(pow::Pow { exponent: -1.0 }, &[x])?;
            times(scope, reciprocal, self)
        })
    }
}
