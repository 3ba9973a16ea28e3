//! Models as files in ONNX: each op says what it is there (`ops::onnx`), and this makes a graph of that.

mod initializers;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use self::initializers::Initializers;
use super::constant::Constant;
use crate::error::ImportError;
use crate::files;
use crate::interop::Weights;
use crate::nn::{Built, Mode, Model};
use crate::ops::onnx::{self, Call, Values};
use crate::tensor::{DType, TensorDesc, ValueId};

/// The first and the last version of the operators that can be written.
const OPSETS: std::ops::RangeInclusive<i64> = 17..=22;

/// How a model is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether batch normalizations right after convolutions become a part of these (no by default): less to compute, but what is read again
    /// cannot be trained as before.
    pub fold_batch_norm: bool,
    /// Version of the operators, 17 to 22 (17 by default, which most runtimes know).
    pub opset: i64,
}

impl Default for Options {
    fn default() -> Self {
        Options { fold_batch_norm: false, opset: 17 }
    }
}

/// Writes a model for inference, with a free batch axis: an input and an output of the names `input` and `output`, others by their own
/// names. Indices are of 64 bits, bytes of a [normalized](Model::normalized) model are uint8.
///
/// # Errors
/// Where weights do not fit the model, it has an op that is not there in ONNX, or the file cannot be written.
pub fn write(path: &Path, model: &Model, weights: &Weights, options: Options) -> Result<(), ImportError> {
    let refused = |place: String, reason: String| ImportError::Unsupported { path: path.to_owned(), place, reason };
    if !OPSETS.contains(&options.opset) {
        let reason = format!("opset {} is not there: choose one of 17 to 22", options.opset);
        return Err(refused("the options".to_owned(), reason));
    }
    weights.check(model)?;
    let build = |samples| model.build(samples, Mode::Evaluate);
    let built = [build(onnx::SAMPLES[0])?, build(onnx::SAMPLES[1])?];
    let mut written = Written::of(&built, weights, options.opset).map_err(|(place, reason)| refused(place, reason))?;
    written.tensors.fold(&mut written.graph.nodes);
    if options.fold_batch_norm {
        written.tensors.fold_batch_norm(&mut written.graph.nodes);
    }
    let bytes = write::encode(model.name(), &written, options.opset)
        .map_err(|reason| refused("the file".to_owned(), reason))?;
    files::write_whole(path, &bytes)?;
    Ok(())
}

/// An input or output of a file.
#[derive(Debug)]
struct Tensor {
    name: String,
    dtype: DType,
    /// `None` for what depends on the number of samples: the number itself where the flag is set.
    extents: Vec<Result<usize, bool>>,
}

