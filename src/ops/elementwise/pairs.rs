//! What functions of two elements share: the shape rule, the loop of the twin, gradients that depend on both, test cases.

use std::fmt::Debug;

use crate::error::OpError;
use crate::native::Level;
use crate::ops::elementwise::activation::shape_name;
use crate::ops::elementwise::formula::{self, Formula};
use crate::ops::{Call, Case, Elements, Elementwise, Fill, Op, Real, expect_count, expect_dtype, expect_shape};
use crate::tensor::{DType, TensorDesc};

/// Either input may be where the output is written.
pub(in crate::ops) const IN_PLACE: &[(usize, usize)] = &[(0, 0), (1, 0)];

/// The shape rule: `a` and `b` of one shape, and an output like them.
pub(in crate::ops) fn outputs(op: &'static str, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
    expect_count(op, inputs, 2)?;
    expect_dtype(op, "a", &inputs[0], DType::F32)?;
    expect_dtype(op, "b", &inputs[1], DType::F32)?;
    expect_shape(op, "b", &inputs[1], inputs[0].shape.clone())?;
    Ok(vec![inputs[0].clone()])
}

/// The gradient of an input of an op of two elements, as a function of both and the gradient for the output. Its kernel is the
/// function `<FILE>_<ENTRY>`.
pub(in crate::ops) trait PairGradient: Copy + Debug + Send + Sync + 'static {
    /// `div.grad_b`
    const NAME: &'static str;
    const FILE: &'static str;
    const ENTRY: &'static str;

    fn gradient<T: Real>(first: T, second: T, grad_output: T) -> T;
}

/// The op of a [`PairGradient`]; inputs `first, second, grad_output`.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct PairGrad<P>(pub(in crate::ops) P);

impl<P: PairGradient> Op for PairGrad<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count(P::NAME, inputs, 3)?;
        Ok(vec![inputs[2].clone()])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(2, 0), (0, 0), (1, 0)]
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(Elementwise::new(P::FILE, P::ENTRY, []))
    }

    fn elements(&self) -> Option<&dyn Elements> {
        Some(self)
    }

    twin!();
}

impl<P: PairGradient> PairGrad<P> {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        formula::twin(*self, call);
    }
}

impl<P: PairGradient> Elements for PairGrad<P> {
    fn elements(&self, level: Level, operands: &[&[f32]], output: &mut [f32]) {
        formula::elements(*self, level, operands, output);
    }
}

impl<P: PairGradient> Formula<3> for PairGrad<P> {
    #[inline(always)]
    fn value<T: Real>(self, [first, second, grad_output]: [T; 3]) -> T {
        P::gradient(first, second, grad_output)
    }
}

/// The cases of an op of two elements.
pub(in crate::ops) fn cases(op: impl Op + Copy, prefix: &str, fill: Fill) -> Vec<Case> {
    [vec![1], vec![7], vec![2, 3, 5], vec![257]]
        .into_iter()
        .map(|shape| {
            let name = format!("{prefix}{}", shape_name(&shape));
            Case::new(name, op, [TensorDesc::f32(shape.clone()), TensorDesc::f32(shape)]).fill(0, fill).fill(1, fill)
        })
        .collect()
}
