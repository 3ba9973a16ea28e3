//! Matrix product.

use super::gemm::{Gemm, Matrix, View, multiply};
use super::{Backward, Builder, Call, Case, Cost, Dispatch, Op, Real, Slot, expect_count, expect_dtype};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output = op(a) · op(b)`, where `op` swaps the last two axes if asked to.
///
/// | tensor | shape |
/// |---|---|
/// | a | `[m, k]`, with `trans_a` `[k, m]`; batched `[batch, m, k]` or `[batch, k, m]` |
/// | b | `[k, n]`, with `trans_b` `[n, k]`; batched likewise with the same batch |
/// | output | `[m, n]` or `[batch, m, n]` |
///
/// **Saved for backward:** a and b, each where the other wants a gradient.
/// **Numerics:** sums in f32; a long sum with few results is split into parts of fixed length, which are added in order.
///
/// # Errors
/// Where ranks, batches or inner extents differ, or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.matmul.html>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatMul {
    /// `a` is stored with its last two axes swapped.
    pub trans_a: bool,
    /// `b` is stored with its last two axes swapped.
    pub trans_b: bool,
}

impl MatMul {
    fn gemm(&self, a: &TensorDesc, b: &TensorDesc) -> Gemm {
        let rank = a.shape.len();
        let (rows, columns) = (a.shape[rank - 2], a.shape[rank - 1]);
        let (m, k) = if self.trans_a { (columns, rows) } else { (rows, columns) };
        let n = if self.trans_b { b.shape[rank - 2] } else { b.shape[rank - 1] };
        let batch = if rank == 3 { a.shape[0] } else { 1 };
        Gemm { batch, trans_a: self.trans_a, trans_b: self.trans_b, ..Gemm::new(m, n, k) }
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let gemm = self.gemm(&call.input_descs[0], &call.input_descs[1]);
        let Gemm { m, n, k, .. } = gemm;
        let (a, b) = (call.input(0), call.input(1));
        let output = call.output(0);
        output.fill(T::ZERO);
        for i in 0..gemm.batch {
            let a = View { data: &a[i * m * k..], stride: if self.trans_a { m } else { k }, transposed: self.trans_a };
            let b = View { data: &b[i * k * n..], stride: if self.trans_b { k } else { n }, transposed: self.trans_b };
            multiply(m, n, k, a, b, &mut output[i * m * n..], n);
        }
    }
}

impl Op for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("matmul", inputs, 2)?;
        let [a, b] = inputs else { unreachable!("bug: counted above") };
        expect_dtype("matmul", "a", a, DType::F32)?;
        expect_dtype("matmul", "b", b, DType::F32)?;
        let rank = a.shape.len();
        if !matches!(rank, 2 | 3) {
            let expected = "of 2 dimensions, or 3 with a batch".to_owned();
            return Err(OpError::Input { op: "matmul", input: "a", expected, found: a.clone() });
        }
        let gemm = self.gemm(a, a);
        let inner = rank - if self.trans_b { 1 } else { 2 };
        if b.shape.len() != rank || b.shape[inner] != gemm.k || (rank == 3 && b.shape[0] != a.shape[0]) {
            let (batch, k) = (if rank == 3 { format!("{}, ", a.shape[0]) } else { String::new() }, gemm.k);
            let expected = if self.trans_b { format!("of shape [{batch}n, {k}]") } else { format!("of shape [{batch}{k}, n]") };
            return Err(OpError::Input { op: "matmul", input: "b", expected, found: b.clone() });
        }
        let gemm = self.gemm(a, b);
        let shape = if rank == 3 { vec![gemm.batch, gemm.m, gemm.n] } else { vec![gemm.m, gemm.n] };
        Ok(vec![TensorDesc::f32(shape)])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let (a, b) = (forward.inputs[0], forward.inputs[1]);
        // op(a)' = grad · op(b)ᵀ and op(b)' = op(a)ᵀ · grad, written in the order in which a and b are stored.
        let grad_a = if !forward.wanted[0] {
            None
        } else if self.trans_a {
            Some(graph.emit(MatMul { trans_a: self.trans_b, trans_b: true }, &[b, grad])?)
        } else {
            Some(graph.emit(MatMul { trans_a: false, trans_b: !self.trans_b }, &[grad, b])?)
        };
        let grad_b = if !forward.wanted[1] {
            None
        } else if self.trans_b {
            Some(graph.emit(MatMul { trans_a: true, trans_b: self.trans_a }, &[grad, a])?)
        } else {
            Some(graph.emit(MatMul { trans_a: !self.trans_a, trans_b: false }, &[a, grad])?)
        };
        Ok(vec![grad_a, grad_b])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let gemm = self.gemm(&inputs[0], &inputs[1]);
        let tensors = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum::<u64>();
        Cost { flops: gemm.flops(), bytes_moved: tensors + 2 * gemm.workspace_bytes().unwrap_or(0) }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        self.gemm(&inputs[0], &inputs[1]).workspace_bytes().into_iter().collect()
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        let gemm = self.gemm(&inputs[0], &inputs[1]);
        let Gemm { m, n, k, .. } = gemm;
        let a = Matrix { batch: m * k, ..Matrix::new(Slot::Input(0), if self.trans_a { m } else { k }) };
        let b = Matrix { batch: k * n, ..Matrix::new(Slot::Input(1), if self.trans_b { k } else { n }) };
        gemm.dispatches(target, a, b, Slot::Output(0), Slot::Workspace(0))
    }

    twin!();
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    let case = |name: String, trans_a: bool, trans_b: bool, batch: Option<usize>, [m, k, n]: [usize; 3]| {
        let shape = |rows, columns, transposed| {
            let matrix = if transposed { [columns, rows] } else { [rows, columns] };
            TensorDesc::f32(batch.into_iter().chain(matrix).collect::<Vec<_>>())
        };
        Case::new(name, MatMul { trans_a, trans_b }, [shape(m, k, trans_a), shape(k, n, trans_b)])
            .reduction(m.max(k).max(n))
    };
    let mut cases = Vec::new();
    let mut add = |kind: &str, batch: Option<usize>, shape: [usize; 3]| {
        let prefix = batch.map(|b| format!("batch{b}_")).unwrap_or_default();
        let [m, k, n] = shape;
        let (trans_a, trans_b) = (kind.starts_with('t'), kind.ends_with('t'));
        let mut case = case(format!("{prefix}{kind}_{m}x{k}x{n}"), trans_a, trans_b, batch, shape);
        if m * k * n > 10_000 {
            case = case.large();
        }
        cases.push(case);
    };
    add("nn", None, [1, 1, 1]);
    for kind in ["nn", "nt", "tn", "tt"] {
        add(kind, None, [4, 5, 6]);
        add(kind, None, [17, 33, 9]);
        add(kind, Some(2), [3, 7, 5]);
        // Around the tiles of both families, with and without vector loads, and with several tiles.
        add(kind, None, [63, 31, 65]);
        add(kind, None, [64, 32, 64]);
        add(kind, None, [33, 36, 100]);
        add(kind, Some(3), [68, 20, 36]);
        // Enough work for the larger tile, without and with a remainder of k.
        add(kind, None, [64, 260, 132]);
        add(kind, None, [63, 261, 131]);
        // The sum is split.
        add(kind, None, [12, 1030, 20]);
        add(kind, Some(2), [5, 3001, 7]);
    }
    add("nt", None, [1, 7, 5]);
    add("nn", None, [7, 1, 5]);
    add("nn", Some(3), [2, 3, 4]);
    // Longer than one invocation may loop.
    add("nn", None, [3, 270_001, 2]);
    cases
}
