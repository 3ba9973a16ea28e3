//! What ops are in ONNX: plain data, which `interop::onnx` writes as files.
//!
//! An op says with [`Op::onnx`](super::Op::onnx) which nodes compute the same in inference, through a [`Call`]. Extents that depend on the
//! number of samples are left free.

use crate::tensor::TensorDesc;

/// A setting of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f32),
    /// A word.
    Text(&'static str),
    /// Several whole numbers.
    Ints(Vec<i64>),
    /// Several words.
    Texts(Vec<&'static str>),
}

impl From<i64> for Attribute {
    fn from(value: i64) -> Self {
        Attribute::Int(value)
    }
}

impl From<i32> for Attribute {
    fn from(value: i32) -> Self {
        Attribute::Int(value.into())
    }
}

impl From<bool> for Attribute {
    fn from(value: bool) -> Self {
        Attribute::Int(value.into())
    }
}

impl From<f32> for Attribute {
    fn from(value: f32) -> Self {
        Attribute::Float(value)
    }
}

impl From<&'static str> for Attribute {
    fn from(value: &'static str) -> Self {
        Attribute::Text(value)
    }
}

impl From<Vec<i64>> for Attribute {
    fn from(values: Vec<i64>) -> Self {
        Attribute::Ints(values)
    }
}

impl From<&[usize]> for Attribute {
    fn from(values: &[usize]) -> Self {
        Attribute::Ints(values.iter().map(|&value| value as i64).collect())
    }
}

/// One use of an operator of ONNX.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name of the operator.
    pub operator: &'static str,
    /// Names of what it reads; empty where an optional one is left out.
    pub inputs: Vec<String>,
    /// Names of what it makes; empty where it is not needed.
    pub outputs: Vec<String>,
    /// Settings by name.
    pub attributes: Vec<(&'static str, Attribute)>,
}

/// A recurrent operator: its name, gates by their numbers here in the order of there, and settings.
pub type RecurrentOperator = (&'static str, &'static [usize], Vec<(&'static str, Attribute)>);

/// Values of a [`Constant`].
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Of single precision.
    Floats(Vec<f32>),
    /// Of 64 bits.
    Ints(Vec<i64>),
}

/// A tensor that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Its name.
    pub name: String,
    /// Its shape; none where it is a number.
    pub shape: Vec<usize>,
    /// Its values, the last axis running fastest.
    pub values: Values,
}

/// Nodes in an order in which they can run, and what they read besides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Constants of the nodes.
    pub constants: Vec<Constant>,
    /// Version of the operators.
    pub opset: i64,
    /// An input of the model whose first axis is the number of samples.
    pub samples: Option<String>,
}

/// Two numbers of samples, for which shapes are given: what depends on the number differs.
pub const SAMPLES: [usize; 2] = [2, 3];

