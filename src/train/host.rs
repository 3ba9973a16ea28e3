//! Ops and formulas on the host, by their twins in f64.

use crate::graph::Graph;
use crate::ops::{Call, Input, Op, Output};
use crate::tensor::{DType, TensorDesc, ValueId};

/// What a tensor holds.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Real(Vec<f64>),
    Int(Vec<u32>),
}

impl Value {
    fn zeros(desc: &TensorDesc) -> Self {
        match desc.dtype {
            DType::U32 | DType::U8 => Value::Int(vec![0; desc.words()]),
            DType::F32 | DType::F16 | DType::BF16 => Value::Real(vec![0.0; desc.numel()]),
        }
    }

    fn input(&self) -> Input<'_, f64> {
        match self {
            Value::Real(values) => Input::Real(values),
            Value::Int(values) => Input::Int(values),
        }
    }

    fn output(&mut self) -> Output<'_, f64> {
        match self {
            Value::Real(values) => Output::Real(values),
            Value::Int(values) => Output::Int(values),
        }
    }
}

/// The first output of an op that was tried on these shapes, which is of numbers.
pub(super) fn run_op(op: &dyn Op, input_descs: &[TensorDesc], inputs: Vec<Input<'_, f64>>) -> Vec<f64> {
    match outputs(op, input_descs, inputs).swap_remove(0) {
        Value::Real(values) => values,
        Value::Int(values) => values.into_iter().map(f64::from).collect(),
    }
}

fn outputs(op: &dyn Op, input_descs: &[TensorDesc], inputs: Vec<Input<'_, f64>>) -> Vec<Value> {
    let output_descs = op.outputs(input_descs).expect("bug: an op that was tried on these shapes");
    let mut data: Vec<_> = output_descs.iter().map(Value::zeros).collect();
    let outputs = data.iter_mut().map(Value::output).collect();
    op.run_f64(&mut Call { input_descs, output_descs: &output_descs, inputs, outputs, mutated: Vec::new() });
    data
}

/// What a graph of ops that change nothing makes of its inputs.
pub(super) fn run_graph(
    graph: &Graph,
    inputs: impl IntoIterator<Item = (ValueId, Value)>,
    output: ValueId,
) -> Vec<f64> {
    let mut values = vec![None; graph.values().len()];
    for (id, value) in inputs {
        values[id.index()] = Some(value);
    }
    for node in graph.nodes() {
        let descs: Vec<_> = node.inputs.iter().map(|&id| graph.value(id).desc.clone()).collect();
        let read = |id: &ValueId| values[id.index()].as_ref().expect("bug: an input that nothing gave");
        let made = if node.op.is_view() {
            vec![read(&node.inputs[0]).clone()]
        } else {
            let inputs = node.inputs.iter().map(|id| read(id).input()).collect();
            outputs(&*node.op, &descs, inputs)
        };
        for (id, value) in node.outputs.iter().zip(made) {
            values[id.index()] = Some(value);
        }
    }
    match values.swap_remove(output.index()) {
        Some(Value::Real(values)) => values,
        _ => panic!("bug: a formula that makes no numbers"),
    }
}
