//! Matrix product.

use crate::ops::onnx;
use std::sync::Arc;

use crate::error::OpError;
use crate::native::{Block, Extents, Factor, Product, Start};
use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::elementwise::bias_add::BiasAddGradBias;
use crate::ops::elementwise::relu::Relu;
use crate::ops::matmul::gemm::{Gemm, Matrix, View, multiply};
use crate::ops::{
    Backward, Builder, BuiltInActivation, Call, Case, Cost, Dispatch, Native, Op, Real, Resources, Slot, expect_count,
    expect_dtype, expect_shape,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output = op(a) · op(b) + bias`, where `op` swaps the last two axes if asked to; with `relu`, then `max(output, 0)`.
///
/// | tensor | shape |
/// |---|---|
/// | a | `[m, k]`, with `trans_a` `[k, m]`; batched `[batch, m, k]` or `[batch, k, m]` |
/// | b | `[k, n]`, with `trans_b` `[n, k]`; batched likewise with the same batch |
/// | bias, if `bias` | `[n]`; not with a batch |
/// | output | `[m, n]` or `[batch, m, n]` |
///
/// **Saved for backward:** a and b, each where the other wants a gradient; with `relu` the output (compressed, a bit for each of
/// its elements unless the output is kept anyway).
/// **Numerics:** sums in f32, which start from the bias; NaN passes `relu`; a long sum with few results is split into parts of fixed length, which are added in order.
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
    /// Whether there is a third input, the bias.
    pub bias: bool,
    /// Whether negative outputs become 0, with the bits and gradients of [`Relu`].
    pub relu: bool,
}

impl MatMul {
    fn transposed(trans_a: bool, trans_b: bool) -> Self {
        MatMul { trans_a, trans_b, ..MatMul::default() }
    }

    fn gemm(&self, a: &TensorDesc, b: &TensorDesc) -> Gemm {
        let rank = a.shape.len();
        let (rows, columns) = (a.shape[rank - 2], a.shape[rank - 1]);
        let (m, k) = if self.trans_a { (columns, rows) } else { (rows, columns) };
        let n = if self.trans_b { b.shape[rank - 2] } else { b.shape[rank - 1] };
        let batch = if rank == 3 { a.shape[0] } else { 1 };
        let bias = self.bias.then_some(Slot::Input(2));
        Gemm { batch, trans_a: self.trans_a, trans_b: self.trans_b, bias, relu: self.relu, ..Gemm::new(m, n, k) }
    }

    fn extents(&self, a: &TensorDesc, b: &TensorDesc) -> Extents {
        let Gemm { batch, m, n, k, .. } = self.gemm(a, b);
        Extents { batch, m, n, k }
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let gemm = self.gemm(&call.input_descs[0], &call.input_descs[1]);
        let Gemm { m, n, k, .. } = gemm;
        let (a, b) = (call.input(0), call.input(1));
        let bias = if self.bias { call.input(2) } else { &[] };
        let output = call.output(0);
        if self.bias {
            output.chunks_exact_mut(n).for_each(|row| row.copy_from_slice(bias));
        } else {
            output.fill(T::ZERO);
        }
        for i in 0..gemm.batch {
            let a = View { data: &a[i * m * k..], stride: if self.trans_a { m } else { k }, transposed: self.trans_a };
            let b = View { data: &b[i * k * n..], stride: if self.trans_b { k } else { n }, transposed: self.trans_b };
            multiply(m, n, k, a, b, &mut output[i * m * n..], n);
        }
        if self.relu {
            output.iter_mut().for_each(|y| *y = Relu.value(*y));
        }
    }
}

impl Op for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let inputs = call.inputs();
        if call.rank(0) == 2 {
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            let output = call.node("Gemm", &inputs, [("transA", self.trans_a.into()), ("transB", self.trans_b.into())]);
            return Some(vec![call.with_relu(output, self.relu)]);
        }
        let mut turned = |index: usize, trans: bool| {
            if trans { call.transpose(&inputs[index], &[0, 2, 1]) } else { inputs[index].clone() }
        };
        let (a, b) = (turned(0, self.trans_a), turned(1, self.trans_b));
        let output = call.apply("MatMul", &[&a, &b]);
        Some(vec![call.with_relu(output, self.relu)])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("matmul", inputs, if self.bias { 3 } else { 2 })?;
        let [a, b, ..] = inputs else { unreachable!("bug: counted above") };
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
            let expected =
                if self.trans_b { format!("of shape [{batch}n, {k}]") } else { format!("of shape [{batch}{k}, n]") };
            return Err(OpError::Input { op: "matmul", input: "b", expected, found: b.clone() });
        }
        let gemm = self.gemm(a, b);
        if self.bias {
            if rank == 3 {
                let reason = "products in a batch have none".to_owned();
                return Err(OpError::Setting { op: "matmul", setting: "bias", value: "true".to_owned(), reason });
            }
            expect_dtype("matmul", "bias", &inputs[2], DType::F32)?;
            expect_shape("matmul", "bias", &inputs[2], [gemm.n])?;
        }
        let shape = if rank == 3 { vec![gemm.batch, gemm.m, gemm.n] } else { vec![gemm.m, gemm.n] };
        Ok(vec![TensorDesc::f32(shape)])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad) = forward.grad_outputs[0] else { return Ok(vec![None; forward.inputs.len()]) };
        let grad =
            if self.relu { activation::grad_input(Relu, graph, forward, forward.outputs[0], grad)? } else { grad };
        let (a, b) = (forward.inputs[0], forward.inputs[1]);
        // op(a)' = grad · op(b)ᵀ and op(b)' = op(a)ᵀ · grad, written in the order in which a and b are stored.
        let grad_a = if !forward.wanted[0] {
            None
        } else if self.trans_a {
            Some(graph.emit(MatMul::transposed(self.trans_b, true), &[b, grad])?)
        } else {
            Some(graph.emit(MatMul::transposed(false, !self.trans_b), &[grad, b])?)
        };
        let grad_b = if !forward.wanted[1] {
            None
        } else if self.trans_b {
            Some(graph.emit(MatMul::transposed(true, self.trans_a), &[grad, a])?)
        } else {
            Some(graph.emit(MatMul::transposed(!self.trans_a, false), &[a, grad])?)
        };
        let mut grads = vec![grad_a, grad_b];
        if self.bias {
            grads.push(if forward.wanted[2] { Some(graph.emit(BiasAddGradBias, &[grad])?) } else { None });
        }
        Ok(grads)
    }

    fn takes_epilogue(&self) -> bool {
        true
    }

    fn with_activation(&self, activation: BuiltInActivation) -> Option<Arc<dyn Op>> {
        let BuiltInActivation::Relu = activation;
        (!self.relu).then(|| Arc::new(MatMul { relu: true, ..*self }) as Arc<dyn Op>)
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

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for MatMul {
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], threads: usize) -> Vec<u64> {
        vec![(4 * self.extents(&inputs[0], &inputs[1]).scratch(threads)) as u64]
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let extents = self.extents(&call.input_descs[0], &call.input_descs[1]);
        let Extents { batch, m, n, k } = extents;
        let (cores, epilogue) = (with.cores, &with.epilogue);
        let finish =
            |start: usize, results: &mut [f32], to: &mut [f32]| epilogue.finish(cores.level(), start, results, to);
        let product = Product {
            extents,
            a: Factor::matrix(call.input(0), !self.trans_a, if self.trans_a { m } else { k }, m * k),
            b: Factor::matrix(call.input(1), self.trans_b, if self.trans_b { k } else { n }, k * n),
            start: if self.bias { Start::Columns(call.input(2)) } else { Start::Zero },
            relu: self.relu,
            finish: if epilogue.is_empty() { None } else { Some(&finish) },
        };
        product.run(cores, with.workspaces[0], Block::new(call.output(0), batch * m, n, n));
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: String, trans_a: bool, trans_b: bool, batch: Option<usize>, [m, k, n]: [usize; 3]| {
        let shape = |rows, columns, transposed| {
            let matrix = if transposed { [columns, rows] } else { [rows, columns] };
            TensorDesc::f32(batch.into_iter().chain(matrix).collect::<Vec<_>>())
        };
        Case::new(name, MatMul::transposed(trans_a, trans_b), [shape(m, k, trans_a), shape(k, n, trans_b)])
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
    for (name, relu, [m, k, n]) in [
        ("bias", false, [5, 7, 3]),
        ("bias_vectors", false, [33, 20, 36]),
        ("bias_relu", true, [65, 12, 66]),
        // Split sums.
        ("bias_relu_split", true, [12, 1030, 20]),
        ("bias_split_odd", false, [5, 1031, 7]),
    ] {
        let op = MatMul { trans_b: true, bias: true, relu, ..MatMul::default() };
        let inputs = [TensorDesc::f32([m, k]), TensorDesc::f32([n, k]), TensorDesc::f32([n])];
        let case = Case::new(name, op, inputs).reduction(m.max(k).max(n));
        cases.push(if m * k * n > 10_000 { case.large() } else { case });
    }
    let relu = MatMul { relu: true, ..MatMul::default() };
    cases.push(Case::new("relu_batch", relu, [TensorDesc::f32([2, 3, 5]), TensorDesc::f32([2, 5, 4])]).reduction(5));
    cases
}
