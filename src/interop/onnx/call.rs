//! One node that becomes ops: its inputs in the forms that operators ask for, and what operators are written with.

use std::sync::Arc;

use super::constant::{Constant, elements};
use super::ir::{Initializer, Node, shown};
use super::walk::{Dense, Kind, Value, Walk};
use crate::error::GraphError;
use crate::nn::{Init, Scope};
use crate::ops::Op;
use crate::ops::shape::fill::Fill;
use crate::ops::shape::permute::Permute;
use crate::ops::shape::reshape::Reshape;
use crate::tensor::{DType, Shape};

/// Names that inputs and outputs of a training graph have.
const TAKEN: [&str; 16] = [
    "correct",
    "ema",
    "grad_norm",
    "guard",
    "hyper",
    "index",
    "input",
    "labels",
    "lengths",
    "loss",
    "loss_scale",
    "loss_scale_inverse",
    "output",
    "run",
    "sample_weight",
    "target",
];

/// Elements of a tensor at most: kernels count in 32 bits.
const MAX_ELEMENTS: usize = u32::MAX as usize;

pub(super) type Made = Result<Vec<Value>, GraphError>;

/// A node in the graph under construction.
pub(super) struct Call<'c, 'g, 's> {
    pub(super) walk: &'c mut Walk<'g>,
    pub(super) node: &'c Node,
    pub(super) scope: &'c mut Scope<'s>,
}

/// What a tensor of a file is to training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part {
    /// Trained, and starts so where no values are read.
    Trained(Init),
    /// Kept as it is.
    Kept(Init),
}

/// The shape that a tensor has in a model, where each has an axis.
pub(super) fn physical(shape: &[usize]) -> Shape {
    if shape.is_empty() { Shape::from([1]) } else { Shape::from(shape) }
}

