//! What exporters write in a way of their own: GELU before opset 20 as several operators, equal initializers once.

use std::collections::HashMap;

use super::constant::Constant;
use super::ir::{Attribute, Graph, Initializer, Node};

/// Who makes values, and who reads them.
struct Links<'g> {
    graph: &'g Graph,
    makers: HashMap<usize, usize>,
    readers: HashMap<usize, Vec<usize>>,
}

impl<'g> Links<'g> {
    fn of(graph: &'g Graph) -> Self {
        let (mut makers, mut readers) = (HashMap::new(), HashMap::<usize, Vec<usize>>::new());
        for (index, node) in graph.nodes.iter().enumerate() {
            for &output in node.outputs.iter().flatten() {
                makers.insert(output, index);
            }
            for &input in node.inputs.iter().flatten() {
                readers.entry(input).or_default().push(index);
            }
        }
        Links { graph, makers, readers }
    }

    /// The one number that a value is, where that is known.
    fn number(&self, value: usize) -> Option<f32> {
        let of = |constant: &Constant| (constant.data.len() == 1).then(|| constant.uniform()).flatten();
        match self.graph.initializers.get(&value) {
            Some(Initializer::Constant(constant)) => of(constant),
            Some(Initializer::Weight(weight)) => of(weight.known.as_ref()?),
            None => {
                let node = &self.graph.nodes[*self.makers.get(&value)?];
                match (&node.operator[..], node.attributes.get("value")) {
                    ("Constant", Some(Attribute::Tensor(constant))) => of(constant),
                    _ => node.float("value_float"),
                }
            }
        }
    }

    /// The other input of a node of two, where one is this number.
    fn beside(&self, node: &Node, operator: &str, number: f32) -> Option<usize> {
        if node.operator != operator {
            return None;
        }
        let (a, b) = (node.input(0)?, node.input(1)?);
        let is = |value: usize| self.number(value).is_some_and(|found| (found - number).abs() < 1e-4);
        if is(b) { Some(a) } else { Some(b).filter(|_| is(a) && operator != "Div") }
    }

    /// The node that alone reads what a node makes.
    fn next(&self, node: &Node) -> Option<usize> {
        let output = node.outputs.first().copied().flatten()?;
        match self.readers.get(&output)?[..] {
            [reader] if !self.graph.outputs.contains(&output) => Some(reader),
            _ => None,
        }
    }

    /// With the error function at `erf`: the node whose output is a GELU, and of which value.
    fn gelu(&self, erf: &Node) -> Option<(usize, usize)> {
        let inner = &self.graph.nodes[*self.makers.get(&erf.input(0)?)?];
        let root = std::f32::consts::SQRT_2;
        let x = self.beside(inner, "Div", root).or_else(|| self.beside(inner, "Mul", 1.0 / root))?;
        let plus = self.next(erf)?;
        self.beside(&self.graph.nodes[plus], "Add", 1.0)?;
        let summed = self.graph.nodes[plus].outputs.first().copied().flatten()?;
        let first = self.next(&self.graph.nodes[plus])?;
        let node = &self.graph.nodes[first];
        // (x · sum) / 2, x · (sum / 2) or (x / 2) · sum.
        if self.beside(node, "Mul", 0.5).is_some() {
            let last = self.next(node)?;
            let halved = node.outputs.first().copied().flatten()?;
            return self.times(&self.graph.nodes[last], halved, x).then_some((last, x));
        }
        if self.times(node, summed, x) {
            let last = self.next(node)?;
            let end = &self.graph.nodes[last];
            let is_half = self.beside(end, "Mul", 0.5).is_some() || self.beside(end, "Div", 2.0).is_some();
            return is_half.then_some((last, x));
        }
        let other = self.other(node, summed)?;
        let half = &self.graph.nodes[*self.makers.get(&other)?];
        let halved = self.beside(half, "Mul", 0.5).or_else(|| self.beside(half, "Div", 2.0))?;
        (halved == x).then_some((first, x))
    }

    fn other(&self, node: &Node, value: usize) -> Option<usize> {
        match (&node.operator[..], node.input(0), node.input(1)) {
            ("Mul", Some(a), Some(b)) if a == value => Some(b),
            ("Mul", Some(a), Some(b)) if b == value => Some(a),
            _ => None,
        }
    }

    fn times(&self, node: &Node, a: usize, b: usize) -> bool {
        self.other(node, a) == Some(b)
    }
}

/// Gives running statistics initializers of their own. PyTorch's exporter writes equal initializers once, and takes the others from it by
/// `Identity`: at first all means are 0, as biases are, and all variances 1, as weights are.
fn part_statistics(graph: &mut Graph) {
    let makers = Links::of(graph).makers;
    let norms = graph.nodes.iter().filter(|node| node.operator == "BatchNormalization" && node.domain.is_empty());
    let statistics: Vec<usize> = norms.flat_map(|node| [node.input(3), node.input(4)]).flatten().collect();
    for value in statistics {
        // The initializer that it is, through any number of copies.
        let mut source = value;
        while let Some(node) = makers.get(&source).map(|&maker| &graph.nodes[maker])
            && node.operator == "Identity"
            && let Some(input) = node.input(0)
        {
            source = input;
        }
        let found = graph.initializers.get(&source).cloned().zip(graph.weights.get(&source).cloned());
        if let (Some((initializer, constant)), true) = (found, source != value) {
            graph.initializers.insert(value, initializer);
            graph.weights.insert(value, constant);
        }
    }
    let is_copied = |node: &Node| {
        let output = node.outputs.first().copied().flatten();
        node.operator == "Identity" && output.is_some_and(|output| graph.initializers.contains_key(&output))
    };
    let kept: Vec<Node> = graph.nodes.iter().filter(|node| !is_copied(node)).cloned().collect();
    graph.nodes = kept;
}

/// Puts single operators in the place of those that are written as several, and several initializers in the place of one.
pub(super) fn apply(graph: &mut Graph) {
    part_statistics(graph);
    let links = Links::of(graph);
    let erfs = graph.nodes.iter().filter(|node| node.operator == "Erf" && node.domain.is_empty());
    let found: Vec<_> = erfs.filter_map(|erf| links.gelu(erf)).collect();
    for &(last, x) in &found {
        let node = &mut graph.nodes[last];
        node.operator = "Gelu".to_owned();
        node.inputs = vec![Some(x)];
        node.attributes.clear();
    }
    if found.is_empty() {
        return;
    }
    // What led there is needed no more, unless something else reads it.
    let mut needed: std::collections::HashSet<usize> = graph.outputs.iter().copied().collect();
    let mut kept = Vec::new();
    for node in std::mem::take(&mut graph.nodes).into_iter().rev() {
        if node.outputs.iter().flatten().any(|output| needed.contains(output)) {
            needed.extend(node.inputs.iter().flatten());
            kept.push(node);
        }
    }
    kept.reverse();
    graph.nodes = kept;
}
