//! A file's graph, checked: functions in line, nodes in an order in which they can run, values by number.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use super::constant::{Constant, Data, decode};
use super::functions::inline;
use super::proto::{self, Extent, element};

/// Nodes of a graph at most, functions in line.
pub(super) const MAX_NODES: usize = 1 << 17;

/// Inputs besides initializers.
const MAX_INPUTS: usize = 1 << 10;

/// A graph.
#[derive(Debug)]
pub(super) struct Graph {
    /// Inputs that are no initializers.
    pub(super) inputs: Vec<Input>,
    /// Numbers of the values that come out.
    pub(super) outputs: Vec<usize>,
    pub(super) nodes: Vec<Node>,
    /// What initializers are, by the numbers of their values.
    pub(super) initializers: BTreeMap<usize, Initializer>,
    /// Names of all values.
    pub(super) names: Vec<String>,
    /// Samples that the first input has in the file, where that is a number.
    pub(super) batch: Option<usize>,
    /// Values of all weights, until they are taken.
    pub(super) weights: BTreeMap<usize, Constant>,
    /// Whether outputs may be without a batch axis: where single nodes are tested.
    pub(super) any_outputs: bool,
}

/// What a graph takes.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) value: usize,
    pub(super) kind: i32,
    /// Extents; `None` where they are free.
    pub(super) shape: Vec<Option<usize>>,
    /// Name of the first extent, where it is free.
    pub(super) batch_name: Option<String>,
}

/// A tensor that a file has values of.
#[derive(Clone, Debug)]
pub(super) enum Initializer {
    /// Numbers that may be trained.
    Weight(Weight),
    /// Whole numbers, and numbers without an axis.
    Constant(Arc<Constant>),
}

/// What is known of a weight when a graph is made.
#[derive(Clone, Debug)]
pub(super) struct Weight {
    pub(super) shape: Vec<usize>,
    /// Its values, where they are few: they may be settings of a node.
    pub(super) known: Option<Arc<Constant>>,
    pub(super) is_finite: bool,
}

/// Values of a weight that are kept with the graph at most.
const MAX_KNOWN: usize = 1 << 14;

/// One use of an operator.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) operator: String,
    pub(super) domain: String,
    /// Version of the operators of its domain.
    pub(super) version: i64,
    pub(super) inputs: Vec<Option<usize>>,
    pub(super) outputs: Vec<Option<usize>>,
    pub(super) attributes: BTreeMap<String, Attribute>,
}

/// A setting of a node.
#[derive(Clone, Debug)]
pub(super) enum Attribute {
    Int(i64),
    Float(f32),
    Text(String),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Texts(Vec<String>),
    Tensor(Arc<Constant>),
    /// A graph, or another that no operator here has.
    Other,
}

impl Node {
    /// How messages call it.
    pub(super) fn place(&self) -> String {
        let domain = if self.domain.is_empty() { String::new() } else { format!("{}.", self.domain) };
        let text = format!("node `{}` ({domain}{}, opset {})", self.name, self.operator, self.version);
        text.chars().take(200).flat_map(char::escape_debug).collect::<String>().replace("\\'", "'")
    }

    pub(super) fn input(&self, index: usize) -> Option<usize> {
        self.inputs.get(index).copied().flatten()
    }

    pub(super) fn int(&self, name: &str) -> Option<i64> {
        if let Some(Attribute::Int(value)) = self.attributes.get(name) { Some(*value) } else { None }
    }

    pub(super) fn float(&self, name: &str) -> Option<f32> {
        if let Some(Attribute::Float(value)) = self.attributes.get(name) { Some(*value) } else { None }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        if let Some(Attribute::Text(value)) = self.attributes.get(name) { Some(value) } else { None }
    }

    pub(super) fn texts(&self, name: &str) -> Option<&[String]> {
        if let Some(Attribute::Texts(value)) = self.attributes.get(name) { Some(value) } else { None }
    }

    pub(super) fn ints(&self, name: &str) -> Option<&[i64]> {
        if let Some(Attribute::Ints(value)) = self.attributes.get(name) { Some(value) } else { None }
    }
}

/// Where something is wrong, and what.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) place: String,
    pub(super) reason: String,
}

pub(super) fn wrong<T>(place: impl Into<String>, reason: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { place: place.into(), reason: reason.into() })
}

/// Names are shown without what could garble a line.
pub(super) fn shown(name: &str) -> String {
    name.chars().take(100).flat_map(char::escape_debug).collect()
}