/// A graph that is to be written.
#[derive(Debug)]
struct Written {
    graph: onnx::Graph,
    tensors: Initializers,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

fn tensor(name: &str, built: &[Built; 2], value: ValueId) -> Tensor {
    let [a, b] = [0, 1].map(|i| &built[i].graph.value(value).desc);
    let extents = a.shape.iter().zip(b.shape.iter());
    let extents = extents.map(|(&a, &b)| if a == b { Ok(a) } else { Err([a, b] == onnx::SAMPLES) });
    Tensor { name: name.to_owned(), dtype: a.dtype, extents: extents.collect() }
}

impl Written {
    /// The nodes that outputs need. The graph is there for two numbers of samples, so that what depends on them is known.
    fn of(built: &[Built; 2], weights: &Weights, opset: i64) -> Result<Self, (String, String)> {
        let graph = &built[0].graph;
        let mut outputs = vec![("output".to_owned(), built[0].output)];
        outputs.extend(built[0].outputs.iter().cloned());
        let mut needed: BTreeSet<ValueId> = outputs.iter().map(|(_, value)| *value).collect();
        for node in graph.nodes().iter().rev() {
            if node.outputs.iter().any(|output| needed.contains(output)) {
                needed.extend(&node.inputs);
            }
        }
        let mut names: BTreeMap<ValueId, String> = BTreeMap::new();
        let mut tensors = Initializers::default();
        for parameter in built[0].parameters.iter().chain(&built[0].buffers) {
            let weight = weights.get(&parameter.name).expect("bug: weights were checked");
            names.insert(parameter.value, parameter.name.clone());
            tensors.insert(parameter.name.clone(), Constant::floats(weight.shape().to_vec(), weight.values().to_vec()));
        }
        if let Some(state) = built[0].states.iter().find(|state| needed.contains(&state.value)) {
            return Err((
                format!("layer `{}`", state.name),
                "what is carried from one batch to the next has no form in ONNX: write the model without it".to_owned(),
            ));
        }
        let mut inputs = Vec::new();
        for value in graph.value_ids().filter(|value| needed.contains(value)) {
            if graph.value(value).producer.is_none() && !names.contains_key(&value) {
                let name = graph.value(value).name.clone();
                inputs.push(tensor(&name, built, value));
                names.insert(value, name);
            }
        }
        let samples = inputs.iter().find(|input| input.extents.first() == Some(&Err(true)));
        let samples = samples.map(|input| input.name.clone());
        let mut written = onnx::Graph { opset, samples, ..onnx::Graph::default() };
        for (index, node) in graph.nodes().iter().enumerate() {
            if !node.outputs.iter().any(|output| needed.contains(output)) {
                continue;
            }
            let descs = |values: &[ValueId], i: usize| -> Vec<TensorDesc> {
                values.iter().map(|&value| built[i].graph.value(value).desc.clone()).collect()
            };
            let other = &built[1].graph.nodes()[index];
            let read: Vec<String> = node.inputs.iter().map(|input| names[input].clone()).collect();
            let used: Vec<bool> = node.outputs.iter().map(|output| needed.contains(output)).collect();
            let inputs_of = [descs(&node.inputs, 0), descs(&other.inputs, 1)];
            let outputs_of = [descs(&node.outputs, 0), descs(&other.outputs, 1)];
            let [inputs_of, outputs_of] = [&inputs_of, &outputs_of].map(|[a, b]| [&a[..], &b[..]]);
            let mut call = Call::new(&mut written, &node.name, &read, inputs_of, outputs_of, &used);
            let refused = || {
                let reason = format!("`{}` has no form in ONNX with these settings and shapes", node.op.name());
                (format!("layer `{}`", node.name), reason)
            };
            let made = node.op.onnx(&mut call).ok_or_else(refused)?;
            for (index, output) in node.outputs.iter().enumerate().filter(|(index, _)| used[*index]) {
                let name = made.get(index).filter(|name| !name.is_empty()).ok_or_else(refused)?;
                names.insert(*output, name.clone());
            }
        }
        for constant in std::mem::take(&mut written.constants) {
            let values = match constant.values {
                Values::Floats(values) => Constant::floats(constant.shape, values),
                Values::Ints(values) => Constant::ints(constant.shape, values),
            };
            tensors.insert(constant.name, values);
        }
        let mut described = Vec::new();
        for (name, value) in outputs {
            written.nodes.push(onnx::Node {
                operator: "Identity",
                inputs: vec![names[&value].clone()],
                outputs: vec![name.clone()],
                attributes: Vec::new(),
            });
            if tensors.contains(&name) || inputs.iter().any(|input| input.name == name) {
                return Err((format!("output `{name}`"), "its name is that of another tensor: use another".to_owned()));
            }
            described.push(tensor(&name, built, value));
        }
        let mut written = Written { graph: written, tensors, inputs, outputs: described };
        written.name_outputs();
        Ok(written)
    }

    /// Has the last node make an output under its name, where nothing else reads it, in place of another node that hands it on.
    fn name_outputs(&mut self) {
        for output in 0..self.outputs.len() {
            let at = self.graph.nodes.len() - self.outputs.len() + output;
            let (inner, name) = (self.graph.nodes[at].inputs[0].clone(), self.outputs[output].name.clone());
            let readers = self.graph.nodes.iter().filter(|node| node.inputs.contains(&inner)).count();
            let maker = self.graph.nodes.iter_mut().find(|node| node.outputs.contains(&inner));
            if let (Some(maker), 1) = (maker, readers) {
                maker.outputs.iter_mut().filter(|made| **made == inner).for_each(|made| made.clone_from(&name));
                // Marked as one that goes.
                self.graph.nodes[at].outputs.clear();
            }
        }
        self.graph.nodes.retain(|node| !node.outputs.is_empty());
    }
}
