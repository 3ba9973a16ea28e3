//! A constant.

use crate::error::OpError;
use crate::ops::elementwise::function;
use crate::ops::onnx;
use crate::ops::{Call, Case, Dispatch, Native, Op, Real, Resources, Slot, expect_count};
use crate::shader::Target;
use crate::tensor::{Shape, TensorDesc};

/// `output = value` everywhere: where backward begins.
///
/// | tensor | shape |
/// |---|---|
/// | output | `shape` |
///
/// **Saved for backward:** nothing; it has no inputs.
///
/// # Errors
/// Where it is given an input.
#[derive(Clone, Debug, PartialEq)]
pub struct Fill {
    /// The value.
    pub value: f32,
    /// The output's shape.
    pub shape: Shape,
}

impl Op for Fill {
    fn name(&self) -> &'static str {
        "fill"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let shape = call.output_extents(0).into_iter().collect::<Option<Vec<_>>>()?;
        let shape = call.ints(shape.into_iter().map(|extent| extent as i64).collect::<Vec<_>>());
        let value = call.number(self.value);
        Some(vec![call.apply("Expand", &[&value, &shape])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("fill", inputs, 0)?;
        Ok(vec![TensorDesc::f32(self.shape.clone())])
    }

    fn dispatches(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![function::launch("fill", "forward", [Slot::Output(0)], outputs[0].numel(), self.value)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Fill {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        with.cores.pieces(call.output(0), |_, output| output.fill(self.value));
    }
}

impl Fill {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        call.output(0).fill(T::from_f64(f64::from(self.value)));
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    [1, 7, 257].into_iter().map(|n| Case::new(format!("{n}"), Fill { value: 0.375, shape: [n].into() }, [])).collect()
}
