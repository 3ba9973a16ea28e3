//! The gradients of a normalization.

use std::sync::Arc;

use super::launch::{self, Launches};
use super::{Normalization, Places, cost, native, twin};
use crate::error::OpError;
use crate::ops::{self, Builder, Call, Cost, Dispatch, Flags, Native, Op, Parts, Real, Resources, Slot};
use crate::shader::Target;
use crate::tensor::{Shape, TensorDesc, ValueId};

/// The gradients of input, weight and bias, those that are wanted, in that order.
///
/// Inputs, those that they need: `input, grad_output, mean, variance, weight, bias`.
#[derive(Clone, Copy, Debug)]
struct NormBackward {
    norm: Normalization,
    wanted: [bool; 3],
}

impl NormBackward {
    fn places(&self) -> Places {
        let [wants_input, wants_weight, _] = self.wanted;
        let Normalization { centered, affine, relu, frozen, .. } = self.norm;
        let reads_input = relu || wants_weight || (wants_input && !frozen);
        let mut places = Places::default();
        places.input = places.next(reads_input);
        places.grad_output = places.next(true);
        places.mean = places.next(reads_input && centered);
        places.variance = places.next(reads_input || wants_input);
        places.weight = places.next(affine.has_weight() && (wants_input || relu));
        places.bias = places.next(affine.has_bias() && relu);
        places
    }

    /// Which output is which gradient.
    fn gradients(&self) -> [Option<usize>; 3] {
        let mut count = 0;
        self.wanted.map(|wanted| {
            count += usize::from(wanted);
            wanted.then(|| count - 1)
        })
    }

    fn launches(&self, shape: &Shape, target: &Target) -> Launches {
        let outputs = self.gradients().map(|output| output.map(Slot::Output));
        launch::backward(&self.norm, shape, &self.places(), outputs, target)
    }
}

/// The op of all gradients of a normalization, for test cases.
pub(in crate::ops) fn all_gradients(norm: Normalization) -> Arc<dyn Op> {
    Arc::new(NormBackward { norm, wanted: [true; 3] })
}

/// Adds the node of the gradients of a normalization.
pub(in crate::ops) fn backward(
    norm: Normalization,
    graph: &mut dyn Builder,
    forward: &ops::Backward<'_>,
) -> Result<Vec<Option<ValueId>>, OpError> {
    if forward.grad_outputs[1..].iter().any(Option::is_some) {
        return Err(OpError::NotDifferentiable { op: norm.statistics_name });
    }
    let of_forward = norm.places();
    let wants = |place: Option<usize>| place.is_some_and(|i| forward.wanted[i]);
    let op = NormBackward { norm, wanted: [of_forward.input, of_forward.weight, of_forward.bias].map(wants) };
    let mut gradients = vec![None; of_forward.count];
    let Some(grad_output) = forward.grad_outputs[0].filter(|_| op.wanted.contains(&true)) else {
        return Ok(gradients);
    };
    let input = |place: Option<usize>| place.map(|i| forward.inputs[i]);
    let statistics = &forward.outputs[1..];
    let (mean, variance) = if norm.frozen {
        (input(of_forward.mean), input(of_forward.variance))
    } else {
        (statistics.first().copied().filter(|_| norm.centered), statistics.last().copied())
    };
    let places = op.places();
    let inputs: Vec<_> = [
        (places.input, input(of_forward.input)),
        (places.grad_output, Some(grad_output)),
        (places.mean, mean),
        (places.variance, variance),
        (places.weight, input(of_forward.weight)),
        (places.bias, input(of_forward.bias)),
    ]
    .into_iter()
    .filter_map(|(place, value)| value.filter(|_| place.is_some()))
    .collect();
    let made = graph.apply(Arc::new(op), &inputs)?;
    for (place, gradient) in [of_forward.input, of_forward.weight, of_forward.bias].into_iter().zip(op.gradients()) {
        if let (Some(place), Some(gradient)) = (place, gradient) {
            gradients[place] = Some(made[gradient]);
        }
    }
    Ok(gradients)
}

impl Op for NormBackward {
    fn name(&self) -> &'static str {
        self.norm.backward
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let parameter = TensorDesc::f32(self.norm.grouping.parameters(&inputs[0].shape));
        let gradients = [inputs[0].clone(), parameter.clone(), parameter];
        Ok(gradients.into_iter().zip(self.wanted).filter_map(|(desc, wanted)| wanted.then_some(desc)).collect())
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // Sums of parameters, of groups, and the gradient of the input each read the large tensors.
        let large = if self.places().input.is_some() { 2 } else { 1 };
        let launches = self.launches(&inputs[0].shape, &Target::default()).dispatches;
        let passes = launches.iter().filter(|dispatch| dispatch.kernel.file.name() == self.norm.op).count() as u64;
        cost(9 * passes, (passes - 1) * large * inputs[0].size_bytes(), inputs, outputs)
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        self.launches(&inputs[0].shape, &Target::default()).workspaces
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.norm.batch_separable, ..Flags::default() }
    }

    fn takes_epilogue(&self) -> bool {
        self.wanted[0]
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        match (self.wanted[0], self.places().input) {
            (false, _) => &[],
            (true, Some(_)) => &[(1, 0), (0, 0)],
            (true, None) => &[(0, 0)],
        }
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        self.launches(&inputs[0].shape, target).dispatches
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for NormBackward {
    fn parts(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        native::backward_parts(&self.norm, inputs, &self.places(), self.wanted)
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _threads: usize) -> Vec<u64> {
        native::backward_workspaces(&self.norm, inputs)
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        native::backward(&self.norm, call, &self.places(), self.gradients(), with);
    }
}

impl NormBackward {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        twin::backward(&self.norm, call, &self.places(), self.gradients());
    }
}
