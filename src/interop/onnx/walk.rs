//! How a file's graph becomes a model's: its nodes one after the other, values that are known folded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::call::Call;
use super::constant::{Constant, Data, MAX_FILLED};
use super::fold::fold;
use super::ir::{Attribute, Graph, Initializer, Node, Wrong, shown};
use super::operators;
use super::proto::element;
use crate::error::GraphError;
use crate::nn::{Input, Tensor};
use crate::tensor::{DType, TensorDesc, ValueId};

/// Elements of all folded tensors of a graph at most.
const MAX_FOLDED_TOGETHER: usize = 1 << 25;

/// What the elements of a tensor in a model mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Number,
    /// 1 where something holds, 0 elsewhere.
    Truth,
    /// An index, of 32 bits.
    Index,
}

/// A tensor in a model, with the shape that the file gives it: without axes where it is one number.
#[derive(Clone, Debug)]
pub(super) struct Dense {
    pub(super) id: ValueId,
    pub(super) shape: Vec<usize>,
    pub(super) kind: Kind,
}

/// What a name of the file stands for.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Known before the model runs.
    Constant(Arc<Constant>),
    /// An initializer, which becomes a parameter where it is used.
    Weight(usize),
    /// Made by the model.
    Tensor(Dense),
    /// `source` with its axes in another order, which is made where it is needed: time first and batch first change places without
    /// end in files, and mostly in pairs.
    Permuted { source: Dense, axes: Vec<usize> },
}

/// What is found out about a graph while it is walked for the first times.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Why it cannot be a model.
    pub(super) wrong: Option<Wrong>,
    /// Constants that became tensors, by their names in the model.
    pub(super) constants: BTreeMap<String, Arc<Constant>>,
    /// Which weights became tensors.
    pub(super) weights: BTreeMap<String, usize>,
    /// Outputs that were left out.
    pub(super) left_out: Vec<String>,
}

/// The state of a walk.
#[derive(Debug)]
pub(super) struct Walk<'g> {
    pub(super) graph: &'g Graph,
    values: Vec<Option<Value>>,
    /// Tensors that weights and constants became, by the numbers of their values.
    pub(super) made: BTreeMap<usize, Dense>,
    /// Samples of this graph.
    pub(super) batch: usize,
    folded: usize,
    filled: usize,
    pub(super) record: Option<&'g Mutex<Record>>,
}

/// The model's function: what the graph makes of the samples.
pub(super) fn forward<'a>(graph: &Graph, x: Tensor<'a>, record: Option<&Mutex<Record>>) -> Tensor<'a> {
    let failed_before = record.and_then(|record| {
        record.lock().unwrap_or_else(PoisonError::into_inner).wrong.as_ref().map(|w| w.reason.clone())
    });
    let refuse = |place: String, reason: String| {
        let error = GraphError::Layer { layer: place, reason };
        x.with_ops("onnx", |_, _| Err(error))
    };
    if let Some(reason) = failed_before {
        return refuse(String::new(), reason);
    }
    let mut walk = Walk {
        graph,
        values: vec![None; graph.names.len()],
        made: BTreeMap::new(),
        batch: x.extent(0),
        folded: 0,
        filled: 0,
        record,
    };
    match walk.run(x) {
        Ok(output) => output,
        Err(Some(wrong)) => {
            let refused = refuse(wrong.place.clone(), wrong.reason.clone());
            walk.note(|record| record.wrong = Some(wrong));
            refused
        }
        // The model has the error already.
        Err(None) => x,
    }
}

