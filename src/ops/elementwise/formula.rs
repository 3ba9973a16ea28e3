//! Elementwise functions in Rust: one source for the twin and for the native form.

use crate::native::{Fast, Function, Level, map};
use crate::ops::{Call, Real};

/// A function of `N` elements. Mark `value` `#[inline(always)]`, and all that it calls: the native form is compiled for vectors.
pub(in crate::ops) trait Formula<const N: usize>: Copy {
    fn value<T: Real>(self, x: [T; N]) -> T;
}

/// The CPU twin.
pub(in crate::ops) fn twin<T: Real, const N: usize>(formula: impl Formula<N>, call: &mut Call<'_, T>) {
    let inputs: [&[T]; N] = std::array::from_fn(|k| call.input(k));
    for (i, y) in call.output(0).iter_mut().enumerate() {
        *y = formula.value(inputs.map(|input| input[i]));
    }
}

/// The native form.
pub(in crate::ops) fn elements<const N: usize>(
    formula: impl Formula<N>,
    level: Level,
    operands: &[&[f32]],
    output: &mut [f32],
) {
    let operands = operands.try_into().expect("bug: an elementwise function of other operands");
    map(level, Native(formula), operands, output);
}

#[derive(Clone, Copy)]
struct Native<F>(F);

impl<F: Formula<N>, const N: usize> Function<N> for Native<F> {
    #[inline(always)]
    fn of(self, x: [Fast; N]) -> Fast {
        self.0.value(x)
    }
}

/// Implements twin and native form of an op of so many inputs by its [`Formula`].
macro_rules! by_formula {
    ($op:ty, $operands:literal) => {
        impl $op {
            fn twin<T: $crate::ops::Real>(&self, call: &mut $crate::ops::Call<'_, T>) {
                $crate::ops::elementwise::formula::twin::<T, $operands>(*self, call);
            }
        }

        impl $crate::ops::Elements for $op {
            fn elements(&self, level: $crate::native::Level, operands: &[&[f32]], output: &mut [f32]) {
                $crate::ops::elementwise::formula::elements::<$operands>(*self, level, operands, output);
            }
        }
    };
}

pub(in crate::ops) use by_formula;
