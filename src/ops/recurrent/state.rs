//! States that outlive a step, of which a run of the graph holds the rows of its samples.

use crate::error::OpError;
use crate::ops::{
    Call, Case, Dispatch, Fill, Flags, Op, Real, Slot, expect_count, expect_dtype, expect_rank, expect_shape,
};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc};

/// Elements of the input `run`: the seed's low and high word, the step, and the first of the run's samples in the batch.
const RUN: usize = 4;

params! {
    struct Params {
        elements: u32,
        row: u32,
        state: u32,
    }
}

/// A launch over the elements of the run's rows.
fn launch(entry: &'static str, bindings: [Slot; 3], rows: &TensorDesc, state: &TensorDesc) -> Dispatch {
    let (elements, row) = (rows.numel(), state.shape[1..].iter().product::<usize>());
    Dispatch::new("state", entry, bindings)
        .params(&Params { elements: elements as u32, row: row as u32, state: state.numel() as u32 })
        .linear(elements.div_ceil(64))
}

/// Checks what both ops read; returns the shape of so many rows of the state.
fn rows_of(op: &'static str, state: &TensorDesc, run: &TensorDesc, rows: usize) -> Result<Shape, OpError> {
    expect_dtype(op, "state", state, DType::F32)?;
    expect_dtype(op, "run", run, DType::U32)?;
    expect_shape(op, "run", run, [RUN])?;
    if state.shape.is_empty() {
        expect_rank(op, "state", state, 2)?;
    }
    let mut shape = state.shape.to_vec();
    shape[0] = rows;
    Ok(shape.into())
}

/// Where in a state the run's rows are, as far as it has them.
fn place(state: &TensorDesc, run: &[u32], elements: usize) -> std::ops::Range<usize> {
    let row: usize = state.shape[1..].iter().product();
    let first = (run[3] as usize).saturating_mul(row).min(state.numel());
    first..first.saturating_add(elements).min(state.numel())
}

/// `output[i, …] = state[run[3] + i, …]`: the rows of a state that belong to a run's samples
///
/// | tensor | shape |
/// |---|---|
/// | state | `[N, …]` |
/// | run | `[4]`, u32: seed (two words), step, and the place of the run's first sample in the step's batch |
/// | output | `[rows, …]`; zeros where the state has no such row |
///
/// It has no gradient: what comes from another step is given. **In place:** no. **Numerics:** exact.
///
/// # Errors
/// Where the state is not f32 or has no axis, or `run` is not four integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRows {
    /// Rows that are read: the run's samples.
    pub rows: usize,
}

impl Op for ReadRows {
    fn name(&self) -> &'static str {
        "state.read_rows"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count(self.name(), inputs, 2)?;
        Ok(vec![TensorDesc::f32(rows_of(self.name(), &inputs[0], &inputs[1], self.rows)?)])
    }

    fn stops_gradients(&self) -> bool {
        true
    }

    fn full_precision(&self, _output: usize) -> bool {
        true
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![launch("read_rows", [Slot::Input(0), Slot::Input(1), Slot::Output(0)], &outputs[0], &inputs[0])]
    }

    twin!();
}

impl ReadRows {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (state, run) = (call.input(0), call.ints(1));
        let found = &state[place(&call.input_descs[0], run, call.output_descs[0].numel())];
        let output = call.output(0);
        output[..found.len()].copy_from_slice(found);
        output[found.len()..].fill(T::ZERO);
    }
}

/// `state[run[3] + i, …] = rows[i, …]`, in place: what [`ReadRows`] of the same `run` reads later
///
/// | tensor | shape |
/// |---|---|
/// | state (changed) | `[N, …]` |
/// | rows | `[n, …]`; those are left out that the state has no row for |
/// | run | `[4]`, u32 |
///
/// It has no outputs and no gradient; it must run once. **Numerics:** exact.
///
/// # Errors
/// Where `state` or `rows` is not f32 or they differ beside the first axis, or `run` is not four integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRows;

impl Op for WriteRows {
    fn name(&self) -> &'static str {
        "state.write_rows"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count(self.name(), inputs, 3)?;
        expect_dtype(self.name(), "rows", &inputs[1], DType::F32)?;
        let rows = inputs[1].shape.first().copied().unwrap_or(0);
        let shape = rows_of(self.name(), &inputs[0], &inputs[2], rows)?;
        expect_shape(self.name(), "rows", &inputs[1], shape)?;
        Ok(Vec::new())
    }

    fn flags(&self) -> Flags {
        Flags { once: true, ..Flags::default() }
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![launch("write_rows", [Slot::Input(0), Slot::Input(2), Slot::Input(1)], &inputs[1], &inputs[0])]
    }

    twin!();
}

impl WriteRows {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (rows, run) = (call.input(1), call.ints(2));
        let place = place(&call.input_descs[0], run, rows.len());
        let [state] = call.mutated();
        let count = place.len();
        state[place].copy_from_slice(&rows[..count]);
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    // All words of `run` are drawn from 0 to this.
    let from = |first: u32| Fill::Labels(first + 1);
    let read = |name: &str, rows: usize, state: &[usize], first: u32| {
        let inputs = [TensorDesc::f32(state), TensorDesc::u32([RUN])];
        Case::new(format!("read_{name}"), ReadRows { rows }, inputs).fill(1, from(first)).forward_only()
    };
    let write = |name: &str, rows: &[usize], state: &[usize], first: u32| {
        let inputs = [TensorDesc::f32(state), TensorDesc::f32(rows), TensorDesc::u32([RUN])];
        Case::new(format!("write_{name}"), WriteRows, inputs).fill(2, from(first)).forward_only()
    };
    vec![
        read("3_of_7x5", 3, &[7, 5], 4),
        read("all_4x3", 4, &[4, 3], 0),
        read("past_the_end_5x3", 4, &[5, 3], 6),
        read("one", 1, &[1], 0),
        read("13_of_67x2x3", 13, &[67, 2, 3], 50),
        write("3_of_7x5", &[3, 5], &[7, 5], 4),
        write("all_4x3", &[4, 3], &[4, 3], 0),
        write("past_the_end_5x3", &[4, 3], &[5, 3], 6),
        write("one", &[1], &[1], 0),
        write("13_of_67x2x3", &[13, 2, 3], &[67, 2, 3], 50),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_does_not_fit() {
        let [state, run] = [TensorDesc::f32([7, 5]), TensorDesc::u32([4])];
        assert_eq!(ReadRows { rows: 3 }.outputs(&[state.clone(), run.clone()]), Ok(vec![TensorDesc::f32([3, 5])]));
        assert!(ReadRows { rows: 3 }.outputs(&[state.clone(), TensorDesc::u32([3])]).is_err());
        let write = |rows: TensorDesc| WriteRows.outputs(&[state.clone(), rows, run.clone()]);
        assert_eq!(write(TensorDesc::f32([2, 5])), Ok(Vec::new()));
        assert!(write(TensorDesc::f32([2, 4])).is_err());
        assert!(write(TensorDesc::f32([])).is_err());
    }
}
