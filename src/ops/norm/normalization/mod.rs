//! What normalizations share: how a tensor is divided into groups and parameters, the launches of the kernels of
//! `shaders/shared/norm.wgsl`, the twins, and one backward op for all of them.

mod backward;
mod launch;
mod native;
mod sets;
#[cfg(test)]
mod tests;
mod twin;

use serde::{Deserialize, Serialize};

pub(in crate::ops) use backward::{all_gradients, backward};
pub(in crate::ops) use launch::Launches;
pub(in crate::ops) use sets::Grouping;
use sets::Sets;

use crate::error::OpError;
use crate::ops::elementwise::activation;
use crate::ops::{Call, Case, Cost, Op, Real, expect_count, expect_dtype, expect_shape};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc};

/// What is trained after a normalization: `output = weight · normalized + bias`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Affine {
    /// Nothing: weights are 1, biases 0.
    None,
    /// A weight.
    Weight,
    /// A weight and a bias.
    #[default]
    Full,
}

impl Affine {
    /// Whether there is a weight.
    pub fn has_weight(self) -> bool {
        self != Affine::None
    }

    /// Whether there is a bias.
    pub fn has_bias(self) -> bool {
        self == Affine::Full
    }

    /// How many tensors are trained.
    pub fn tensors(self) -> usize {
        usize::from(self.has_weight()) + usize::from(self.has_bias())
    }

    /// How names of test cases begin.
    pub(in crate::ops) fn prefix(self) -> &'static str {
        match self {
            Affine::None => "plain_",
            Affine::Weight => "weight_",
            Affine::Full => "",
        }
    }
}

/// One of the normalizations, with its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::ops) struct Normalization {
    /// Name of the op and of its shader.
    pub(in crate::ops) op: &'static str,
    /// Name of its backward.
    pub(in crate::ops) backward: &'static str,
    /// What gets no gradient, for an error.
    pub(in crate::ops) statistics_name: &'static str,
    pub(in crate::ops) grouping: Grouping,
    /// Added to the variance.
    pub(in crate::ops) eps: f32,
    /// Whether the mean is subtracted.
    pub(in crate::ops) centered: bool,
    pub(in crate::ops) affine: Affine,
    /// Whether negative outputs become 0.
    pub(in crate::ops) relu: bool,
    /// Whether statistics are inputs, not computed from the input.
    pub(in crate::ops) frozen: bool,
    /// Whether a batch may be split.
    pub(in crate::ops) batch_separable: bool,
}

/// Which input of an op is what.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::ops) struct Places {
    input: Option<usize>,
    grad_output: Option<usize>,
    mean: Option<usize>,
    variance: Option<usize>,
    weight: Option<usize>,
    bias: Option<usize>,
    count: usize,
}

impl Places {
    /// The next input, if it is there.
    fn next(&mut self, is_there: bool) -> Option<usize> {
        let place = is_there.then_some(self.count);
        self.count += usize::from(is_there);
        place
    }
}

impl Normalization {
    /// Inputs of the forward op.
    fn places(&self) -> Places {
        let mut places = Places::default();
        places.input = places.next(true);
        places.mean = places.next(self.frozen && self.centered);
        places.variance = places.next(self.frozen);
        places.weight = places.next(self.affine.has_weight());
        places.bias = places.next(self.affine.has_bias());
        places
    }

    /// The shape rule of the forward op.
    pub(in crate::ops) fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let op = self.op;
        let places = self.places();
        expect_count(op, inputs, places.count)?;
        expect_dtype(op, "input", &inputs[0], DType::F32)?;
        if !(self.eps.is_finite() && self.eps > 0.0) {
            let (value, reason) = (self.eps.to_string(), "it must be a number above 0".to_owned());
            return Err(OpError::Setting { op, setting: "eps", value, reason });
        }
        self.grouping.check(op, &inputs[0])?;
        let shape = &inputs[0].shape;
        if self.grouping == Grouping::Channels && !self.frozen && self.grouping.sets(shape)[0].terms() == 1 {
            let expected = "of more than one value per channel, because one alone has no variance".to_owned();
            return Err(OpError::Input { op, input: "input", expected, found: inputs[0].clone() });
        }
        let [statistics, parameters] = [self.grouping.statistics(shape), self.grouping.parameters(shape)];
        for (name, place, shape) in [
            ("running_mean", places.mean, &statistics),
            ("running_var", places.variance, &statistics),
            ("weight", places.weight, &parameters),
            ("bias", places.bias, &parameters),
        ] {
            let Some(place) = place else { continue };
            expect_dtype(op, name, &inputs[place], DType::F32)?;
            expect_shape(op, name, &inputs[place], shape.clone())?;
        }
        let made = if self.frozen { 0 } else { 1 + usize::from(self.centered) };
        let mut outputs = vec![inputs[0].clone()];
        outputs.extend(vec![TensorDesc::f32(statistics); made]);
        Ok(outputs)
    }

    /// Flops and bytes of the forward op.
    pub(in crate::ops) fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let again = if self.launches(&inputs[0].shape, &Target::default()).dispatches.len() > 1 {
            inputs[0].size_bytes()
        } else {
            0
        };
        cost(if self.frozen { 4 } else { 10 }, again, inputs, outputs)
    }

    /// What the forward op runs.
    pub(in crate::ops) fn launches(&self, shape: &Shape, target: &Target) -> Launches {
        let forward = if self.frozen { launch::normalize } else { launch::forward };
        forward(self, shape, &self.places(), target)
    }

    /// The CPU twin of the forward op.
    pub(in crate::ops) fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let forward = if self.frozen { twin::normalize } else { twin::forward };
        forward(self, call, &self.places());
    }
}