impl Call<'_, '_, '_> {
    pub(super) fn refuse<T>(&self, reason: impl Into<String>) -> Result<T, GraphError> {
        Err(self.scope.error(reason))
    }

    /// Turns a reason into this node's error.
    pub(super) fn or_refuse<T>(&self, result: Result<T, String>) -> Result<T, GraphError> {
        result.map_err(|reason| self.scope.error(reason))
    }

    pub(super) fn has(&self, index: usize) -> bool {
        self.node.input(index).is_some()
    }

    fn number_of(&self, index: usize) -> Result<usize, GraphError> {
        self.node.input(index).ok_or_else(|| self.scope.error(format!("its input {index} is missing")))
    }

    pub(super) fn value(&self, index: usize) -> Result<Value, GraphError> {
        let number = self.number_of(index)?;
        let value = self.walk.value(number).cloned();
        value.ok_or_else(|| {
            self.scope.error(format!(
                "its input `{}` is an output that is not made here",
                shown(&self.walk.graph.names[number])
            ))
        })
    }

    pub(super) fn shape(&self, index: usize) -> Result<Vec<usize>, GraphError> {
        let number = self.number_of(index)?;
        self.value(index)?;
        Ok(self.walk.shape(number).unwrap_or_default())
    }

    /// The values of an input, if they are known before the model runs.
    pub(super) fn constant(&self, index: usize) -> Option<Arc<Constant>> {
        match self.walk.value(self.node.input(index)?)? {
            Value::Constant(constant) => Some(constant.clone()),
            Value::Weight(number) => match &self.walk.graph.initializers[number] {
                Initializer::Weight(weight) => weight.known.clone(),
                Initializer::Constant(constant) => Some(constant.clone()),
            },
            _ => None,
        }
    }

    /// As [`Call::constant`], where the operator needs it.
    pub(super) fn setting(&self, index: usize, what: &str) -> Result<Option<Arc<Constant>>, GraphError> {
        if !self.has(index) {
            return Ok(None);
        }
        match self.constant(index) {
            Some(constant) => Ok(Some(constant)),
            None => self.refuse(format!("its input {index}, {what}, must be known before the model runs")),
        }
    }

    /// The one number that an input is, where it is a constant and no weight.
    pub(super) fn number(&self, index: usize) -> Option<f32> {
        match self.walk.value(self.node.input(index)?)? {
            Value::Constant(constant) => constant.uniform(),
            _ => None,
        }
    }

    /// An input as numbers in the model. A weight becomes a parameter.
    pub(super) fn tensor(&mut self, index: usize) -> Result<Dense, GraphError> {
        // Where no values are read, weights start as layers' do, factors as 1 and terms as 0.
        let init = match &self.shape(index)?[..] {
            [_, terms @ ..] if !terms.is_empty() => Init::fan_in(terms.iter().product()),
            _ if matches!(&self.node.operator[..], "Mul" | "Div") => Init::ONES,
            _ => Init::ZEROS,
        };
        self.tensor_as(index, Part::Trained(init), Some(Part::Kept(init)))
    }

    /// An input that is a weight of this kind, in weights and constants alike.
    pub(super) fn weight(&mut self, index: usize, part: Part) -> Result<Dense, GraphError> {
        self.tensor_as(index, part, None)
    }

    /// `constant` is what constants become that are no weights.
    fn tensor_as(&mut self, index: usize, weight: Part, constant: Option<Part>) -> Result<Dense, GraphError> {
        let number = self.number_of(index)?;
        let dense = match self.value(index)? {
            Value::Tensor(dense) => dense,
            Value::Permuted { source, axes } => self.permuted(&source, &axes)?,
            Value::Weight(number) => self.made_of_weight(number, weight)?,
            Value::Constant(values) => self.made_of_constant(number, &values, weight, constant)?,
        };
        Ok(dense)
    }

    /// As [`Call::tensor`], of numbers: indices are none.
    pub(super) fn numbers(&mut self, index: usize) -> Result<Dense, GraphError> {
        let dense = self.tensor(index)?;
        if dense.kind == Kind::Index {
            return self
                .refuse(format!("its input {index} is made of indices: only Gather, Cast and OneHot take these"));
        }
        Ok(dense)
    }

    fn made_of_weight(&mut self, number: usize, part: Part) -> Result<Dense, GraphError> {
        if let Some(made) = self.walk.made.get(&number) {
            return Ok(made.clone());
        }
        let Some(Initializer::Weight(weight)) = self.walk.graph.initializers.get(&number) else {
            unreachable!("bug: value {number} is no weight")
        };
        let (shape, is_finite) = (weight.shape.clone(), weight.is_finite);
        if shape.contains(&0) {
            return self.refuse(format!("its input `{}` has no elements", shown(&self.walk.graph.names[number])));
        }
        let name = self.free_name(number);
        let id = match part {
            Part::Trained(init) if is_finite => self.scope.parameter_named(&name, &shape[..], init)?,
            Part::Trained(init) | Part::Kept(init) => self.scope.buffer_named(&name, &shape[..], init)?,
        };
        self.walk.note(|record| {
            record.weights.insert(name, number);
        });
        let dense = Dense { id, shape, kind: Kind::Number };
        self.walk.made.insert(number, dense.clone());
        Ok(dense)
    }

    fn made_of_constant(
        &mut self,
        number: usize,
        values: &Arc<Constant>,
        weight: Part,
        constant: Option<Part>,
    ) -> Result<Dense, GraphError> {
        if let Some(made) = self.walk.made.get(&number) {
            return Ok(made.clone());
        }
        let shape = values.shape.clone();
        if shape.contains(&0) {
            return self.refuse(format!("its input `{}` has no elements", shown(&self.walk.graph.names[number])));
        }
        let kind = if let super::constant::Data::Bools(_) = values.data { Kind::Truth } else { Kind::Number };
        let id = match (constant, values.uniform()) {
            (Some(_), Some(value)) => self.scope.apply(Fill { value, shape: physical(&shape) }, &[])?,
            _ => {
                let name = self.free_name(number);
                let id = match constant.unwrap_or(weight) {
                    Part::Trained(init) => self.scope.parameter_named(&name, physical(&shape), init)?,
                    Part::Kept(init) => self.scope.buffer_named(&name, physical(&shape), init)?,
                };
                let values = values.clone();
                self.walk.note(|record| {
                    record.constants.insert(name, values);
                });
                id
            }
        };
        let dense = Dense { id, shape, kind };
        self.walk.made.insert(number, dense.clone());
        Ok(dense)
    }

    /// The name of a value in the model: its own, unless that is one of an input's.
    fn free_name(&self, number: usize) -> String {
        let graph = self.walk.graph;
        let name = &graph.names[number];
        let is_taken = name.is_empty()
            || TAKEN.contains(&&name[..])
            || graph.inputs.iter().any(|input| graph.names[input.value] == *name);
        if is_taken { format!("{name}.values") } else { name.clone() }
    }

    /// Refuses shapes with more elements than kernels can count.
    pub(super) fn countable(&self, shape: &[usize]) -> Result<(), GraphError> {
        match elements(shape) {
            Some(1..=MAX_ELEMENTS) => Ok(()),
            Some(0) => self.refuse("it makes a tensor without elements"),
            _ => self.refuse("it makes a tensor of more elements than can be counted"),
        }
    }

    /// A number for all elements of a shape.
    pub(super) fn filled(&mut self, value: f32, shape: &[usize]) -> Result<Dense, GraphError> {
        let id = self.scope.apply(Fill { value, shape: physical(shape) }, &[])?;
        Ok(Dense { id, shape: shape.to_vec(), kind: Kind::Number })
    }

    /// Adds an op that has one output of interest, the first. Its shape is the model's.
    pub(super) fn apply(&mut self, op: impl Op, inputs: &[&Dense]) -> Result<Dense, GraphError> {
        let ids: Vec<_> = inputs.iter().map(|dense| dense.id).collect();
        let id = self.scope.apply_all(op, &ids)?[0];
        Ok(Dense { id, shape: self.scope.shape(id), kind: Kind::Number })
    }

    /// As [`Call::apply`], of an op that leaves shapes as they are.
    pub(super) fn map(&mut self, op: impl Op, input: &Dense) -> Result<Dense, GraphError> {
        let made = self.apply(op, &[input])?;
        Ok(Dense { shape: input.shape.clone(), ..made })
    }

    pub(super) fn reshaped(&mut self, input: &Dense, shape: &[usize]) -> Result<Dense, GraphError> {
        let physical = physical(shape);
        if physical.contains(&0) {
            return self.refuse("it makes a tensor without elements");
        }
        let id = if self.scope.shape(input.id) == physical[..] {
            input.id
        } else if self.scope.desc(input.id).dtype == DType::F32 {
            self.scope.apply(Reshape { shape: physical }, &[input.id])?
        } else {
            return self.refuse("indices cannot change their shape: make numbers of them first");
        };
        Ok(Dense { id, shape: shape.to_vec(), kind: input.kind })
    }

    /// With axes in another order, now.
    pub(super) fn permuted(&mut self, input: &Dense, axes: &[usize]) -> Result<Dense, GraphError> {
        if axes.iter().copied().eq(0..input.shape.len()) {
            return Ok(input.clone());
        }
        if input.kind == Kind::Index {
            return self.refuse("the axes of indices cannot change places");
        }
        let made = self.apply(Permute { axes: axes.to_vec() }, &[input])?;
        Ok(Dense { kind: input.kind, ..made })
    }

    /// An input with its axes in another order: `axes[i]` of the input is axis i.
    pub(super) fn tensor_permuted(&mut self, index: usize, axes: &[usize]) -> Result<Dense, GraphError> {
        if let Value::Permuted { source, axes: own } = self.value(index)? {
            let both: Vec<usize> = axes.iter().map(|&axis| own[axis]).collect();
            return self.permuted(&source, &both);
        }
        let dense = self.numbers(index)?;
        self.permuted(&dense, axes)
    }
}

/// A node's only output.
pub(super) fn one(dense: Dense) -> Made {
    Ok(vec![Value::Tensor(dense)])
}
