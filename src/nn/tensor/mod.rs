//! Models as functions: layers and operators applied to tensors.

mod arithmetic;
mod axes;
mod broadcast;
mod operators;
mod reduce;

use std::cell::RefCell;

pub use arithmetic::Operand;
#[cfg(feature = "interop")]
pub(crate) use broadcast::{expand, together};

use super::layers::{self, Module};
use super::model::Input;
use super::scope::{Building, Scope};
use crate::error::GraphError;
use crate::ops::Op;
use crate::tensor::{Shape, ValueId};

/// A tensor of a model that is being described: what a layer takes and makes. Its first axis is the batch.
///
/// Each method applies a layer and gives its output. The first error is kept and ends the model: what is applied after it
/// changes nothing, and [`Model::build`](super::Model::build) returns it.
///
/// Tensors are computed with as numbers are, so a loss, a metric or a layer of one's own is a formula. Operators, comparisons and what
/// takes several tensors broadcast as NumPy does: shapes are aligned at the last axis, and what has extent 1 or no such axis is
/// repeated. As the batch is axis 0, what has one number for each sample needs the other axes too: `[batch, 1]` next to
/// `[batch, channels]`. `[batch, n]` next to `[batch, 1, n]` goes over pairs of samples, which mixes them: a batch can then not be
/// cut into micro-batches.
///
/// Two losses, each with one number for each sample:
///
/// ```
/// use tightfit::nn::{Input, Linear, Mode, Model, Tensor};
///
/// /// The mean of ln cosh(d) = |d| + softplus(−2 |d|) − ln 2.
/// fn log_cosh<'a>(prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a> {
///     let d = (prediction - target).abs();
///     (d + (-2.0 * d).softplus() - std::f32::consts::LN_2).mean(&[1], false)
/// }
///
/// /// −(1 − p)^γ · ln p, where p is the probability of the right class (<https://arxiv.org/abs/1708.02002>).
/// fn focal<'a>(scores: Tensor<'a>, labels: Tensor<'a>, gamma: f32) -> Tensor<'a> {
///     let log_p = (scores.log_softmax() * labels.one_hot(scores.channels())).sum(&[-1], false);
///     -(1.0 - log_p.exp()).pow(gamma) * log_p
/// }
///
/// let model = Model::new("losses", [8], |x| {
///     let values = log_cosh(x.layer("values", Linear::new(3)), x.input("values", [3]));
///     values + focal(x.layer("classes", Linear::new(5)), x.input("labels", Input::tokens([])), 2.0)
/// });
/// let built = model.build(16, Mode::Evaluate)?;
/// assert_eq!(built.graph.value(built.output).desc.shape[..], [16]);
/// # Ok::<(), tightfit::error::GraphError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    net: &'a Net,
    value: ValueId,
}

/// The model that tensors belong to.
#[derive(Debug)]
pub(super) struct Net(RefCell<State>);

#[derive(Debug)]
struct State {
    building: Building,
    error: Option<GraphError>,
}

impl Net {
    pub(super) fn new(building: Building) -> Self {
        Net(RefCell::new(State { building, error: None }))
    }

    pub(super) fn tensor(&self, value: ValueId) -> Tensor<'_> {
        Tensor { net: self, value }
    }

    pub(super) fn finish(self, output: ValueId) -> Result<(Building, ValueId), GraphError> {
        let State { building, error } = self.0.into_inner();
        error.map_or(Ok((building, output)), Err)
    }

    /// Adds something, unless something before it failed: then, and where it fails itself, gives `input`.
    fn add(&self, input: ValueId, add: impl FnOnce(&mut Building) -> Result<ValueId, GraphError>) -> ValueId {
        let mut state = self.0.borrow_mut();
        if state.error.is_some() {
            return input;
        }
        match add(&mut state.building) {
            Ok(value) => value,
            Err(error) => {
                state.error = Some(error);
                input
            }
        }
    }
}