/// Numbers of values by name.
#[derive(Default)]
struct Values {
    names: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Values {
    fn number(&mut self, name: &str) -> usize {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }
}

/// Checks a file's graph.
pub(super) fn check(model: proto::Model, folder: Option<&Path>) -> Result<Graph, Wrong> {
    let Some(graph) = model.graph else { return wrong("the file", "it has no graph: is it an ONNX model?") };
    let nodes = inline(graph.node, &model.opset_import, &model.functions)?;
    if !graph.sparse_initializer.is_empty() {
        return wrong("the graph", "sparse initializers are not read: write them as dense ones");
    }
    let mut values = Values::default();
    let mut initializers = BTreeMap::new();
    let mut weights = BTreeMap::new();
    for tensor in &graph.initializer {
        let name = tensor.name.as_deref().unwrap_or_default();
        let place = || format!("initializer `{}`", shown(name));
        let constant = decode(tensor, folder).or_else(|reason| wrong(place(), reason))?;
        let is_weight = matches!(constant.data, Data::Floats(_)) && !constant.shape.is_empty();
        let number = values.number(name);
        let initializer = if is_weight {
            let is_finite = constant.to_floats().iter().all(|value| value.is_finite());
            let known = (constant.data.len() <= MAX_KNOWN).then(|| Arc::new(constant.clone()));
            let weight = Weight { shape: constant.shape.clone(), known, is_finite };
            weights.insert(number, constant);
            Initializer::Weight(weight)
        } else {
            Initializer::Constant(Arc::new(constant))
        };
        if initializers.insert(number, initializer).is_some() {
            return wrong(place(), "the name is taken by another initializer");
        }
    }
    let mut inputs = Vec::new();
    for info in &graph.input {
        let value = values.number(info.name.as_deref().unwrap_or_default());
        if !initializers.contains_key(&value) {
            inputs.push(input(info, value)?);
        }
        if inputs.len() > MAX_INPUTS {
            return wrong("the graph", format!("it has more than {MAX_INPUTS} inputs"));
        }
    }
    let nodes = nodes.into_iter().enumerate().map(|(index, (node, version))| {
        let operator = node.op_type.unwrap_or_default();
        let name = node.name.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("{operator}_{index}"));
        let mut number = |name: &String| (!name.is_empty()).then(|| values.number(name));
        let mut checked = Node {
            name,
            operator,
            domain: node.domain.filter(|domain| domain != "ai.onnx").unwrap_or_default(),
            version,
            inputs: node.input.iter().map(&mut number).collect(),
            outputs: node.output.iter().map(&mut number).collect(),
            attributes: BTreeMap::new(),
        };
        for attribute in node.attribute {
            let name = attribute.name.clone().unwrap_or_default();
            let value = setting(attribute, folder).or_else(|reason| {
                wrong(checked.place(), format!("its attribute `{}` cannot be read: {reason}", shown(&name)))
            })?;
            checked.attributes.insert(name, value);
        }
        Ok(checked)
    });
    let nodes = nodes.collect::<Result<Vec<_>, Wrong>>()?;
    let outputs = graph.output.iter().map(|info| values.number(info.name.as_deref().unwrap_or_default())).collect();
    let batch = inputs.first().and_then(|input: &Input| *input.shape.first()?);
    let mut graph = Graph {
        inputs,
        outputs,
        nodes: Vec::new(),
        initializers,
        names: values.names,
        batch,
        weights,
        any_outputs: false,
    };
    graph.nodes = sorted(&graph, nodes)?;
    Ok(graph)
}

fn input(info: &proto::ValueInfo, value: usize) -> Result<Input, Wrong> {
    let name = shown(info.name.as_deref().unwrap_or_default());
    let place = format!("input `{name}`");
    let Some(tensor) = info.r#type.as_ref().and_then(|of| of.tensor_type.as_ref()) else {
        return wrong(place, "it is no tensor");
    };
    let Some(shape) = &tensor.shape else {
        return wrong(place, "the file does not say how many axes it has: export it with shapes");
    };
    let mut extents = Vec::new();
    for dimension in &shape.dim {
        extents.push(match &dimension.value {
            Some(Extent::Value(value)) => match usize::try_from(*value) {
                Ok(extent) if extent > 0 => Some(extent),
                // As some exporters write what is free.
                _ => None,
            },
            _ => None,
        });
    }
    let batch_name = match shape.dim.first().and_then(|dimension| dimension.value.as_ref()) {
        Some(Extent::Param(name)) if !name.is_empty() => Some(name.clone()),
        _ => None,
    };
    Ok(Input { value, kind: tensor.elem_type.unwrap_or(0), shape: extents, batch_name })
}

