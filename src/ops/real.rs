//! The scalar type of CPU twins.

use std::fmt::{Debug, Display};
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

use crate::native::Fast;
use crate::ops::{Call, Op};

/// f32 or f64: what a CPU twin computes in. It is not `Sum` on purpose: twins add up with `ops/sums.rs`.
pub trait Real:
    Copy
    + Debug
    + Display
    + Default
    + PartialEq
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + 'static
{
    /// 0
    const ZERO: Self;
    /// 1
    const ONE: Self;
    /// −∞
    const NEG_INFINITY: Self;
    /// The nearest value of this type.
    fn from_f64(x: f64) -> Self;
    /// As f64.
    fn to_f64(self) -> f64;
    /// e to the power of self.
    fn exp(self) -> Self;
    /// e to the power of self, less 1; accurate near 0.
    fn exp_m1(self) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// ln(1 + self), accurate near 0.
    fn ln_1p(self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(self) -> Self;
    /// Sine.
    fn sin(self) -> Self;
    /// Cosine.
    fn cos(self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Absolute value.
    fn abs(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// The larger of two.
    fn max(self, other: Self) -> Self;
    /// The smaller of two.
    fn min(self, other: Self) -> Self;
    /// To the power of a number.
    fn powf(self, exponent: f64) -> Self;
    /// Neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// Not a number.
    fn is_nan(self) -> bool;
    /// Runs an op's twin in this type.
    fn twin(op: &dyn Op, call: &mut Call<'_, Self>);
}

macro_rules! real {
    ($t:ty, $erf:path, $run:ident) => {
        impl Real for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEG_INFINITY: Self = <$t>::NEG_INFINITY;
            fn from_f64(x: f64) -> Self {
                x as $t
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            fn exp(self) -> Self {
                self.exp()
            }
            fn exp_m1(self) -> Self {
                self.exp_m1()
            }
            fn ln(self) -> Self {
                self.ln()
            }
            fn ln_1p(self) -> Self {
                self.ln_1p()
            }
            fn tanh(self) -> Self {
                self.tanh()
            }
            fn sin(self) -> Self {
                self.sin()
            }
            fn cos(self) -> Self {
                self.cos()
            }
            fn sqrt(self) -> Self {
                self.sqrt()
            }
            fn abs(self) -> Self {
                self.abs()
            }
            fn erf(self) -> Self {
                $erf(self)
            }
            fn max(self, other: Self) -> Self {
                self.max(other)
            }
            fn min(self, other: Self) -> Self {
                self.min(other)
            }
            fn powf(self, exponent: f64) -> Self {
                f64::from(self).powf(exponent) as $t
            }
            fn is_finite(self) -> bool {
                self.is_finite()
            }
            fn is_nan(self) -> bool {
                self.is_nan()
            }
            fn twin(op: &dyn Op, call: &mut Call<'_, Self>) {
                op.$run(call);
            }
        }
    };
}

real!(f32, libm::erff, run_f32);
real!(f64, libm::erf, run_f64);

/// The functions of [`Fast`] under the trait's names.
macro_rules! fast {
    ($($function:ident($($operand:ident: $type:ty),*) -> $result:ty;)*) => {
        $(#[inline(always)]
        fn $function(self, $($operand: $type),*) -> $result {
            Fast::$function(self, $($operand),*)
        })*
    };
}

impl Real for Fast {
    const ZERO: Self = Fast(0.0);
    const ONE: Self = Fast(1.0);
    const NEG_INFINITY: Self = Fast(f32::NEG_INFINITY);

    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        Fast(x as f32)
    }

    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self.0)
    }

    fast! {
        exp() -> Self;
        exp_m1() -> Self;
        ln() -> Self;
        ln_1p() -> Self;
        tanh() -> Self;
        sin() -> Self;
        cos() -> Self;
        sqrt() -> Self;
        abs() -> Self;
        erf() -> Self;
        max(other: Self) -> Self;
        min(other: Self) -> Self;
        powf(exponent: f64) -> Self;
        is_finite() -> bool;
        is_nan() -> bool;
    }

    fn twin(op: &dyn Op, _call: &mut Call<'_, Self>) {
        unreachable!("bug: the twin of {} in the numbers of native forms", op.name());
    }
}
