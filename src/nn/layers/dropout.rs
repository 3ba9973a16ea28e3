use serde::{Deserialize, Serialize};

use super::{Module, Scope};
use crate::error::GraphError;
use crate::ops;
use crate::tensor::{ValueId, format_number};

/// Whether anything is dropped with this probability.
pub(super) fn drops(scope: &Scope<'_>, p: f32) -> Result<bool, GraphError> {
    if !(0.0..=1.0).contains(&p) {
        return Err(scope.error(format!("p must be between 0 and 1, found {}", format_number(p))));
    }
    Ok(scope.drops() && p > 0.0)
}

/// Adds a dropout whose numbers each hold for `block` consecutive elements of a sample; `input` itself where nothing drops.
pub(super) fn dropout(scope: &mut Scope<'_>, p: f32, input: ValueId, block: usize) -> Result<ValueId, GraphError> {
    if !drops(scope, p)? {
        return Ok(input);
    }
    let run = scope.run_input()?;
    let stream = scope.stream();
    scope.apply(ops::random::dropout::Dropout { p, stream, block }, &[input, run])
}

macro_rules! dropouts {
    ($($(#[$meta:meta])* $name:ident => $block:expr;)*) => {$(
        $(#[$meta])*
        ///
        /// Which are zeros depends on the seed, the step, the layer's name and the sample's place in the batch: neither on the
        /// budget nor on how the batch is split. Nothing is dropped in evaluation.
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            p: f32,
        }

        impl $name {
            /// With the probability `p` of a zero.
            pub fn new(p: f32) -> Self {
                $name { p }
            }
        }

        impl Module for $name {
            fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
                let shape = scope.shape(input);
                let block: fn(&Scope<'_>, &[usize]) -> Result<usize, GraphError> = $block;
                dropout(scope, self.p, input, block(scope, &shape)?)
            }
        }
    )*};
}

dropouts! {
    /// Zeros for random elements, the others multiplied by `1 / (1 − p)`.
    Dropout => |_, _| Ok(1);
    /// Zeros for random channels of samples `[channels, …]`, the others multiplied by `1 / (1 − p)`.
    Dropout2d => |scope, shape| {
        if shape.len() < 3 {
            return Err(scope.wrong_input("a sample of shape [channels, …]", shape, "use dropout"));
        }
        Ok(shape[2..].iter().product())
    };
    /// Zeros for random samples, the others multiplied by `1 / (1 − p)`: at the end of a residual branch, whose block is then
    /// skipped as a whole (<https://arxiv.org/abs/1603.09382>). torchvision's mode `row`.
    StochasticDepth => |_, shape| Ok(shape[1..].iter().product());
}