/// `flops` for each element; every tensor moved once, and `again` bytes more.
fn cost(flops: u64, again: u64, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
    let bytes: u64 = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum();
    Cost { flops: flops * inputs[0].numel() as u64, bytes_moved: bytes + again }
}

/// The cases of normalizations over last axes: the shapes of each of three kinds from small to large.
pub(in crate::ops) fn row_cases<O: Op>(
    affine: Affine,
    kinds: &[RowCases],
    op: impl Fn(usize, f32, Affine) -> O,
) -> Vec<Case> {
    let case = |dims: usize, shape: &[usize], eps: f32| {
        let row = &shape[shape.len() - dims..];
        let mut inputs = vec![TensorDesc::f32(shape)];
        inputs.extend(vec![TensorDesc::f32(row); affine.tensors()]);
        let name = format!("{}dims{dims}_{}", affine.prefix(), activation::shape_name(shape));
        let width: usize = row.iter().product();
        let terms = width.max(shape.iter().product::<usize>() / width);
        Case::new(name, op(dims, eps, affine), inputs).reduction(terms)
    };
    let small = |dims, shape: &[usize]| case(dims, shape, 1e-5);
    kinds
        .iter()
        .flat_map(|kind| match kind {
            RowCases::Few => vec![small(1, &[4, 10]), small(1, &[2, 3, 8]), small(2, &[2, 3, 4, 5])],
            // With one element or two, gradients are what is left of numbers that all but cancel: less so with a large eps.
            RowCases::Small => {
                vec![case(1, &[1, 1], 0.1), small(1, &[3, 2, 7]), small(3, &[2, 3, 2, 2]), small(1, &[2, 66])]
            }
            RowCases::Large => {
                let shapes: [(usize, &[usize]); 7] = [
                    (1, &[1031, 3]),
                    (1, &[1031, 12]),
                    (1, &[130, 17]),
                    (1, &[33, 256]),
                    (1, &[3, 257]),
                    (2, &[2, 129, 127]),
                    (1, &[1, 65_540]),
                ];
                shapes.into_iter().map(|(dims, shape)| small(dims, shape).large()).collect()
            }
        })
        .collect()
}

/// Kinds of [`row_cases`].
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) enum RowCases {
    Few,
    Small,
    Large,
}

/// Implements [`Op`] for a normalization that has a `fn normalization(&self) -> Normalization`, with further methods of
/// [`Op`] in braces.
macro_rules! normalization_op {
    ($op:ty $(, { $($further:tt)* })?) => {
        impl $crate::ops::Op for $op {
            $($($further)*)?

            fn name(&self) -> &'static str {
                self.normalization().op
            }

            fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
                self.normalization().outputs(inputs)
            }

            fn backward(
                &self,
                graph: &mut dyn $crate::ops::Builder,
                forward: &$crate::ops::Backward<'_>,
            ) -> Result<Vec<Option<ValueId>>, OpError> {
                $crate::ops::norm::normalization::backward(self.normalization(), graph, forward)
            }

            fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> $crate::ops::Cost {
                self.normalization().cost(inputs, outputs)
            }

            fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
                self.normalization().launches(&inputs[0].shape, &Target::default()).workspaces
            }

            fn flags(&self) -> $crate::ops::Flags {
                let batch_separable = self.normalization().batch_separable;
                $crate::ops::Flags { batch_separable, ..Default::default() }
            }

            fn takes_epilogue(&self) -> bool {
                true
            }

            fn full_precision(&self, output: usize) -> bool {
                output > 0
            }

            fn in_place(&self) -> &'static [(usize, usize)] {
                &[(0, 0)]
            }

            fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
                self.normalization().launches(&inputs[0].shape, target).dispatches
            }

            fn native(&self) -> Option<&dyn $crate::ops::Native> {
                Some(self)
            }

            twin!();
        }

        impl $crate::ops::Native for $op {
            fn parts(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<$crate::ops::Parts> {
                self.normalization().parts(inputs)
            }

            fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _threads: usize) -> Vec<u64> {
                self.normalization().native_workspaces(inputs)
            }

            fn run(&self, call: &mut Call<'_, f32>, with: &mut $crate::ops::Resources<'_>) {
                self.normalization().run_native(call, with);
            }
        }

        impl $op {
            fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
                self.normalization().twin(call);
            }
        }
    };
}
pub(in crate::ops) use normalization_op;
