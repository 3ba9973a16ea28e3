//! What is put around samples, and cut off them.

use serde::{Deserialize, Serialize};

use crate::error::GraphError;
use crate::nn::layers::Module;
use crate::nn::scope::Scope;
use crate::ops::shape::concat::Concat;
use crate::ops::shape::expand::Expand;
use crate::ops::shape::flip::Flip;
use crate::ops::shape::pad;
use crate::ops::shape::slice::Slice;
use crate::tensor::{Shape, ValueId};

/// Adds a constant, 0 by default, before and after the elements of each axis of a sample, or what the sample itself has there. The
/// batch axis is not counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    pads: Vec<(usize, usize)>,
    #[serde(default)]
    value: f32,
    #[serde(default)]
    mode: Mode,
}

/// What is added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Constant,
    Reflect,
    #[serde(alias = "replicate")]
    Edge,
    #[serde(alias = "wrap")]
    Circular,
}

impl Pad {
    /// How many zeros are added before and after, for each axis of the sample.
    pub fn new(pads: impl Into<Vec<(usize, usize)>>) -> Self {
        Pad { pads: pads.into(), value: 0.0, mode: Mode::Constant }
    }

    /// What is added instead of zeros.
    #[must_use]
    pub fn value(mut self, value: f32) -> Self {
        self.value = value;
        self
    }

    /// Adds what the sample has there as seen in a mirror in its outermost elements, which are not repeated.
    #[must_use]
    pub fn reflect(mut self) -> Self {
        self.mode = Mode::Reflect;
        self
    }

    /// Adds the outermost elements again and again: PyTorch's "replicate".
    #[must_use]
    pub fn edge(mut self) -> Self {
        self.mode = Mode::Edge;
        self
    }

    /// Adds what is at the other end, as if the sample went on in a circle.
    #[must_use]
    pub fn circular(mut self) -> Self {
        self.mode = Mode::Circular;
        self
    }

    /// So many elements of an axis that go before it or behind it.
    fn side(
        &self,
        scope: &mut Scope<'_>,
        value: ValueId,
        axis: usize,
        count: usize,
        is_before: bool,
    ) -> Result<ValueId, GraphError> {
        let extent = scope.shape(value)[axis];
        let mut cut = |start: usize, length: usize| scope.apply(Slice { axis, start, length }, &[value]);
        match self.mode {
            Mode::Constant => unreachable!("bug: a constant is not taken from the sample"),
            Mode::Reflect => {
                let part = cut(if is_before { 1 } else { extent - 1 - count }, count)?;
                scope.apply(Flip { axis, has_lengths: false }, &[part])
            }
            Mode::Edge => {
                let outermost = cut(if is_before { 0 } else { extent - 1 }, 1)?;
                let mut shape = scope.shape(outermost);
                shape[axis] = count;
                if count == 1 { Ok(outermost) } else { scope.apply(Expand { shape: shape.into() }, &[outermost]) }
            }
            Mode::Circular => cut(if is_before { extent - count } else { 0 }, count),
        }
    }

    /// Adds what the sample has, axis by axis.
    fn with_own(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let mut value = input;
        for (i, &(before, after)) in self.pads.iter().enumerate() {
            let (axis, extent) = (i + 1, scope.shape(value)[i + 1]);
            let (most, word) = match self.mode {
                Mode::Reflect => (extent - 1, "reflect"),
                Mode::Circular => (extent, "circular"),
                Mode::Constant | Mode::Edge => (usize::MAX, "edge"),
            };
            if before.max(after) > most {
                return Err(scope.error(format!(
                    "pads {:?} are too many for the mode {word}: axis {i} of the sample has {extent}, so at most {most}",
                    (before, after)
                )));
            }
            let mut parts = vec![value];
            if before > 0 {
                parts.insert(0, self.side(scope, value, axis, before, true)?);
            }
            if after > 0 {
                parts.push(self.side(scope, value, axis, after, false)?);
            }
            value = parts[0];
            for &part in &parts[1..] {
                value = scope.apply(Concat { axis }, &[value, part])?;
            }
        }
        Ok(value)
    }
}

/// There is a pair of numbers for each axis of a sample.
fn check_pairs(scope: &Scope<'_>, name: &str, pairs: &[(usize, usize)], shape: &[usize]) -> Result<(), GraphError> {
    if pairs.len() != shape.len() - 1 {
        let sample = Shape::from(&shape[1..]);
        return Err(scope.error(format!(
            "{name} {pairs:?} must name each of the {} axes of a sample of shape {sample}",
            shape.len() - 1
        )));
    }
    pairs.iter().try_for_each(|&pair| scope.check_pair(name, pair.into(), 0))
}

impl Module for Pad {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        check_pairs(scope, "pads", &self.pads, &scope.shape(input))?;
        if self.value.is_nan() {
            return Err(scope.error("value must be a number, found NaN"));
        }
        if self.mode != Mode::Constant {
            if self.value != 0.0 {
                return Err(scope.error("value is for the mode constant only"));
            }
            return self.with_own(scope, input);
        }
        let mut pads = vec![(0, 0)];
        pads.extend(&self.pads);
        scope.apply(pad::Pad { pads, value: self.value }, &[input])
    }
}

/// Cuts elements off before and after each axis of a sample. The batch axis is not counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cropping {
    crops: Vec<(usize, usize)>,
}

impl Cropping {
    /// How many elements are cut off before and after, for each axis of the sample.
    pub fn new(crops: impl Into<Vec<(usize, usize)>>) -> Self {
        Cropping { crops: crops.into() }
    }
}

impl Module for Cropping {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let shape = scope.shape(input);
        check_pairs(scope, "crops", &self.crops, &shape)?;
        let mut value = input;
        for (i, &(before, after)) in self.crops.iter().enumerate() {
            let (axis, extent) = (i + 1, shape[i + 1]);
            if before + after >= extent {
                return Err(scope.error(format!(
                    "crops {:?} leave nothing of axis {i} of the sample, which has {extent}",
                    (before, after)
                )));
            }
            if before + after > 0 {
                value = scope.apply(Slice { axis, start: before, length: extent - before - after }, &[value])?;
            }
        }
        Ok(value)
    }
}