impl<'g> Walk<'g> {
    pub(super) fn note(&self, note: impl FnOnce(&mut Record)) {
        if let Some(record) = self.record {
            note(&mut record.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn run<'a>(&mut self, x: Tensor<'a>) -> Result<Tensor<'a>, Option<Wrong>> {
        let graph = self.graph;
        for (&number, initializer) in &graph.initializers {
            self.values[number] = Some(match initializer {
                Initializer::Weight(_) => Value::Weight(number),
                Initializer::Constant(constant) => Value::Constant(constant.clone()),
            });
        }
        self.add_inputs(x)?;
        for node in &graph.nodes {
            let outputs = match self.known(node) {
                Some(folded) => folded.map_err(|reason| Some(Wrong { place: node.place(), reason }))?,
                None => self.apply(node, x)?,
            };
            for (output, value) in node.outputs.iter().zip(outputs) {
                if let Some(number) = output {
                    self.values[*number] = Some(value);
                }
            }
        }
        self.outputs(x)
    }

    /// The first input is the model's, the others are inputs by name.
    fn add_inputs(&mut self, x: Tensor<'_>) -> Result<(), Option<Wrong>> {
        let graph = self.graph;
        for (index, input) in graph.inputs.iter().enumerate() {
            let name = &graph.names[input.value];
            let kind = match input.kind {
                element::INT32 | element::INT64 | element::UINT32 | element::UINT64 => Kind::Index,
                element::BOOL => Kind::Truth,
                _ => Kind::Number,
            };
            let dense = if index == 0 {
                Dense { id: x.value(), shape: x.shape().to_vec(), kind }
            } else {
                let first = &graph.inputs[0];
                let extents = input.shape.iter().enumerate().map(|(axis, extent)| match *extent {
                    // The batch goes by the name, or the number, that the first input's has.
                    None if axis == 0 => Some(self.batch),
                    Some(extent) if axis == 0 && Some(extent) == graph.batch && first.batch_name.is_none() => {
                        Some(self.batch)
                    }
                    extent => extent,
                });
                let Some(shape) = extents.collect::<Option<Vec<usize>>>() else {
                    let reason = "an axis besides the batch has no fixed extent: export the model with a fixed size";
                    return Err(Some(Wrong { place: format!("input `{}`", shown(name)), reason: reason.to_owned() }));
                };
                if super::constant::elements(&shape).is_none_or(|count| count == 0 || count > u32::MAX as usize) {
                    let reason = "it has more elements than can be counted, or none";
                    return Err(Some(Wrong { place: format!("input `{}`", shown(name)), reason: reason.to_owned() }));
                }
                let dtype = if kind == Kind::Index { DType::U32 } else { DType::F32 };
                let physical = if shape.is_empty() { vec![1] } else { shape.clone() };
                let mut made = None;
                let _ = x.with_ops(name, |scope, _| {
                    let id = scope.input(name, &TensorDesc { shape: physical.into(), dtype })?;
                    made = Some(id);
                    Ok(id)
                });
                Dense { id: made.ok_or(None)?, shape, kind }
            };
            self.values[input.value] = Some(Value::Tensor(dense));
        }
        Ok(())
    }

    /// What a node makes, where that is known before the model runs.
    fn known(&mut self, node: &Node) -> Option<Result<Vec<Value>, String>> {
        if let "Shape" | "Size" = &node.operator[..] {
            let shape = self.shape(node.input(0)?)?;
            let constant = if node.operator == "Size" {
                Constant::ints([], vec![shape.iter().product::<usize>() as i64])
            } else {
                let rank = shape.len() as i64;
                let from_end = |index: i64| if index < 0 { index.saturating_add(rank) } else { index };
                let place = |index: i64| from_end(index).clamp(0, rank) as usize;
                let (start, end) = (place(node.int("start").unwrap_or(0)), place(node.int("end").unwrap_or(rank)));
                let extents: Vec<i64> = shape[start..end.max(start)].iter().map(|&extent| extent as i64).collect();
                Constant::ints([extents.len()], extents)
            };
            return Some(Ok(vec![Value::Constant(Arc::new(constant))]));
        }
        // As large as the file has it.
        if let ("Constant", true, Some(Attribute::Tensor(constant))) =
            (&node.operator[..], node.domain.is_empty(), node.attributes.get("value"))
        {
            return Some(Ok(vec![Value::Constant(constant.clone())]));
        }
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            inputs.push(match input {
                None => None,
                Some(number) => match self.values[*number].as_ref()? {
                    Value::Constant(constant) => Some(constant.clone()),
                    _ => return None,
                },
            });
        }
        let folded = fold(node, &inputs)?;
        Some(folded.and_then(|constants| {
            for constant in &constants {
                match constant.data {
                    Data::Filled(_, count) => self.filled += count,
                    _ => self.folded += constant.data.len(),
                }
            }
            if self.folded > MAX_FOLDED_TOGETHER || self.filled > MAX_FILLED {
                return Err("what is computed before the model runs becomes too large".to_owned());
            }
            Ok(constants.into_iter().map(|constant| Value::Constant(Arc::new(constant))).collect())
        }))
    }

    /// The shape of a value.
    pub(super) fn shape(&self, number: usize) -> Option<Vec<usize>> {
        Some(match self.values[number].as_ref()? {
            Value::Constant(constant) => constant.shape.clone(),
            Value::Weight(weight) => self.weight_shape(*weight),
            Value::Tensor(dense) => dense.shape.clone(),
            Value::Permuted { source, axes } => axes.iter().map(|&axis| source.shape[axis]).collect(),
        })
    }

    pub(super) fn weight_shape(&self, number: usize) -> Vec<usize> {
        match &self.graph.initializers[&number] {
            Initializer::Weight(weight) => weight.shape.clone(),
            Initializer::Constant(constant) => constant.shape.clone(),
        }
    }

