//! Normalizations on the vectors and threads of a CPU: by channels ([`planes`]), whose elements lie apart, or by sets of
//! neighbours ([`rows`]).

mod column_kernels;
mod kernels;
mod planes;
mod rows;
mod run_kernels;

use super::{Grouping, Normalization, Places};
use crate::ops::{Call, Resources};
use crate::tensor::TensorDesc;

impl Normalization {
    /// Scratch of the forward op.
    pub(in crate::ops) fn native_workspaces(&self, inputs: &[TensorDesc]) -> Vec<u64> {
        match self.grouping {
            Grouping::Channels => planes::workspaces(&inputs[0].shape),
            _ => Vec::new(),
        }
    }

    /// Runs the forward op.
    pub(in crate::ops) fn run_native(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        match self.grouping {
            Grouping::Channels => planes::forward(self, call, &self.places(), with),
            _ => rows::forward(self, call, &self.places(), with),
        }
    }
}

/// Scratch of the gradients.
pub(super) fn backward_workspaces(norm: &Normalization, inputs: &[TensorDesc]) -> Vec<u64> {
    match norm.grouping {
        Grouping::Channels => planes::workspaces(&inputs[0].shape),
        _ => rows::workspaces(norm, &inputs[0].shape),
    }
}

/// Runs the gradients; `outputs` are those of input, weight and bias.
pub(super) fn backward(
    norm: &Normalization,
    call: &mut Call<'_, f32>,
    places: &Places,
    outputs: [Option<usize>; 3],
    with: &mut Resources<'_>,
) {
    match norm.grouping {
        Grouping::Channels => planes::backward(norm, call, places, outputs, with),
        _ => rows::backward(norm, call, places, outputs, with),
    }
}
