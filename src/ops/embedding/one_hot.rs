//! Indices as rows with a single 1.

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::{
    Call, Case, Cost, Dispatch, Fill, Integers, Native, Op, Real, Resources, Slot, expect_count, expect_dtype,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc};

/// `output[…, c] = 1 where indices[…] = c, else 0`
///
/// | tensor | shape |
/// |---|---|
/// | indices, u32 | `[…]`, each below `classes` |
/// | output | `[…, classes]` |
///
/// **Saved for backward:** nothing: indices have no gradient. **In place:** no.
/// **Numerics:** exact. The row of an index that is not below `classes` is NaN.
///
/// # Errors
/// Where the indices are not u32 or `classes` is 0.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.functional.one_hot.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneHot {
    /// How many there are.
    pub classes: usize,
}

params! {
    struct Params {
        elements: u32,
        classes: u32,
    }
}

impl Op for OneHot {
    fn name(&self) -> &'static str {
        "one_hot"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let (indices, depth) = (call.input(0), call.ints([self.classes as i64]));
        let values = call.floats([2], vec![0.0, 1.0]);
        Some(vec![call.apply("OneHot", &[&indices, &depth, &values])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("one_hot", inputs, 1)?;
        expect_dtype("one_hot", "indices", &inputs[0], DType::U32)?;
        if self.classes == 0 {
            let reason = "there must be at least one class".to_owned();
            return Err(OpError::Setting { op: "one_hot", setting: "classes", value: "0".to_owned(), reason });
        }
        let mut shape = inputs[0].shape.to_vec();
        shape.push(self.classes);
        Ok(vec![TensorDesc::f32(shape)])
    }

    fn integers(&self, input: usize, _inputs: &[TensorDesc]) -> Option<Integers> {
        (input == 0).then_some(Integers::Indices { count: self.classes, besides: None })
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost { flops: 0, bytes_moved: inputs[0].size_bytes() + outputs[0].size_bytes() }
    }

    fn dispatches(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let elements = outputs[0].numel();
        vec![
            Dispatch::new("one_hot", "forward", [Slot::Input(0), Slot::Output(0)])
                .params(&Params { elements: elements as u32, classes: self.classes as u32 })
                .linear(elements.div_ceil(64)),
        ]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for OneHot {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let indices = call.ints(0);
        with.cores.rows(call.output(0), self.classes, |row, column, output| {
            let index = indices[row] as usize;
            output.fill(if index < self.classes { 0.0 } else { f32::NAN });
            if let Some(one) = index.checked_sub(column).and_then(|place| output.get_mut(place)) {
                *one = 1.0;
            }
        });
    }
}

impl OneHot {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let indices = call.ints(0);
        for (row, &index) in call.output(0).chunks_exact_mut(self.classes).zip(indices) {
            let is_class = (index as usize) < self.classes;
            row.fill(if is_class { T::ZERO } else { T::from_f64(f64::NAN) });
            if let Some(one) = row.get_mut(index as usize) {
                *one = T::ONE;
            }
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, shape: &[usize], classes: usize| {
        Case::new(name, OneHot { classes }, [TensorDesc::u32(shape)]).fill(0, Fill::Labels(classes as u32))
    };
    vec![
        case("1_of_1", &[1], 1),
        case("7_of_10", &[7], 10),
        case("2x3_of_5", &[2, 3], 5),
        case("67_of_257", &[67], 257),
        case("no_such_class_5_of_4", &[5], 4).fill(0, Fill::Constant(4.0)),
    ]
}