fn setting(attribute: proto::Attribute, folder: Option<&Path>) -> Result<Attribute, String> {
    use proto::AttributeType as T;

    let kind = attribute.r#type.and_then(|kind| T::try_from(kind).ok()).unwrap_or(T::Undefined);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| "it is no text".to_owned());
    Ok(match kind {
        T::Float => Attribute::Float(attribute.f.unwrap_or(0.0)),
        T::Int => Attribute::Int(attribute.i.unwrap_or(0)),
        T::String => Attribute::Text(text(attribute.s.unwrap_or_default())?),
        T::Floats => Attribute::Floats(attribute.floats),
        T::Ints => Attribute::Ints(attribute.ints),
        T::Tensor => {
            let tensor = attribute.t.ok_or_else(|| "it has no tensor".to_owned())?;
            if tensor.data_type == Some(element::STRING) {
                return Ok(Attribute::Other);
            }
            Attribute::Tensor(Arc::new(decode(&tensor, folder)?))
        }
        T::Strings => Attribute::Texts(attribute.strings.into_iter().map(text).collect::<Result<_, _>>()?),
        T::Graph => Attribute::Other,
        T::Undefined => match attribute {
            proto::Attribute { f: Some(value), .. } => Attribute::Float(value),
            proto::Attribute { i: Some(value), .. } => Attribute::Int(value),
            proto::Attribute { s: Some(value), .. } => Attribute::Text(text(value)?),
            proto::Attribute { floats, .. } if !floats.is_empty() => Attribute::Floats(floats),
            proto::Attribute { ints, .. } if !ints.is_empty() => Attribute::Ints(ints),
            _ => Attribute::Other,
        },
    })
}

/// The nodes that the outputs need, each after those that make its inputs.
fn sorted(graph: &Graph, nodes: Vec<Node>) -> Result<Vec<Node>, Wrong> {
    let mut makers: HashMap<usize, usize> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        for &output in node.outputs.iter().flatten() {
            let is_taken = graph.initializers.contains_key(&output)
                || graph.inputs.iter().any(|input| input.value == output)
                || makers.insert(output, index).is_some();
            if is_taken {
                let name = shown(&graph.names[output]);
                return wrong(node.place(), format!("its output `{name}` is made elsewhere, too"));
            }
        }
    }
    let is_given = |value: &usize| {
        graph.initializers.contains_key(value) || graph.inputs.iter().any(|input| input.value == *value)
    };
    // Depth first, without recursion: a node is put down when all that it needs has been.
    let mut state = vec![0u8; nodes.len()];
    let mut order = Vec::with_capacity(nodes.len());
    let mut open: Vec<usize> = Vec::new();
    for output in &graph.outputs {
        match makers.get(output) {
            Some(&maker) => open.push(maker),
            None if is_given(output) => {}
            None => return wrong(format!("output `{}`", shown(&graph.names[*output])), "no node makes it"),
        }
    }
    open.reverse();
    while let Some(&index) = open.last() {
        match state[index] {
            0 => {
                state[index] = 1;
                let node = &nodes[index];
                for input in node.inputs.iter().rev().flatten() {
                    match makers.get(input) {
                        Some(&maker) if state[maker] == 0 => open.push(maker),
                        Some(&maker) if state[maker] == 1 => {
                            return wrong(
                                node.place(),
                                "it needs what it makes itself: the graph goes round in a circle",
                            );
                        }
                        Some(_) => {}
                        None if is_given(input) => {}
                        None => {
                            let name = shown(&graph.names[*input]);
                            return wrong(node.place(), format!("it reads `{name}`, which no node makes"));
                        }
                    }
                }
            }
            1 => {
                state[index] = 2;
                order.push(index);
                open.pop();
            }
            _ => {
                open.pop();
            }
        }
    }
    let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    // In the order of the file where that is one, which most are: layers are listed as they were written.
    let mut by_file = order.clone();
    by_file.sort_unstable();
    let place: HashMap<usize, usize> = by_file.iter().enumerate().map(|(place, &index)| (index, place)).collect();
    let in_order = by_file.iter().all(|&index| {
        let node = nodes[index].as_ref().expect("bug: each node is there once");
        node.inputs.iter().flatten().all(|input| makers.get(input).is_none_or(|maker| place[maker] < place[&index]))
    });
    let order = if in_order { by_file } else { order };
    Ok(order.into_iter().map(|index| nodes[index].take().expect("bug: each node is there once")).collect())
}
