//! Runs graphs with the CPU twins, in f32 or f64, one node after the other and keeping every value.

use std::collections::BTreeSet;
use std::sync::Arc;

use tightfit::error::OpError;
use tightfit::graph::{Graph, Node, Phase};
use tightfit::ops::{Backward, Call, Input, Op, Output, Real, SavedActivations};
use tightfit::tensor::{DType, TensorDesc, ValueId};

/// What twins compute in.
pub trait Scalar: Real {
    /// Runs a twin.
    fn run(op: &dyn Op, call: &mut Call<'_, Self>);
}

impl Scalar for f32 {
    fn run(op: &dyn Op, call: &mut Call<'_, f32>) {
        op.run_f32(call);
    }
}

impl Scalar for f64 {
    fn run(op: &dyn Op, call: &mut Call<'_, f64>) {
        op.run_f64(call);
    }
}

/// The data of one value.
#[derive(Clone, Debug, PartialEq)]
pub enum Buf<T> {
    Real(Vec<T>),
    Int(Vec<u32>),
}

impl<T: Scalar> Buf<T> {
    pub fn from_f32(data: &[f32]) -> Self {
        Buf::Real(data.iter().map(|&x| T::from_f64(f64::from(x))).collect())
    }

    /// Contents that no result may have, so that an element left unwritten shows.
    fn poison(desc: &TensorDesc) -> Self {
        match desc.dtype {
            DType::U32 => Buf::Int(vec![0xDEAD_BEEF; desc.numel()]),
            _ => Buf::Real(vec![T::from_f64(f64::NAN); desc.numel()]),
        }
    }

    /// Zeros, as a state begins.
    pub fn zeros(desc: &TensorDesc) -> Self {
        match desc.dtype {
            DType::U8 => Buf::Int(vec![0; desc.numel().div_ceil(4)]),
            DType::U32 => Buf::Int(vec![0; desc.numel()]),
            DType::F32 | DType::F16 | DType::BF16 => Buf::Real(vec![T::ZERO; desc.numel()]),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Buf::Real(data) => data.len(),
            Buf::Int(data) => data.len(),
        }
    }

    pub fn reals(&self) -> &[T] {
        match self {
            Buf::Real(data) => data,
            Buf::Int(_) => panic!("an integer tensor where a real one is expected"),
        }
    }

    pub fn reals_mut(&mut self) -> &mut [T] {
        match self {
            Buf::Real(data) => data,
            Buf::Int(_) => panic!("an integer tensor where a real one is expected"),
        }
    }

    /// The real numbers as f64, or the integers as they are.
    pub fn to_f64(&self) -> Vec<f64> {
        match self {
            Buf::Real(data) => data.iter().map(|x| x.to_f64()).collect(),
            Buf::Int(data) => data.iter().map(|&x| f64::from(x)).collect(),
        }
    }

    /// The elements of a tensor: bytes that are four in a word each by itself.
    pub fn elements(&self, desc: &TensorDesc) -> Vec<f64> {
        match (self, desc.dtype) {
            (Buf::Int(_), DType::U8) => self.to_bytes()[..desc.numel()].iter().map(|&byte| f64::from(byte)).collect(),
            _ => self.to_f64(),
        }
    }

    /// Each number rounded to f32.
    pub fn round_to_f32(&self) -> Self {
        match self {
            Buf::Real(data) => Buf::Real(data.iter().map(|x| T::from_f64(f64::from(x.to_f64() as f32))).collect()),
            Buf::Int(data) => Buf::Int(data.clone()),
        }
    }

    /// Little-endian bytes as a device holds them.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Buf::Real(data) => data.iter().flat_map(|x| (x.to_f64() as f32).to_le_bytes()).collect(),
            Buf::Int(data) => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    fn output(&mut self) -> Output<'_, T> {
        match self {
            Buf::Real(data) => Output::Real(data),
            Buf::Int(data) => Output::Int(data),
        }
    }
}

/// One run of an op's twin: its outputs, then the new contents of the inputs that it mutates.
pub fn run_op<T: Scalar>(
    op: &dyn Op,
    input_descs: &[TensorDesc],
    output_descs: &[TensorDesc],
    inputs: &[&Buf<T>],
) -> (Vec<Buf<T>>, Vec<Buf<T>>) {
    if op.is_view() {
        return (vec![inputs[0].clone()], Vec::new());
    }
    let mut outputs: Vec<_> = output_descs.iter().map(Buf::poison).collect();
    let mut mutated: Vec<Buf<T>> = op.mutates().iter().map(|&i| inputs[i].clone()).collect();
    let mut call = Call {
        input_descs,
        output_descs,
        inputs: (0..inputs.len())
            .map(|i| match inputs[i] {
                _ if op.mutates().contains(&i) => Input::Mutated,
                Buf::Real(data) => Input::Real(data),
                Buf::Int(data) => Input::Int(data),
            })
            .collect(),
        outputs: outputs.iter_mut().map(Buf::output).collect(),
        mutated: mutated.iter_mut().map(Buf::output).collect(),
    };
    T::run(op, &mut call);
    drop(call);
    (outputs, mutated)
}

