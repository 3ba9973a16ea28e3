//! Which layer takes what of which: `Functional` and `Sequential` models, one within another.

use super::value::{Call, Layer, Value};
use crate::nn::{Input, Tensor};

/// Pixels from 0 to 255 are multiplied by about 1/255 or 1/127.5; what is from 0 to 1 already is not made much smaller.
const MOST_OF_PIXELS: f32 = 1.0 / 32.0;

/// A model of Keras's: layers, and in which order they are applied to what.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) name: String,
    pub(super) layers: Vec<Node>,
    /// Inputs: their names, and samples as Keras takes them.
    pub(super) inputs: Vec<Entry>,
    pub(super) steps: Vec<Step>,
    pub(super) outputs: Vec<(String, Source)>,
}

/// An input.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    /// Whether an embedding takes it.
    pub(super) tokens: bool,
}

/// A layer with its name.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) class: String,
    /// Whether Keras trains it.
    pub(super) trainable: bool,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Input,
    Layer(Box<dyn Layer>),
    Network(Network),
}

/// What is done with a layer, which has a path of names.
type Visit<'v, 'n> = dyn FnMut(&[&'n str], &'n Node, &'n dyn Layer) + 'v;

/// One use of a layer.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) layer: usize,
    /// Whether an earlier step applied it.
    pub(super) again: bool,
    pub(super) operands: Vec<Operand>,
    pub(super) causal: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    Source(Source),
    Number(f32),
}

/// Where a tensor comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    Input(usize),
    /// An output of a step.
    Step(usize, usize),
}

impl Operand {
    fn source(self) -> Option<Source> {
        if let Operand::Source(source) = self { Some(source) } else { None }
    }
}

impl Network {
    /// Steps with those of models within, each time that they are applied.
    pub(super) fn expanded(&self) -> usize {
        // Once for each, however often they are applied.
        let of_layers: Vec<usize> = self
            .layers
            .iter()
            .map(|node| if let Kind::Network(network) = &node.kind { network.expanded() } else { 1 })
            .collect();
        self.steps.iter().map(|step| of_layers[step.layer]).fold(1, usize::saturating_add)
    }

    /// Whether a layer has channels last in Keras and first here.
    pub(super) fn converts(&self) -> bool {
        self.layers.iter().any(|node| match &node.kind {
            Kind::Input => false,
            Kind::Layer(layer) => layer.converts(),
            Kind::Network(network) => network.converts(),
        })
    }

    /// Whether a layer keeps something from batch to batch.
    pub(super) fn keeps(&self) -> bool {
        self.layers.iter().any(|node| match &node.kind {
            Kind::Input => false,
            Kind::Layer(layer) => layer.keeps(),
            Kind::Network(network) => network.keeps(),
        })
    }

    /// Whether what an input takes is made smaller at once, as pixels from 0 to 255 are.
    pub(super) fn scales_down(&self, input: usize) -> bool {
        self.steps.iter().any(|step| {
            let place = step.operands.iter().position(|operand| operand.source() == Some(Source::Input(input)));
            place.is_some_and(|place| match &self.layers[step.layer].kind {
                Kind::Input => false,
                Kind::Layer(layer) => layer.scale().is_some_and(|scale| scale.abs() < MOST_OF_PIXELS),
                Kind::Network(network) => network.scales_down(place),
            })
        })
    }

    /// Finds out which inputs are indices: those that an embedding takes.
    pub(super) fn find_tokens(&mut self) {
        for input in 0..self.inputs.len() {
            let mut sources = vec![Source::Input(input)];
            for (number, step) in self.steps.iter().enumerate() {
                for (place, operand) in step.operands.iter().enumerate() {
                    if !operand.source().is_some_and(|source| sources.contains(&source)) {
                        continue;
                    }
                    match &self.layers[step.layer].kind {
                        Kind::Layer(layer) if layer.takes_tokens() => {
                            self.inputs[input].tokens |= !layer.slots().is_empty();
                            // What it makes is no index, unless it is what it was.
                            if layer.slots().is_empty() {
                                sources.push(Source::Step(number, 0));
                            }
                        }
                        Kind::Network(network) => self.inputs[input].tokens |= network.inputs[place].tokens,
                        _ => {}
                    }
                }
            }
        }
    }

    /// Applies all layers to the inputs.
    pub(super) fn apply<'a>(&self, inputs: &[Value<'a>], again: bool) -> Vec<Value<'a>> {
        let mut made: Vec<Vec<Value<'a>>> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let of = |source: Source| match source {
                Source::Input(input) => inputs[input],
                // After an error, there may be fewer outputs.
                Source::Step(step, output) => {
                    made[step].get(output).or(made[step].first()).copied().unwrap_or(inputs[0])
                }
            };
            let node = &self.layers[step.layer];
            let operands: Vec<_> = step.operands.iter().filter_map(|operand| operand.source()).map(of).collect();
            let again = again || step.again;
            made.push(match &node.kind {
                Kind::Input => operands,
                Kind::Network(network) => {
                    let mut outputs = Vec::new();
                    let first: Tensor<'a> = operands[0].tensor;
                    let _ = first.within(&node.name, |first| {
                        outputs = network.apply(&operands, again);
                        first
                    });
                    outputs
                }
                Kind::Layer(layer) => {
                    let takes_tokens = layer.takes_tokens();
                    let inputs: Vec<_> =
                        operands.into_iter().map(|value| if takes_tokens { value } else { value.numbers() }).collect();
                    let number = |operand: &Operand| if let Operand::Number(n) = operand { Some(*n) } else { None };
                    let numbers: Vec<_> = step.operands.iter().map(number).collect();
                    let call =
                        Call { name: &node.name, again, inputs: &inputs, numbers: &numbers, causal: step.causal };
                    vec![layer.apply(&call)]
                }
            });
        }
        let of = |&(_, source): &(String, Source)| match source {
            Source::Input(input) => inputs[input],
            Source::Step(step, output) => made[step].get(output).or(made[step].first()).copied().unwrap_or(inputs[0]),
        };
        self.outputs.iter().map(of).collect()
    }

    /// All layers with weights, those of models within too, in Keras's order: their names from the outermost model on.
    pub(super) fn visit<'n>(&'n self, path: &mut Vec<&'n str>, visit: &mut Visit<'_, 'n>) {
        for node in &self.layers {
            path.push(&node.name);
            match &node.kind {
                Kind::Input => {}
                Kind::Layer(layer) => visit(path, node, &**layer),
                Kind::Network(network) => network.visit(path, visit),
            }
            path.pop();
        }
    }
}

impl Entry {
    /// One sample as the model here takes it; images with their channels first where `first` is set.
    pub(super) fn input(&self, first: bool) -> Input {
        let mut shape = self.shape.clone();
        if first {
            shape.rotate_right(1);
        }
        if self.tokens { Input::tokens(shape) } else { Input::values(shape) }
    }
}
