//! Rounding to what a float of 16 bits can be.

use crate::error::OpError;
use crate::native::{Level, half};
use crate::ops::{Backward, Builder, Call, Case, Elements, Elementwise, Fill, Op, Real, expect_count, expect_dtype};
use crate::tensor::{DType, Half, TensorDesc, ValueId};

/// `output =` the nearest value that a float of 16 bits can have, of two as near the one whose last bit is 0: what the input would be
/// had it been stored in 16 bits.
///
/// | tensor | shape |
/// |---|---|
/// | input, output | any, both alike; f32 |
///
/// The gradient passes as if there were no rounding. **Saved for backward:** nothing. **In place:** yes.
/// **Numerics:** of bf16 a relative error of at most 2⁻⁹; of f16 of 2⁻¹² for 6·10⁻⁵ to 65,504, and ±∞ beyond.
///
/// # Errors
/// Where the input is not f32.
///
/// Source: IEEE 754-2019, 4.3.1 (roundTiesToEven)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// The format.
    pub half: Half,
}

impl Round {
    /// The name of the op.
    pub(in crate::ops) const NAME: &'static str = "round";

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let input = call.input(0);
        for (y, &x) in call.output(0).iter_mut().zip(input) {
            *y = T::from_f64(half::round(self.half, x.to_f64() as f32).into());
        }
    }
}

impl Op for Round {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count(Self::NAME, inputs, 1)?;
        expect_dtype(Self::NAME, "input", &inputs[0], DType::F32)?;
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, _graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        Ok(vec![forward.grad_outputs[0]])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn elementwise(&self) -> Option<Elementwise> {
        let entry = match self.half {
            Half::F16 => "f16",
            Half::Bf16 => "bf16",
        };
        Some(Elementwise::new("round", entry, []))
    }

    fn elements(&self) -> Option<&dyn Elements> {
        Some(self)
    }

    twin!();
}

impl Elements for Round {
    fn elements(&self, level: Level, operands: &[&[f32]], output: &mut [f32]) {
        half::round_all(level, self.half, operands[0], output);
    }
}

/// Test cases. Finite differences see the steps, so there are none.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for half in [Half::F16, Half::Bf16] {
        for shape in [vec![1], vec![7], vec![2, 3, 5], vec![257]] {
            let name = format!("{half}_{}", shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x"));
            cases.push(Case::new(name, Round { half }, [TensorDesc::f32(shape)]).forward_only());
        }
        let large = Case::new(format!("{half}_large_130"), Round { half }, [TensorDesc::f32([130])]);
        cases.push(large.fill(0, Fill::Uniform(-3e4, 6e4)).forward_only());
    }
    cases
}