impl<'a> Tensor<'a> {
    /// Applies a layer of this name: its parameters are `name.weight` and so on, after the names of what it is
    /// [`within`](Tensor::within).
    // By value, so that a description of a layer can stand where it is applied.
    #[allow(clippy::needless_pass_by_value)]
    #[must_use]
    pub fn layer(self, name: &str, layer: impl Module) -> Tensor<'a> {
        self.with(self.net.add(self.value, |building| building.layer(name, &layer, self.value)))
    }

    /// Applies the layer of this name a second time, with the parameters that it has from the first: both places train them.
    ///
    /// ```
    /// use tightfit::nn::{Linear, Model};
    ///
    /// let model = Model::new("siamese", [2, 8], |x| {
    ///     let (a, b) = (x.index(1, 0), x.index(1, 1));
    ///     let distance = a.layer("embed", Linear::new(4)) - b.layer_again("embed", Linear::new(4));
    ///     distance.square().sum(&[-1], true)
    /// });
    /// assert_eq!(model.parameter_count()?, 8 * 4 + 4);
    /// # Ok::<(), tightfit::error::GraphError>(())
    /// ```
    // By value, as where it is applied first.
    #[allow(clippy::needless_pass_by_value)]
    #[must_use]
    pub fn layer_again(self, name: &str, layer: impl Module) -> Tensor<'a> {
        self.with(self.net.add(self.value, |building| {
            building.shares = true;
            let output = building.layer(name, &layer, self.value);
            building.shares = false;
            output
        }))
    }

    /// Applies layers whose names all begin with `name` and a dot.
    #[must_use]
    pub fn within(self, name: &str, layers: impl FnOnce(Tensor<'a>) -> Tensor<'a>) -> Tensor<'a> {
        self.net.0.borrow_mut().building.enter(name);
        let output = layers(self);
        self.net.0.borrow_mut().building.leave();
        output
    }

    /// Applies a layer that needs no name because it has no parameters: it is named by its kind.
    #[must_use]
    pub fn apply(self, layer: impl Into<layers::Layer>) -> Tensor<'a> {
        let layer = layer.into();
        self.layer(layer.prefix(), layer)
    }

    /// Computes with several tensors: `function` adds ops through the scope, which carries the name.
    #[must_use]
    pub fn with_ops(
        self,
        name: &str,
        function: impl FnOnce(&mut Scope<'_>, ValueId) -> Result<ValueId, GraphError>,
    ) -> Tensor<'a> {
        self.with(self.net.add(self.value, |building| building.scope(name, |scope| function(scope, self.value))))
    }

    /// Another input of the model besides the samples: `name` is what the dataset calls it.
    #[must_use]
    pub fn input(self, name: &str, input: impl Into<Input>) -> Tensor<'a> {
        let batch = self.extent(0);
        self.with(self.net.add(self.value, |building| building.input(name, &input.into().batched(batch))))
    }

    /// Names this tensor as another output of the model, besides what its last layer makes: a loss of its own can be taken of it
    /// ([`Config::head`](crate::train::Config::head)), and predictions have it.
    // Where the model goes on from it, or not.
    #[allow(clippy::must_use_candidate)]
    pub fn output(self, name: &str) -> Tensor<'a> {
        self.with(self.net.add(self.value, |building| building.output(name, self.value)))
    }

    /// Concatenates along an axis (the batch is axis 0).
    #[must_use]
    pub fn concat(self, other: Tensor<'a>, axis: usize) -> Tensor<'a> {
        self.with_ops("concat", |scope, value| {
            let (a, b) = (scope.shape(value), scope.shape(other.value));
            let differ = |(i, (a, b)): (usize, (&usize, &usize))| i != axis && a != b;
            if a.len() == b.len() && a.iter().zip(b.iter()).enumerate().any(differ) {
                let [a, b] = [a, b].map(|shape| Shape::from(&shape[1..]));
                return Err(scope.error(format!("puts {a} and {b} together: they must agree but for the channels")));
            }
            scope.apply(crate::ops::shape::concat::Concat { axis }, &[value, other.value])
        })
    }

    /// The part from `start` to `start + length` along an axis (the batch is axis 0).
    #[must_use]
    pub fn slice(self, axis: usize, start: usize, length: usize) -> Tensor<'a> {
        self.with_op("slice", crate::ops::shape::slice::Slice { axis, start, length })
    }

    /// Parts of these lengths along an axis (the batch is axis 0).
    pub fn split(self, axis: usize, lengths: &[usize]) -> Vec<Tensor<'a>> {
        let op = crate::ops::shape::split::Split { axis, lengths: lengths.to_vec() };
        let mut parts = Vec::new();
        let first = self.with_ops("split", |scope, value| {
            parts = scope.apply_all(op, &[value])?;
            Ok(parts[0])
        });
        // After an error any tensor will do.
        (0..lengths.len()).map(|i| parts.get(i).map_or(first, |&part| self.with(part))).collect()
    }

    fn with_op(self, name: &str, op: impl Op) -> Tensor<'a> {
        self.with_ops(name, |scope, value| scope.apply(op, &[value]))
    }

    /// Multiplies each channel of each sample by a number of `scale`, `[channels]`.
    #[must_use]
    pub fn mul_channels(self, scale: Tensor<'a>) -> Tensor<'a> {
        let op = crate::ops::elementwise::mul_channels::MulChannels;
        self.with_ops("mul_channels", |scope, value| scope.apply(op, &[value, scale.value]))
    }

    /// Extents, batch first.
    pub fn shape(self) -> Shape {
        self.net.0.borrow().building.graph.value(self.value).desc.shape.clone()
    }

    /// One extent; 1 where there is no such axis.
    pub fn extent(self, axis: usize) -> usize {
        self.shape().get(axis).copied().unwrap_or(1)
    }

    /// Channels: extent 1.
    pub fn channels(self) -> usize {
        self.extent(1)
    }

    /// Where it is in the graph.
    pub fn value(self) -> ValueId {
        self.value
    }

    fn with(self, value: ValueId) -> Tensor<'a> {
        Tensor { value, ..self }
    }
}

/// `softmax(query · keyᵀ / √D) · value` for each sample and head, with dropout on what the softmax makes.
///
/// | tensor | shape |
/// |---|---|
/// | query | `[batch, heads, queries, D]` |
/// | key | `[batch, heads, keys, D]` |
/// | value | `[batch, heads, keys, E]` |
/// | output | `[batch, heads, queries, E]` |
///
/// With `causal`, query i sees the keys up to `i + keys − queries`. `dropout` is the probability of a zero in training.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html>
#[must_use]
pub fn scaled_dot_product_attention<'a>(
    query: Tensor<'a>,
    key: Tensor<'a>,
    value: Tensor<'a>,
    causal: bool,
    dropout: f32,
) -> Tensor<'a> {
    query.with_ops("attention", |scope, query| layers::attention(scope, query, key.value, value.value, causal, dropout))
}
