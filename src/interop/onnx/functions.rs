//! Functions of a model, put in line where nodes call them.

use std::collections::{BTreeMap, HashMap};

use prost::Message as _;

use super::ir::{MAX_NODES, Wrong, shown, wrong};
use super::proto;

/// Functions within functions at most.
const MAX_DEPTH: usize = 32;

/// Bytes of all bodies that are put in line, at most.
const MAX_COPIED: usize = 1 << 28;

const TOO_LARGE: &str = "the functions of the model are too large where they are called";

type Key<'a> = (&'a str, &'a str, &'a str);

/// What is the same for all nodes of a body.
struct Body<'a> {
    versions: BTreeMap<&'a str, i64>,
    depth: usize,
}

struct Inliner<'a> {
    functions: HashMap<Key<'a>, &'a proto::Function>,
    nodes: Vec<(proto::Node, i64)>,
    calls: usize,
    /// Bytes of the bodies that were put in line.
    copied: usize,
}

fn domain(name: Option<&str>) -> &str {
    match name {
        Some("ai.onnx") | None => "",
        Some(name) => name,
    }
}

fn versions(sets: &[proto::OperatorSet]) -> BTreeMap<&str, i64> {
    sets.iter().map(|set| (domain(set.domain.as_deref()), set.version.unwrap_or(1))).collect()
}

/// The nodes of a graph with functions in line, each with the version of its operators.
pub(super) fn inline(
    nodes: Vec<proto::Node>,
    sets: &[proto::OperatorSet],
    functions: &[proto::Function],
) -> Result<Vec<(proto::Node, i64)>, Wrong> {
    let key = |function: &'_ proto::Function| -> (String, String, String) {
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        (domain(function.domain.as_deref()).to_owned(), part(&function.name), part(&function.overload))
    };
    let keys: Vec<_> = functions.iter().map(key).collect();
    let functions = keys.iter().zip(functions).map(|((a, b, c), function)| ((&a[..], &b[..], &c[..]), function));
    let mut inliner = Inliner { functions: functions.collect(), nodes: Vec::new(), calls: 0, copied: 0 };
    let body = Body { versions: versions(sets), depth: 0 };
    for node in nodes {
        inliner.add(node, &body)?;
    }
    Ok(inliner.nodes)
}

impl Inliner<'_> {
    fn add(&mut self, node: proto::Node, body: &Body<'_>) -> Result<(), Wrong> {
        let operator = node.op_type.as_deref().unwrap_or_default();
        let name = domain(node.domain.as_deref());
        let key = (name, operator, node.overload.as_deref().unwrap_or_default());
        if let Some(&function) = self.functions.get(&key) {
            return self.call(&node, function, body.depth + 1);
        }
        let Some(&version) = body.versions.get(name) else {
            let reason = format!("the file does not say which version of the operators of `{}` it means", shown(name));
            return wrong(
                format!("node `{}` ({})", shown(node.name.as_deref().unwrap_or_default()), shown(operator)),
                reason,
            );
        };
        if self.nodes.len() >= MAX_NODES {
            return wrong("the graph", format!("it has more than {MAX_NODES} nodes with its functions in line"));
        }
        self.nodes.push((node, version));
        Ok(())
    }

    fn call(&mut self, node: &proto::Node, function: &proto::Function, depth: usize) -> Result<(), Wrong> {
        let name = shown(function.name.as_deref().unwrap_or_default());
        self.calls += 1;
        self.copied = self.copied.saturating_add(function.encoded_len());
        if self.copied > MAX_COPIED {
            return wrong(format!("function `{name}`"), TOO_LARGE);
        }
        if depth > MAX_DEPTH || self.calls > MAX_NODES {
            return wrong(format!("function `{name}`"), "it calls itself, or functions are too deep within each other");
        }
        // Values of the body have names of their own for each call.
        let prefix = match node.name.as_deref() {
            Some(name) if !name.is_empty() => format!("{name}/{}", self.calls),
            _ => format!("{name}/{}", self.calls),
        };
        let values: usize = function.node.iter().map(|node| node.input.len() + node.output.len() + 1).sum();
        self.copied = self.copied.saturating_add(prefix.len().saturating_mul(values));
        if self.copied > MAX_COPIED {
            return wrong(format!("function `{name}`"), TOO_LARGE);
        }
        let mut names: HashMap<&str, String> = HashMap::new();
        for (index, inner) in function.input.iter().enumerate() {
            names.insert(inner, node.input.get(index).cloned().unwrap_or_default());
        }
        for (index, inner) in function.output.iter().enumerate() {
            if let Some(outer) = node.output.get(index).filter(|outer| !outer.is_empty()) {
                names.insert(inner, outer.clone());
            }
        }
        let rename = |inner: &String| match names.get(&inner[..]) {
            Some(outer) => outer.clone(),
            None if inner.is_empty() => String::new(),
            None => format!("{prefix}/{inner}"),
        };
        let given = |name: &str| node.attribute.iter().find(|attribute| attribute.name.as_deref() == Some(name));
        let usual =
            |name: &str| function.attribute_proto.iter().find(|attribute| attribute.name.as_deref() == Some(name));
        let body = Body { versions: versions(&function.opset_import), depth };
        for inner in &function.node {
            let attributes = inner.attribute.iter().filter_map(|attribute| {
                let Some(wanted) = attribute.ref_attr_name.as_deref().filter(|name| !name.is_empty()) else {
                    return Some(attribute.clone());
                };
                let found = given(wanted).or_else(|| usual(wanted))?;
                Some(proto::Attribute { name: attribute.name.clone(), ..found.clone() })
            });
            let inlined = proto::Node {
                input: inner.input.iter().map(rename).collect(),
                output: inner.output.iter().map(rename).collect(),
                name: inner.name.as_ref().map(|name| format!("{prefix}/{name}")),
                op_type: inner.op_type.clone(),
                attribute: attributes.collect(),
                domain: inner.domain.clone(),
                overload: inner.overload.clone(),
            };
            self.add(inlined, &body)?;
        }
        Ok(())
    }
}
