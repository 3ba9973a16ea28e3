//! Normalizations on the vectors and threads of a CPU: by channels ([`planes`]), whose elements lie apart, or by sets of
//! neighbours ([`rows`]).

mod column_kernels;
mod kernels;
mod planes;
mod rows;
mod run_kernels;

use super::{Grouping, Normalization, Places};
use crate::ops::{Call, OutputPart, Parts, Resources};
use crate::tensor::{Shape, TensorDesc};

impl Normalization {
    /// Scratch of the forward op.
    pub(in crate::ops) fn native_workspaces(&self, inputs: &[TensorDesc]) -> Vec<u64> {
        match self.grouping {
            Grouping::Channels => planes::workspaces(&inputs[0].shape),
            _ => Vec::new(),
        }
    }

    /// How the forward op falls into parts: channels or samples.
    pub(in crate::ops) fn parts(&self, inputs: &[TensorDesc]) -> Option<Parts> {
        let axis = self.axis(&inputs[0].shape)?;
        let places = self.places();
        let of_parameters = (self.grouping == Grouping::Channels).then_some(0);
        let mut cuts = vec![Some(0); places.count];
        cuts[0] = Some(axis);
        [places.weight, places.bias].into_iter().flatten().for_each(|place| cuts[place] = of_parameters);
        let statistics = if self.frozen { 0 } else { 1 + usize::from(self.centered) };
        let mut outputs = vec![OutputPart::Along(axis)];
        outputs.extend(vec![OutputPart::Along(0); statistics]);
        Some(Parts { inputs: cuts, outputs })
    }

    /// The axis of which each part has statistics of its own.
    fn axis(&self, shape: &Shape) -> Option<usize> {
        match self.grouping {
            Grouping::Channels => Some(1),
            Grouping::Groups(_) => Some(0),
            Grouping::Rows(dims) => (shape.len() > dims).then_some(0),
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

/// How the gradients fall into parts.
pub(super) fn backward_parts(
    norm: &Normalization,
    inputs: &[TensorDesc],
    places: &Places,
    wanted: [bool; 3],
) -> Option<Parts> {
    let axis = norm.axis(&inputs[0].shape)?;
    let by_channels = norm.grouping == Grouping::Channels;
    let mut cuts = vec![Some(0); places.count];
    [places.input, places.grad_output].into_iter().flatten().for_each(|place| cuts[place] = Some(axis));
    let parameters = [places.weight, places.bias].into_iter().flatten();
    parameters.for_each(|place| cuts[place] = by_channels.then_some(0));
    let of_parameters = if by_channels { OutputPart::Along(0) } else { OutputPart::Sum };
    let outputs = [OutputPart::Along(axis), of_parameters, of_parameters].into_iter().zip(wanted);
    Some(Parts { inputs: cuts, outputs: outputs.filter_map(|(part, wanted)| wanted.then_some(part)).collect() })
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
