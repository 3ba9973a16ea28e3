mod pad;

use serde::{Deserialize, Serialize};

pub use self::pad::{Cropping, Pad};
use super::settings::{NoSettings, no_settings};
use super::{Module, Scope};
use crate::error::GraphError;
use crate::ops::shape::{permute, reshape};
use crate::tensor::{Shape, ValueId, plural};

/// Lays a sample out as one vector `[features]`. Moves no data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "NoSettings", into = "NoSettings")]
pub struct Flatten;

no_settings!(Flatten);

impl Module for Flatten {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let shape = scope.shape(input);
        let features = shape[1..].iter().product::<usize>();
        scope.apply(reshape::Reshape { shape: [shape[0], features].into() }, &[input])
    }
}

/// Gives a sample another shape with as many elements. Moves no data. The batch axis is not part of the shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reshape {
    shape: Vec<usize>,
}

impl Reshape {
    /// Samples of this shape.
    pub fn new(shape: impl Into<Shape>) -> Self {
        Reshape { shape: shape.into().to_vec() }
    }
}

impl Module for Reshape {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let shape = scope.shape(input);
        let found = shape[1..].iter().product::<usize>();
        let wanted = self.shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim));
        if self.shape.is_empty() || wanted != Some(found) {
            let (from, to) = (Shape::from(&shape[1..]), Shape::from(&self.shape[..]));
            return Err(scope
                .error(format!("a sample of shape {from} ({}) cannot take the shape {to}", plural(found, "element"))));
        }
        let mut full = vec![shape[0]];
        full.extend(&self.shape);
        scope.apply(reshape::Reshape { shape: full.into() }, &[input])
    }
}

/// Reorders the axes of a sample: output axis `i` is input axis `axes[i]`. The batch axis stays first and is not
/// counted, so `[1, 0]` swaps the axes of `[time, features]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permute {
    axes: Vec<usize>,
}

impl Permute {
    /// Axes of the sample in their new order.
    pub fn new(axes: impl Into<Vec<usize>>) -> Self {
        Permute { axes: axes.into() }
    }
}

impl Module for Permute {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let shape = scope.shape(input);
        let mut sorted = self.axes.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..shape.len() - 1) {
            let sample = Shape::from(&shape[1..]);
            return Err(scope.error(format!(
                "axes {:?} must name each of the {} axes of a sample of shape {sample} once, from 0",
                self.axes,
                shape.len() - 1
            )));
        }
        let mut axes = vec![0];
        axes.extend(self.axes.iter().map(|axis| axis + 1));
        scope.apply(permute::Permute { axes }, &[input])
    }
}
