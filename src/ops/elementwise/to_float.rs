//! Integers as numbers.

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::{Call, Case, Dispatch, Fill, Native, Op, Real, Resources, Slot, expect_count, expect_dtype};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc};

/// `output = input` as f32
///
/// | tensor | shape |
/// |---|---|
/// | input, u32 | any |
/// | output | as input |
///
/// **Saved for backward:** nothing: integers have no gradient. **In place:** no.
/// **Numerics:** exact up to 2²⁴, rounded beyond.
///
/// # Errors
/// Where the input is not u32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.Tensor.float.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToFloat;

params! {
    struct Params {
        elements: u32,
    }
}

impl Op for ToFloat {
    fn name(&self) -> &'static str {
        "to_float"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let value = call.input(0);
        Some(vec![call.node("Cast", &[&value], [("to", 1.into())])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("to_float", inputs, 1)?;
        expect_dtype("to_float", "input", &inputs[0], DType::U32)?;
        Ok(vec![TensorDesc::f32(inputs[0].shape.clone())])
    }

    fn full_precision(&self, _output: usize) -> bool {
        true
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let elements = inputs[0].numel();
        vec![
            Dispatch::new("to_float", "forward", [Slot::Input(0), Slot::Output(0)])
                .params(&Params { elements: elements as u32 })
                .linear(elements.div_ceil(64)),
        ]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for ToFloat {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let input = call.ints(0);
        with.cores.pieces(call.output(0), |start, output| {
            for (y, &x) in output.iter_mut().zip(&input[start..]) {
                *y = x as f32;
            }
        });
    }
}

impl ToFloat {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let input = call.ints(0);
        for (y, &x) in call.output(0).iter_mut().zip(input) {
            *y = T::from_f64(f64::from(x));
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, shape: &[usize]| Case::new(name, ToFloat, [TensorDesc::u32(shape)]);
    vec![
        case("1", &[1]).fill(0, Fill::Labels(10)),
        case("7", &[7]).fill(0, Fill::Labels(10)),
        case("2x3x5", &[2, 3, 5]).fill(0, Fill::Labels(1 << 24)),
        case("any_257", &[257]),
    ]
}