/// One node of a model's graph as an op writes it.
#[derive(Debug)]
pub struct Call<'a> {
    graph: &'a mut Graph,
    /// What new names begin with.
    prefix: &'a str,
    inputs: &'a [String],
    input_descs: [&'a [TensorDesc]; 2],
    output_descs: [&'a [TensorDesc]; 2],
    used: &'a [bool],
}

impl<'a> Call<'a> {
    /// A node with these inputs, whose tensors have these shapes for two numbers of [`SAMPLES`]. `used` says which outputs are read.
    pub fn new(
        graph: &'a mut Graph,
        prefix: &'a str,
        inputs: &'a [String],
        input_descs: [&'a [TensorDesc]; 2],
        output_descs: [&'a [TensorDesc]; 2],
        used: &'a [bool],
    ) -> Self {
        Call { graph, prefix, inputs, input_descs, output_descs, used }
    }

    /// Name of an input.
    pub fn input(&self, index: usize) -> String {
        self.inputs[index].clone()
    }

    /// Names of all inputs.
    pub fn inputs(&self) -> Vec<String> {
        self.inputs.to_vec()
    }

    /// Whether an output is read.
    pub fn is_used(&self, output: usize) -> bool {
        self.used.get(output).copied().unwrap_or(false)
    }

    /// Version of the operators.
    pub fn opset(&self) -> i64 {
        self.graph.opset
    }

    /// Axes of an input.
    pub fn rank(&self, input: usize) -> usize {
        self.input_descs[0][input].shape.len()
    }

    /// Extents of an input; `None` where they depend on the number of samples.
    pub fn extents(&self, input: usize) -> Vec<Option<usize>> {
        extents(self.input_descs.map(|descs| &descs[input]))
    }

    /// Extents of an output; `None` where they depend on the number of samples.
    pub fn output_extents(&self, output: usize) -> Vec<Option<usize>> {
        extents(self.output_descs.map(|descs| &descs[output]))
    }

    /// The extents of an output as `Reshape` takes them, -1 for what depends on the number of samples; `None` where more than one does.
    pub fn output_shape(&self, output: usize) -> Option<Vec<i64>> {
        let extents = self.output_extents(output);
        let free = extents.iter().filter(|extent| extent.is_none()).count();
        (free <= 1).then(|| extents.iter().map(|extent| extent.map_or(-1, |extent| extent as i64)).collect())
    }

    /// Adds the extents of an output as whole numbers, whatever the number of samples is; `None` where that cannot be said.
    pub fn extents_of_output(&mut self, output: usize) -> Option<String> {
        let samples = self.graph.samples.clone()?;
        let [a, b] = self.output_descs.map(|descs| descs[output].shape.clone());
        let count = self.node("Shape", &[&samples], [("start", 0.into()), ("end", 1.into())]);
        let mut parts = Vec::new();
        for (&a, &b) in a.iter().zip(b.iter()) {
            let each = a / SAMPLES[0];
            parts.push(match (a == b, [each * SAMPLES[0], each * SAMPLES[1]] == [a, b]) {
                (true, _) => self.ints([a as i64]),
                (false, true) if each == 1 => count.clone(),
                (false, true) => {
                    let each = self.ints([each as i64]);
                    self.apply("Mul", &[&count, &each])
                }
                (false, false) => return None,
            });
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Some(self.node("Concat", &parts, [("axis", 0.into())]))
    }

    fn name(&self, operator: &str) -> String {
        let number = self.graph.nodes.len() + self.graph.constants.len();
        format!("{}/{operator}_{number}", self.prefix)
    }

    /// Adds a node that makes one output; returns its name.
    pub fn node(
        &mut self,
        operator: &'static str,
        inputs: &[&str],
        attributes: impl IntoIterator<Item = (&'static str, Attribute)>,
    ) -> String {
        self.node_of(operator, inputs, attributes, &[true]).pop().expect("bug: a node of one output")
    }

    /// Adds a node; returns the names of its outputs, empty for those that are not wanted.
    pub fn node_of(
        &mut self,
        operator: &'static str,
        inputs: &[&str],
        attributes: impl IntoIterator<Item = (&'static str, Attribute)>,
        wanted: &[bool],
    ) -> Vec<String> {
        let name = self.name(operator);
        let output = |(index, wanted): (usize, &bool)| match (wanted, index) {
            (false, _) => String::new(),
            (true, 0) => name.clone(),
            (true, index) => format!("{name}.{index}"),
        };
        let outputs: Vec<String> = wanted.iter().enumerate().map(output).collect();
        self.graph.nodes.push(Node {
            operator,
            inputs: inputs.iter().map(|&input| input.to_owned()).collect(),
            outputs: outputs.clone(),
            attributes: attributes.into_iter().collect(),
        });
        outputs
    }

    /// Adds whole numbers along one axis; returns their name.
    pub fn ints(&mut self, values: impl Into<Vec<i64>>) -> String {
        let values = values.into();
        self.constant(vec![values.len()], Values::Ints(values))
    }

    /// Adds one number without an axis; returns its name.
    pub fn number(&mut self, value: f32) -> String {
        self.constant(Vec::new(), Values::Floats(vec![value]))
    }

    /// Adds numbers of a shape; returns their name.
    pub fn floats(&mut self, shape: impl Into<Vec<usize>>, values: Vec<f32>) -> String {
        self.constant(shape.into(), Values::Floats(values))
    }

    /// Adds a known tensor; returns its name.
    fn constant(&mut self, shape: Vec<usize>, values: Values) -> String {
        let same = self.graph.constants.iter().find(|constant| constant.shape == shape && constant.values == values);
        if let Some(same) = same {
            return same.name.clone();
        }
        let name = self.name("constant");
        self.graph.constants.push(Constant { name: name.clone(), shape, values });
        name
    }

    /// A function of single elements or of several that go together; returns the output's name.
    pub fn apply(&mut self, operator: &'static str, inputs: &[&str]) -> String {
        self.node(operator, inputs, [])
    }

    /// The op's output as it is, or its positive part.
    pub fn with_relu(&mut self, output: String, relu: bool) -> String {
        if relu { self.apply("Relu", &[&output]) } else { output }
    }

    /// A value under another shape, -1 for one extent that follows from the others.
    pub fn reshape(&mut self, value: &str, shape: impl Into<Vec<i64>>) -> String {
        let shape = self.ints(shape);
        self.apply("Reshape", &[value, &shape])
    }

    /// A value with axes in another order.
    pub fn transpose(&mut self, value: &str, axes: &[usize]) -> String {
        self.node("Transpose", &[value], [("perm", axes.into())])
    }

    /// `[C]` as `[C, 1, …]`, so that it goes over axis 1 of a tensor of this rank.
    pub fn over_channels(&mut self, value: &str, rank: usize) -> String {
        if rank <= 2 {
            return value.to_owned();
        }
        let mut shape = vec![-1];
        shape.resize(rank - 1, 1);
        self.reshape(value, shape)
    }

    /// A reduction of input 0.
    pub fn reduce(&mut self, operator: &'static str, axes: &[usize], keepdim: bool) -> String {
        let (value, rank) = (self.input(0), self.rank(0));
        self.reduce_of(&value, rank, operator, axes, keepdim)
    }

    /// A reduction of a value with so many axes.
    pub fn reduce_of(
        &mut self,
        value: &str,
        rank: usize,
        operator: &'static str,
        axes: &[usize],
        keepdim: bool,
    ) -> String {
        let by_input = operator == "ReduceSum" || self.opset() >= 18;
        let output = if by_input {
            let axes = self.ints(axes.iter().map(|&axis| axis as i64).collect::<Vec<_>>());
            self.node(operator, &[value, &axes], [("keepdims", keepdim.into())])
        } else {
            self.node(operator, &[value], [("axes", axes.into()), ("keepdims", keepdim.into())])
        };
        // What has no axes left has one here.
        if !keepdim && axes.len() == rank { self.reshape(&output, [1]) } else { output }
    }
}

fn extents(descs: [&TensorDesc; 2]) -> Vec<Option<usize>> {
    let [a, b] = descs.map(|desc| desc.shape.iter());
    a.zip(b).map(|(a, b)| (a == b).then_some(*a)).collect()
}
