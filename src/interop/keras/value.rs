//! Tensors as layers hand them on, and what every layer can do.

use std::fmt::Debug;

use super::weights::Slot;
use crate::interop::Weight;
use crate::nn::{Module, Tensor};
use crate::ops::shape::permute::Permute;
use crate::ops::shape::reshape::Reshape;
use crate::tensor::Shape;

/// A tensor with the order of its axes. Keras has channels last, convolutions here have them first: what is between two
/// convolutions stays so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'a> {
    pub(super) tensor: Tensor<'a>,
    /// Whether the last axis in Keras is the first of the sample here.
    pub(super) first: bool,
    /// Whether it holds indices.
    pub(super) tokens: bool,
}

impl<'a> Value<'a> {
    /// With the axes of Keras.
    pub(super) fn plain(tensor: Tensor<'a>) -> Self {
        Value { tensor, first: false, tokens: false }
    }

    /// What a layer makes of channels that are first.
    pub(super) fn first(tensor: Tensor<'a>) -> Self {
        Value { tensor, first: tensor.shape().len() > 2, tokens: false }
    }

    /// Another tensor with axes as these.
    pub(super) fn like(self, tensor: Tensor<'a>) -> Self {
        Value { tensor, tokens: false, ..self }
    }

    /// Axes, without the batch.
    pub(super) fn rank(self) -> usize {
        self.tensor.shape().len() - 1
    }

    /// As numbers.
    pub(super) fn numbers(self) -> Self {
        if self.tokens { Value { tensor: self.tensor.to_float(), tokens: false, ..self } } else { self }
    }

    /// With its axes as in Keras.
    pub(super) fn keras(self) -> Tensor<'a> {
        if !self.first || self.rank() < 2 {
            return self.tensor;
        }
        let rank = self.rank();
        permute(self.tensor, (0..1).chain(2..=rank).chain(1..2).collect())
    }

    /// With Keras's last axis behind the batch.
    pub(super) fn channels_first(self) -> Tensor<'a> {
        if self.first || self.rank() < 2 {
            return self.tensor;
        }
        let rank = self.rank();
        permute(self.tensor, (0..1).chain(rank..=rank).chain(1..rank).collect())
    }

    /// As a layer takes it that has channels where Keras has them last or first.
    pub(super) fn spatial(self, channels_last: bool) -> Tensor<'a> {
        if channels_last { self.channels_first() } else { self.keras() }
    }

    /// Where an axis of Keras's, counted with the batch or from the end, is in this tensor.
    pub(super) fn axis(self, axis: isize) -> Option<usize> {
        let rank = self.rank();
        let axis = if axis < 0 { usize::try_from(axis + rank as isize + 1).ok()? } else { axis.unsigned_abs() };
        match axis {
            0 => None,
            axis if axis > rank => None,
            axis if !self.first => Some(axis),
            axis if axis == rank => Some(1),
            axis => Some(axis + 1),
        }
    }
}

pub(super) fn permute(tensor: Tensor<'_>, axes: Vec<usize>) -> Tensor<'_> {
    tensor.with_ops("permute", |scope, x| scope.apply(Permute { axes }, &[x]))
}

/// The same elements under another shape, batch included.
pub(super) fn reshape(tensor: Tensor<'_>, shape: Vec<usize>) -> Tensor<'_> {
    if tensor.shape()[..] == shape[..] {
        return tensor;
    }
    tensor.with_ops("reshape", |scope, x| {
        let (own, numel) = (scope.shape(x), |shape: &[usize]| shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)));
        if numel(&own) != numel(&shape) {
            let [own, shape] = [&own[1..], &shape[1..]].map(Shape::from);
            return Err(scope.error(format!("a sample of shape {own} cannot take the shape {shape}")));
        }
        scope.apply(Reshape { shape: shape.into() }, &[x])
    })
}

/// One use of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'c, 'a> {
    /// The layer's name.
    pub(super) name: &'c str,
    /// Whether it was applied before.
    pub(super) again: bool,
    pub(super) inputs: &'c [Value<'a>],
    /// Numbers that stand where a tensor could.
    pub(super) numbers: &'c [Option<f32>],
    /// `use_causal_mask`
    pub(super) causal: bool,
}

impl<'a> Call<'_, 'a> {
    pub(super) fn input(&self) -> Value<'a> {
        self.inputs[0]
    }

    /// Applies a layer under the name of this one.
    pub(super) fn layer(&self, tensor: Tensor<'a>, layer: impl Module) -> Tensor<'a> {
        if self.again { tensor.layer_again(self.name, layer) } else { tensor.layer(self.name, layer) }
    }

    /// Applies a part of this layer.
    pub(super) fn part(&self, tensor: Tensor<'a>, part: &str, layer: impl Module) -> Tensor<'a> {
        let name = format!("{}.{part}", self.name);
        if self.again { tensor.layer_again(&name, layer) } else { tensor.layer(&name, layer) }
    }

    /// The first input, with an error.
    pub(super) fn fail(&self, reason: String) -> Value<'a> {
        let tensor = self.input().tensor;
        Value::plain(tensor.with_ops(self.name, |scope, _| Err(scope.error(reason))))
    }
}

/// A layer of Keras's with its settings.
pub(super) trait Layer: Debug + Send + Sync {
    /// Adds it to the model. What is wrong with the shapes ends the model.
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a>;

    /// Its weights, in the order of Keras's `layer.weights`.
    fn slots(&self) -> Vec<Slot> {
        Vec::new()
    }

    /// Values that the settings have and Keras keeps no weights for: names behind the layer's, shapes and values.
    fn constants(&self) -> Vec<(String, Weight)> {
        Vec::new()
    }

    /// The fewest and the most tensors or numbers that it takes.
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }

    /// Whether it takes channels last in Keras and first here.
    fn converts(&self) -> bool {
        false
    }

    /// Whether it takes indices.
    fn takes_tokens(&self) -> bool {
        false
    }

    /// What it multiplies its input by, where that is one number and known.
    fn scale(&self) -> Option<f32> {
        None
    }

    /// Whether numbers may stand for tensors.
    fn takes_numbers(&self) -> bool {
        false
    }

    /// Whether it keeps something from batch to batch, and so cannot be at two places.
    fn keeps(&self) -> bool {
        false
    }
}
