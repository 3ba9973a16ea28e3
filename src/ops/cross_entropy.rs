//! Softmax cross-entropy with integer labels.

use super::{
    Backward, Builder, Call, Case, Cost, Dispatch, Fill, Op, Real, Slot, expect_count, expect_dtype, expect_rank,
    expect_shape, reduce,
};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// `loss = mean over n of (ln Σⱼ exp(inputₙⱼ) − inputₙ,labelₙ)`
///
/// | tensor | shape |
/// |---|---|
/// | input (logits) | `[N, C]` |
/// | labels, u32 | `[N]` |
/// | loss | `[1]` |
///
/// **Saved for backward:** input and labels; the softmax is computed again. **In place:** no.
/// **Numerics:** the largest logit of a row is subtracted first. A label that is not below C makes the loss NaN.
/// Sums in f32, always in the same order.
///
/// # Errors
/// Where the shapes do not fit, the input is not f32 or the labels are not u32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossEntropy;

/// From so many classes on, a workgroup shares a row: before, one invocation has it to itself.
const LONG_ROW: usize = 512;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    rows: u32,
    classes: u32,
    setting: f32,
}

/// A kernel that goes over each row so many times.
fn launch(entry: &'static str, bindings: &[Slot], input: &TensorDesc, passes: usize) -> Dispatch {
    let (rows, classes) = (input.shape[0], input.shape[1]);
    let params = Params { rows: rows as u32, classes: classes as u32, setting: 1.0 / rows as f32 };
    let lanes = reduce::lanes(classes, LONG_ROW);
    let dispatch = Dispatch::new("cross_entropy", entry, bindings)
        .params(&params)
        .loops(passes * classes.div_ceil(lanes) + 16);
    reduce::over_rows(dispatch, rows, lanes)
}

/// The shape rule of ops over logits and labels.
pub(super) fn expect_logits(op: &'static str, inputs: &[TensorDesc]) -> Result<(), OpError> {
    expect_count(op, inputs, 2)?;
    expect_dtype(op, "input", &inputs[0], DType::F32)?;
    expect_rank(op, "input", &inputs[0], 2)?;
    expect_dtype(op, "labels", &inputs[1], DType::U32)?;
    expect_shape(op, "labels", &inputs[1], [inputs[0].shape[0]])
}

impl Op for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_logits("cross_entropy", inputs)?;
        Ok(vec![TensorDesc::f32([1])])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_loss) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let grad_input = graph.emit(CrossEntropyGradInput, &[forward.inputs[0], forward.inputs[1], grad_loss])?;
        Ok(vec![Some(grad_input), None])
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        Cost { flops: 8 * inputs[0].numel() as u64, bytes_moved: inputs[0].size_bytes() + inputs[1].size_bytes() }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        vec![inputs[0].shape[0] as u64 * 4]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let rows = inputs[0].shape[0];
        vec![
            launch("forward", &[Slot::Input(0), Slot::Input(1), Slot::Workspace(0)], &inputs[0], 2),
            reduce::combine(Slot::Workspace(0), Slot::Output(0), 1, rows, 1.0 / rows as f32),
        ]
    }

    twin!();
}

/// The largest logit of a row, and the sum of exponentials of the differences from it.
fn largest_and_sum<T: Real>(row: &[T]) -> (T, T) {
    let largest = row.iter().copied().fold(T::NEG_INFINITY, Real::max);
    (largest, row.iter().map(|&x| (x - largest).exp()).sum())
}

impl CrossEntropy {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, labels) = (call.input(0), call.ints(1));
        let classes = call.shape(0)[1];
        let row_loss = |(row, &label): (&[T], &u32)| {
            let (largest, sum) = largest_and_sum(row);
            row.get(label as usize).map_or(T::from_f64(f64::NAN), |&logit| sum.ln() + largest - logit)
        };
        let total: T = input.chunks(classes).zip(labels).map(row_loss).sum();
        call.output(0)[0] = total / T::from_f64(labels.len() as f64);
    }
}

/// `grad_input = grad_loss / N · (softmax(input) − one_hot(labels))`; inputs `input, labels, grad_loss`.
#[derive(Clone, Copy, Debug)]
struct CrossEntropyGradInput;

impl Op for CrossEntropyGradInput {
    fn name(&self) -> &'static str {
        "cross_entropy.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(vec![inputs[0].clone()])
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        Cost { flops: 8 * inputs[0].numel() as u64, bytes_moved: 2 * inputs[0].size_bytes() + inputs[1].size_bytes() }
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Input(2), Slot::Output(0)];
        vec![launch("grad_input", &bindings, &inputs[0], 3)]
    }

    twin!();
}

impl CrossEntropyGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, labels, grad_loss) = (call.input(0), call.ints(1), call.input(2)[0]);
        let classes = call.shape(0)[1];
        let factor = grad_loss / T::from_f64(labels.len() as f64);
        for ((grad, row), &label) in call.output(0).chunks_mut(classes).zip(input.chunks(classes)).zip(labels) {
            let (largest, sum) = largest_and_sum(row);
            for (d, &x) in grad.iter_mut().zip(row) {
                *d = factor * ((x - largest).exp() / sum);
            }
            match grad.get_mut(label as usize) {
                Some(d) => *d -= factor,
                None => grad.fill(T::from_f64(f64::NAN)),
            }
        }
    }
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, rows: usize, classes: usize| {
        Case::new(name, CrossEntropy, [TensorDesc::f32([rows, classes]), TensorDesc::u32([rows])])
            .fill(1, Fill::Labels(classes as u32))
            .reduction(rows.max(classes))
    };
    vec![
        case("1x2", 1, 2),
        case("4x10", 4, 10),
        case("7x3", 7, 3),
        case("2x300", 2, 300),
        case("3x1", 3, 1),
        case("extreme_4x5", 4, 5).fill(0, Fill::Uniform(-100.0, 100.0)),
        case("131x10", 131, 10).large(),
        case("label_out_of_range_4x3", 4, 3).fill(1, Fill::Constant(3.0)).large(),
        case("long_rows_5x1031", 5, 1031).large(),
    ]
}
