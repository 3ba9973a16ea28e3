//! Known tensors of a file that is written, and what is computed of them before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::interop::onnx::constant::{Constant, MAX_FOLDED};
use crate::interop::onnx::fold::fold;
use crate::interop::onnx::ir;
use crate::ops::onnx::{Attribute, Node};

/// What only moves weights about, and may be done before.
const MOVES: [&str; 6] = ["Concat", "Reshape", "Slice", "Split", "Transpose", "Unsqueeze"];

/// Known tensors by name.
#[derive(Debug, Default)]
pub(in crate::interop::onnx) struct Initializers(BTreeMap<String, Arc<Constant>>);

impl Initializers {
    pub(super) fn insert(&mut self, name: String, constant: Constant) {
        self.0.insert(name, Arc::new(constant));
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Those that nodes read.
    pub(super) fn used(&self, nodes: &[Node]) -> Vec<(&str, &Constant)> {
        let read: BTreeSet<&str> = nodes.iter().flat_map(|node| &node.inputs).map(String::as_str).collect();
        let used = self.0.iter().filter(|(name, _)| read.contains(&name[..]));
        used.map(|(name, constant)| (&name[..], &**constant)).collect()
    }

    /// Runs nodes that move known tensors, and takes them out.
    pub(super) fn fold(&mut self, nodes: &mut Vec<Node>) {
        nodes.retain(|node| {
            if !MOVES.contains(&node.operator) {
                return true;
            }
            let inputs: Option<Vec<_>> = node.inputs.iter().map(|input| self.0.get(input).cloned()).collect();
            let Some(inputs) = inputs else { return true };
            if inputs.iter().map(|input| input.data.len()).sum::<usize>() > MAX_FOLDED {
                return true;
            }
            let inputs: Vec<_> = inputs.into_iter().map(Some).collect();
            match fold(&as_read(node), &inputs) {
                Some(Ok(outputs)) => {
                    for (name, constant) in node.outputs.iter().zip(outputs) {
                        self.insert(name.clone(), constant);
                    }
                    false
                }
                _ => true,
            }
        });
    }

    /// Makes batch normalizations a part of the convolutions whose only readers they are.
    pub(super) fn fold_batch_norm(&mut self, nodes: &mut Vec<Node>) {
        let mut readers: BTreeMap<String, usize> = BTreeMap::new();
        for input in nodes.iter().flat_map(|node| &node.inputs) {
            *readers.entry(input.clone()).or_default() += 1;
        }
        let makers: BTreeMap<String, usize> = nodes
            .iter()
            .enumerate()
            .flat_map(|(at, node)| node.outputs.iter().map(move |name| (name.clone(), at)))
            .collect();
        let mut gone = BTreeSet::new();
        for at in 0..nodes.len() {
            if nodes[at].operator != "BatchNormalization" {
                continue;
            }
            let Some(&maker) = makers.get(&nodes[at].inputs[0]) else { continue };
            let is_alone = nodes[maker].operator == "Conv"
                && readers[&nodes[at].inputs[0]] == 1
                && nodes[maker].inputs[1..].iter().all(|weight| readers[weight] == 1);
            if !is_alone {
                continue;
            }
            let Some((weight, bias)) = self.normalized(&nodes[maker], &nodes[at]) else { continue };
            let name = nodes[maker].inputs[1].clone();
            let bias_name = nodes[maker].inputs.get(2).cloned().unwrap_or_else(|| format!("{name}.bias"));
            self.insert(name.clone(), weight);
            self.insert(bias_name.clone(), bias);
            nodes[maker].inputs.truncate(2);
            nodes[maker].inputs.push(bias_name);
            nodes[maker].outputs = nodes[at].outputs.clone();
            gone.insert(at);
        }
        let mut at = 0;
        nodes.retain(|_| {
            at += 1;
            !gone.contains(&(at - 1))
        });
    }

    /// Weight and bias of a convolution with the normalization after it, whose tensors all must be known:
    /// `weight · s` and `(bias − mean) · s + shift` with `s = scale / √(var + epsilon)`.
    fn normalized(&self, conv: &Node, norm: &Node) -> Option<(Constant, Constant)> {
        let weight = self.0.get(&conv.inputs[1])?;
        let known = |name: &String| Some(self.0.get(name)?.to_floats());
        let [scale, shift, mean, var] = [1, 2, 3, 4].map(|index| known(&norm.inputs[index]));
        let (scale, shift, mean, var) = (scale?, shift?, mean?, var?);
        let channels = *weight.shape.first()?;
        let bias = match conv.inputs.get(2) {
            Some(name) => known(name)?,
            None => vec![0.0; channels],
        };
        if [&scale, &shift, &mean, &var, &bias].iter().any(|values| values.len() != channels) {
            return None;
        }
        let epsilon = norm.attributes.iter().find_map(|(name, value)| match (name, value) {
            (&"epsilon", Attribute::Float(value)) => Some(f64::from(*value)),
            _ => None,
        })?;
        let factors: Vec<f64> =
            scale.iter().zip(&var).map(|(&scale, &var)| f64::from(scale) / (f64::from(var) + epsilon).sqrt()).collect();
        let mut values = weight.to_floats();
        let per_channel = (values.len() / channels).max(1);
        for (filter, factor) in values.chunks_mut(per_channel).zip(&factors) {
            filter.iter_mut().for_each(|value| *value = (f64::from(*value) * factor) as f32);
        }
        let bias = (0..channels)
            .map(|c| ((f64::from(bias[c]) - f64::from(mean[c])) * factors[c] + f64::from(shift[c])) as f32);
        Some((Constant::floats(weight.shape.clone(), values), Constant::floats([channels], bias.collect())))
    }
}

/// A node as one that is read, for what is folded.
fn as_read(node: &Node) -> ir::Node {
    let attribute = |value: &Attribute| match value {
        Attribute::Int(value) => ir::Attribute::Int(*value),
        Attribute::Float(value) => ir::Attribute::Float(*value),
        Attribute::Text(value) => ir::Attribute::Text((*value).to_owned()),
        Attribute::Ints(values) => ir::Attribute::Ints(values.clone()),
        Attribute::Texts(values) => ir::Attribute::Texts(values.iter().map(|&value| value.to_owned()).collect()),
    };
    let numbers = |names: &[String]| (0..names.len()).map(Some).collect();
    ir::Node {
        name: node.outputs.first().cloned().unwrap_or_default(),
        operator: node.operator.to_owned(),
        domain: String::new(),
        version: 17,
        inputs: numbers(&node.inputs),
        outputs: numbers(&node.outputs),
        attributes: node.attributes.iter().map(|(name, value)| ((*name).to_owned(), attribute(value))).collect(),
    }
}