    pub(super) fn value(&self, number: usize) -> Option<&Value> {
        self.values[number].as_ref()
    }

    /// Adds what a node computes to the model.
    fn apply(&mut self, node: &Node, x: Tensor<'_>) -> Result<Vec<Value>, Option<Wrong>> {
        let mut outputs = Err(None);
        let _ = x.with_ops(&node.name, |scope, _| {
            let mut call = Call { walk: self, node, scope };
            match operators::run(&mut call) {
                Ok(values) => {
                    let first = values.iter().find_map(|value| match value {
                        Value::Tensor(dense) | Value::Permuted { source: dense, .. } => Some(dense.id),
                        _ => None,
                    });
                    outputs = Ok(values);
                    Ok(first.unwrap_or(x.value()))
                }
                Err(error) => {
                    let reason = match &error {
                        GraphError::Layer { reason, .. } => reason.clone(),
                        GraphError::Op { source, .. } => source.to_string(),
                        other => other.to_string(),
                    };
                    outputs = Err(Some(Wrong { place: node.place(), reason }));
                    Err(error)
                }
            }
        });
        outputs
    }

    /// The first output is the model's. Others are outputs by name, where they have the batch in front.
    fn outputs<'a>(&mut self, x: Tensor<'a>) -> Result<Tensor<'a>, Option<Wrong>> {
        let graph = self.graph;
        let mut first = None;
        for (index, &number) in graph.outputs.iter().enumerate() {
            let name = graph.names[number].clone();
            let place = || format!("output `{}`", shown(&name));
            let shape = self.shape(number).unwrap_or_default();
            if shape.first() != Some(&self.batch) && !graph.any_outputs {
                if index == 0 {
                    let shape = crate::tensor::Shape::from(&shape[..]);
                    let reason = format!(
                        "its shape is {shape} for a batch of {}: the batch must be its first axis; export the model with a free batch axis",
                        self.batch
                    );
                    return Err(Some(Wrong { place: place(), reason }));
                }
                self.note(|record| record.left_out.push(name.clone()));
                continue;
            }
            let mut reason = None;
            let node = Node {
                name: name.clone(),
                operator: "output".to_owned(),
                domain: String::new(),
                version: 0,
                inputs: vec![Some(number)],
                outputs: Vec::new(),
                attributes: BTreeMap::new(),
            };
            let tensor = x.with_ops(&name, |scope, _| {
                let mut call = Call { walk: self, node: &node, scope };
                call.tensor(0).map(|dense| dense.id).inspect_err(|error| reason = Some(error.to_string()))
            });
            if let Some(reason) = reason {
                return Err(Some(Wrong { place: place(), reason }));
            }
            if index == 0 {
                first = Some(tensor);
            } else {
                tensor.output(&name);
            }
        }
        first.ok_or_else(|| Some(Wrong { place: "the graph".to_owned(), reason: "it has no outputs".to_owned() }))
    }
}

/// What a sample of the first input is.
pub(super) fn sample(graph: &Graph, given: Option<&[usize]>) -> Result<Input, Wrong> {
    let Some(first) = graph.inputs.first() else {
        return super::ir::wrong("the graph", "it has no inputs");
    };
    let name = shown(&graph.names[first.value]);
    let place = format!("input `{name}`");
    let [_, sample @ ..] = &first.shape[..] else {
        return super::ir::wrong(place, "it has no batch axis");
    };
    let shape: Vec<usize> = match given {
        Some(given) if given.len() == sample.len() => given.to_vec(),
        Some(given) => {
            return super::ir::wrong(
                place,
                format!("samples have {} axes, not the {} that were given", sample.len(), given.len()),
            );
        }
        None => {
            let mut shape = Vec::new();
            for (axis, extent) in sample.iter().enumerate() {
                match extent {
                    Some(extent) => shape.push(*extent),
                    None => {
                        let axis = axis + 1;
                        return super::ir::wrong(
                            place,
                            format!(
                                "its axis {axis} is free, and only that of the batch may be: give the shape of a sample"
                            ),
                        );
                    }
                }
            }
            shape
        }
    };
    match first.kind {
        // Bytes are numbers from 0 to 255.
        element::FLOAT | element::DOUBLE | element::FLOAT16 | element::BFLOAT16 | element::UINT8 => {
            Ok(Input::values(shape))
        }
        element::INT32 | element::INT64 | element::UINT32 | element::UINT64 => Ok(Input::tokens(shape)),
        other => super::ir::wrong(
            place,
            format!(
                "it is of {}: models take floats, or whole numbers of 32 or 64 bits as indices",
                element::name(other)
            ),
        ),
    }
}
