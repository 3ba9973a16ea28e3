//! Rows of a table, by index.

mod grad;

use crate::ops::onnx;
use grad::{EmbeddingGradWeight, MAX_INDICES};

use crate::error::OpError;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Fill, Integers, Native, Op, Real, Resources, Slot, expect_count,
    expect_dtype, expect_rank,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output[n, …] = weight[indices[n, …]]`
///
/// | tensor | shape |
/// |---|---|
/// | indices, u32 | any, up to 2²⁷ of them |
/// | weight | `[V, D]` |
/// | output | `[…, D]`: that of the indices, and a row for each |
///
/// **Saved for backward:** the indices. **In place:** no.
/// **Numerics:** exact. An index that is not below V makes its row NaN, and has no part in the gradient. The gradient of
/// the weight is a sum in f32 in an order that depends on the indices only: they are sorted first (workspace of 4 or 8 bytes
/// for each), so the cost is that of reading the gradient once and writing the weight's.
///
/// # Errors
/// Where the indices are not u32, the weight is not f32 `[V, D]`, there are more than 2²⁷ indices, or `padding_idx` is no row.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Embedding {
    /// A row whose gradient is 0.
    pub padding_idx: Option<u32>,
}

params! {
    struct Params {
        elements: u32,
        width: u32,
        rows: u32,
        tile: u32,
        padding: u32,
    }
}

/// A launch over `elements` elements of rows of `width`; four at a time where the width allows it.
fn launch(entry: &'static str, bindings: &[Slot], elements: usize, width: usize, params: Params) -> Dispatch {
    let unit = if width.is_multiple_of(4) { 4 } else { 1 };
    let count = elements / unit;
    let dispatch = Dispatch::new("embedding", entry, bindings)
        .params(&Params { elements: count as u32, width: (width / unit) as u32, ..params })
        .linear(count.div_ceil(64));
    if unit == 4 { dispatch.constant("VEC", 1) } else { dispatch }
}

impl Embedding {
    fn params(&self, rows: usize, tile: usize) -> Params {
        let padding = self.padding_idx.unwrap_or(u32::MAX);
        Params { elements: 0, width: 0, rows: rows as u32, tile: tile as u32, padding }
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (indices, weight) = (call.ints(0), call.input(1));
        let width = call.shape(1)[1];
        for (y, &index) in call.output(0).chunks_exact_mut(width).zip(indices) {
            match weight.chunks_exact(width).nth(index as usize) {
                Some(row) => y.copy_from_slice(row),
                None => y.fill(T::from_f64(f64::NAN)),
            }
        }
    }
}

impl Op for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let [indices, weight] = [0, 1].map(|i| call.input(i));
        Some(vec![call.apply("Gather", &[&weight, &indices])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("embedding", inputs, 2)?;
        expect_dtype("embedding", "indices", &inputs[0], DType::U32)?;
        expect_dtype("embedding", "weight", &inputs[1], DType::F32)?;
        expect_rank("embedding", "weight", &inputs[1], 2)?;
        if inputs[0].numel() > MAX_INDICES {
            let expected = format!("of at most {MAX_INDICES} elements");
            return Err(OpError::Input { op: "embedding", input: "indices", expected, found: inputs[0].clone() });
        }
        if let Some(padding) = self.padding_idx
            && padding as usize >= inputs[1].shape[0]
        {
            let reason = format!("the weight {} has no such row", inputs[1]);
            return Err(OpError::Setting {
                op: "embedding",
                setting: "padding_idx",
                value: padding.to_string(),
                reason,
            });
        }
        let mut shape = inputs[0].shape.to_vec();
        shape.push(inputs[1].shape[1]);
        Ok(vec![TensorDesc::f32(shape)])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let rows = graph.desc(forward.inputs[1]).shape[0];
        let op = EmbeddingGradWeight { embedding: *self, rows };
        Ok(vec![None, Some(graph.emit(op, &[forward.inputs[0], grad_output])?)])
    }

    fn integers(&self, input: usize, inputs: &[TensorDesc]) -> Option<Integers> {
        (input == 0).then(|| Integers::Indices { count: inputs[1].shape[0], besides: None })
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // Of the weight, the rows that are named are read.
        Cost { flops: 0, bytes_moved: inputs[0].size_bytes() + 2 * outputs[0].size_bytes() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Output(0)];
        let (rows, width) = (inputs[1].shape[0], inputs[1].shape[1]);
        vec![launch("forward", &bindings, outputs[0].numel(), width, self.params(rows, 0))]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Embedding {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let (indices, weight) = (call.ints(0), call.input(1));
        let width = call.shape(1)[1];
        with.cores.rows(call.output(0), width, |row, column, output| {
            match weight.chunks_exact(width).nth(indices[row] as usize) {
                Some(row) => output.copy_from_slice(&row[column..][..output.len()]),
                None => output.fill(f32::NAN),
            }
        });
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, shape: &[usize], rows: usize, width: usize| {
        let descs = [TensorDesc::u32(shape), TensorDesc::f32([rows, width])];
        Case::new(name, Embedding::default(), descs)
            .fill(0, Fill::Labels(rows as u32))
            .reduction(shape.iter().product())
    };
    let padded = Case::new(
        "padding2_3x7_of_5x8",
        Embedding { padding_idx: Some(2) },
        [TensorDesc::u32([3, 7]), TensorDesc::f32([5, 8])],
    );
    vec![
        case("4_of_7x5", &[4], 7, 5),
        case("2x3_of_5x4", &[2, 3], 5, 4),
        case("2x3x2_of_3x1", &[2, 3, 2], 3, 1),
        case("one_row_9_of_1x3", &[9], 1, 3),
        // Unlike the gradient, differences see the padding.
        padded.fill(0, Fill::Labels(5)).reduction(21).large(),
        case("no_such_row_5_of_3x4", &[5], 3, 4).fill(0, Fill::Constant(3.0)).large(),
        case("some_no_such_row_300_of_7x3", &[300], 7, 3).fill(0, Fill::Labels(12)).large(),
        case("two_digits_1031_of_17x3", &[1031], 17, 3).large(),
        case("full_digit_257_of_15x4", &[257], 15, 4).large(),
        case("most_rows_unused_65_of_5003x12", &[5, 13], 5003, 12).large(),
        case("many_4x1031_of_300x8", &[4, 1031], 300, 8).large(),
        case("one_index_12007_of_9x5", &[12_007], 9, 5).fill(0, Fill::Constant(4.0)).large(),
        case("long_rows_70001_of_3x4", &[70_001], 3, 4).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_does_not_fit() {
        let outputs = |padding_idx, indices: TensorDesc, weight: &[usize]| {
            Embedding { padding_idx }.outputs(&[indices, TensorDesc::f32(weight)]).map_err(|error| error.to_string())
        };
        assert_eq!(outputs(Some(4), TensorDesc::u32([2, 3]), &[5, 7]), Ok(vec![TensorDesc::f32([2, 3, 7])]));
        assert!(outputs(Some(5), TensorDesc::u32([2]), &[5, 7]).is_err_and(|e| e.contains("padding_idx = 5")));
        assert!(
            outputs(None, TensorDesc::f32([2]), &[5, 7]).is_err_and(|e| e.contains("`indices` must be of type u32"))
        );
        assert!(outputs(None, TensorDesc::u32([2]), &[5]).is_err());
        assert!(outputs(None, TensorDesc::u32([MAX_INDICES + 1]), &[5, 1]).is_err_and(|e| e.contains("at most")));
    }

    /// The most indices that are taken keep every kernel within the loops of one invocation.
    #[test]
    fn the_largest_gradient_can_be_launched() {
        let op = EmbeddingGradWeight { embedding: Embedding::default(), rows: 1 << 20 };
        let inputs = [TensorDesc::u32([MAX_INDICES]), TensorDesc::f32([MAX_INDICES, 1])];
        let outputs = op.outputs(&inputs).expect("it fits");
        assert_eq!(Op::workspaces(&op, &inputs, &outputs).len(), 5);
        assert!(op.dispatches(&inputs, &outputs, &Target::default()).len() > 3);
    }
}