/// One op with its backward.
pub struct Mini {
    pub graph: Graph,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
    pub grad_outputs: Vec<Option<ValueId>>,
    pub grad_inputs: Vec<Option<ValueId>>,
}

impl Mini {
    /// `given`: which outputs get a gradient; `wanted`: which inputs need one.
    pub fn new(op: &Arc<dyn Op>, inputs: &[TensorDesc], given: &[bool], wanted: &[bool]) -> Result<Mini, OpError> {
        Mini::with_saved(op, inputs, given, wanted, SavedActivations::Full)
    }

    /// One for each form in which the op can keep forward values: the full one first, then the compressed one if it differs.
    pub fn variants(
        op: &Arc<dyn Op>,
        inputs: &[TensorDesc],
        given: &[bool],
        wanted: &[bool],
    ) -> Result<Vec<Mini>, OpError> {
        let full = Mini::new(op, inputs, given, wanted)?;
        let compressed = Mini::with_saved(op, inputs, given, wanted, SavedActivations::Compressed)?;
        let is_other = full.graph.hash() != compressed.graph.hash();
        Ok(std::iter::once(full).chain(is_other.then_some(compressed)).collect())
    }

    fn with_saved(
        op: &Arc<dyn Op>,
        inputs: &[TensorDesc],
        given: &[bool],
        wanted: &[bool],
        saved: SavedActivations,
    ) -> Result<Mini, OpError> {
        let op = &op.compressed().filter(|_| saved == SavedActivations::Compressed).unwrap_or_else(|| op.clone());
        let mut graph = Graph::new();
        let inputs: Vec<_> =
            inputs.iter().enumerate().map(|(i, d)| graph.input(format!("input{i}"), d.clone())).collect();
        let outputs = tightfit::ops::Builder::apply(&mut graph, op.clone(), &inputs)?;
        let mut grad_outputs = vec![None; outputs.len()];
        let mut grad_inputs = vec![None; inputs.len()];
        if wanted.contains(&true) && given.contains(&true) {
            graph.set_phase(Phase::Backward);
            for (i, &output) in outputs.iter().enumerate() {
                if given.get(i) == Some(&true) {
                    let desc = graph.value(output).desc.clone();
                    grad_outputs[i] = Some(graph.input(format!("grad_output{i}"), desc));
                }
            }
            let kept = BTreeSet::new();
            let forward = Backward {
                inputs: &inputs,
                outputs: &outputs,
                grad_outputs: &grad_outputs,
                wanted,
                saved,
                kept: &kept,
            };
            grad_inputs = op.backward(&mut graph, &forward)?;
        }
        Ok(Mini { graph, inputs, outputs, grad_outputs, grad_inputs })
    }

    pub fn descs(&self, ids: &[ValueId]) -> Vec<TensorDesc> {
        ids.iter().map(|&id| self.graph.value(id).desc.clone()).collect()
    }

    /// Runs all nodes; returns every value. `round` makes each value an f32 before the next node reads it.
    pub fn run<T: Scalar>(
        &self,
        inputs: &[Buf<T>],
        grad_outputs: &[Option<Buf<T>>],
        round: bool,
    ) -> Vec<Option<Buf<T>>> {
        let mut values = self.sources(inputs, grad_outputs);
        for node in self.graph.nodes() {
            let (outputs, mutated) = self.run_node(node, &values);
            for (&id, data) in node.outputs.iter().zip(outputs) {
                values[id.index()] = Some(if round { data.round_to_f32() } else { data });
            }
            for (&i, data) in node.op.mutates().iter().zip(mutated) {
                values[node.inputs[i].index()] = Some(if round { data.round_to_f32() } else { data });
            }
        }
        values
    }

    /// The values that exist before any node runs.
    pub fn sources<T: Scalar>(&self, inputs: &[Buf<T>], grad_outputs: &[Option<Buf<T>>]) -> Vec<Option<Buf<T>>> {
        let mut values = vec![None; self.graph.values().len()];
        for (id, data) in self.inputs.iter().zip(inputs) {
            values[id.index()] = Some(data.clone());
        }
        for (id, data) in self.grad_outputs.iter().zip(grad_outputs) {
            if let Some(id) = id {
                values[id.index()].clone_from(data);
            }
        }
        values
    }

    /// The outputs of one node and its mutated inputs.
    pub fn run_node<T: Scalar>(&self, node: &Node, values: &[Option<Buf<T>>]) -> (Vec<Buf<T>>, Vec<Buf<T>>) {
        let inputs: Vec<_> = node
            .inputs
            .iter()
            .map(|id| values[id.index()].as_ref().expect("a value is read before it is made"))
            .collect();
        run_op(&*node.op, &self.descs(&node.inputs), &self.descs(&node.outputs), &inputs)
    }
}
