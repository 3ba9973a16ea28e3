//! How many samples a classifier gets right.

use super::cross_entropy::expect_logits;
use super::{Call, Case, Cost, Dispatch, Fill, MAX_LOOP_ITERATIONS, Op, Real, Slot, reduce};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::TensorDesc;

/// `correct = number of rows whose first largest logit is at the label`
///
/// | tensor | shape |
/// |---|---|
/// | input (logits) | `[N, C]` |
/// | labels, u32 | `[N]` |
/// | correct | `[1]` |
///
/// It has no gradient. **Numerics:** exact up to 2²⁴ rows.
///
/// # Errors
/// Where the shapes do not fit, the input is not f32, the labels are not u32, or there are more than 65,535 classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accuracy;

impl Op for Accuracy {
    fn name(&self) -> &'static str {
        "accuracy"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_logits("accuracy", inputs)?;
        if inputs[0].shape[1] as u64 > MAX_LOOP_ITERATIONS {
            let expected = format!("of at most {MAX_LOOP_ITERATIONS} classes");
            return Err(OpError::Input { op: "accuracy", input: "input", expected, found: inputs[0].clone() });
        }
        Ok(vec![TensorDesc::f32([1])])
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        Cost { flops: inputs[0].numel() as u64, bytes_moved: inputs[0].size_bytes() + inputs[1].size_bytes() }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        vec![inputs[0].shape[0] as u64 * 4]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let (rows, classes) = (inputs[0].shape[0], inputs[0].shape[1]);
        vec![
            Dispatch::new("accuracy", "rows", [Slot::Input(0), Slot::Input(1), Slot::Workspace(0)])
                .params(&[rows as u32, classes as u32])
                .linear(rows.div_ceil(64))
                .loops(classes),
            reduce::combine(Slot::Workspace(0), Slot::Output(0), 1, rows, 1.0),
        ]
    }

    twin!();
}

impl Accuracy {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, labels) = (call.input(0), call.ints(1));
        let first_largest = |row: &[T]| (1..row.len()).fold(0, |best, j| if row[j] > row[best] { j } else { best });
        let rows = input.chunks(call.shape(0)[1]).zip(labels);
        let correct = rows.filter(|(row, label)| first_largest(row) == **label as usize).count();
        call.output(0)[0] = T::from_f64(correct as f64);
    }
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    [(1, 2), (7, 3), (64, 10), (131, 17)]
        .into_iter()
        .map(|(rows, classes)| {
            let inputs = [TensorDesc::f32([rows, classes]), TensorDesc::u32([rows])];
            Case::new(format!("{rows}x{classes}"), Accuracy, inputs).fill(1, Fill::Labels(classes as u32)).forward_only()
        })
        .collect()
}
