use serde::{Deserialize, Serialize};

use super::{Module, Pair, Scope};
use crate::error::GraphError;
use crate::ops::upsample_nearest2d::UpsampleNearest2d;
use crate::tensor::ValueId;

/// Repeats each element of a sample `[channels, height, width]`, down and across: nearest-neighbour upsampling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upsample {
    scale: Pair,
}

impl Upsample {
    /// Makes images this many times as high and as wide.
    pub fn new(scale: impl Into<Pair>) -> Self {
        Upsample { scale: scale.into() }
    }
}

impl Module for Upsample {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        scope.check_pair("scale", self.scale, 1)?;
        let shape = scope.shape(input);
        if shape.len() != 4 {
            return Err(scope.wrong_input("a sample of shape [channels, height, width]", &shape, ""));
        }
        scope.apply(UpsampleNearest2d { scale: self.scale.into() }, &[input])
    }
}
