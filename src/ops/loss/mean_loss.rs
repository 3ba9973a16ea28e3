//! The mean of losses that a graph computes by itself.

use std::ops::Range;

use crate::error::OpError;
use crate::native::dot;
use crate::ops::elementwise::activation::shape_name;
use crate::ops::loss::sample_weights::{self, Repeated};
use crate::ops::place::{PIECE, parts, sum_tasks};
use crate::ops::reduce::reduction;
use crate::ops::sums::sum;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Native, Op, Real, Resources, Slot, expect_count, expect_dtype,
};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `loss = Σ input / n` over all n elements; where `sample_weights`, `Σ weight · input / n`: what a loss of one's own ends in
///
/// | tensor | shape |
/// |---|---|
/// | input: losses of samples, or of their positions | `[N, ...]` |
/// | sample_weight, only where `sample_weights` | `[W]`, see [`loss`](crate::ops::loss) |
/// | loss | `[1]` |
///
/// Unlike [`Mean`](crate::ops::reduce::mean::Mean) over axis 0, it leaves a batch free to be split: the loss of a step is the mean of the
/// losses of its micro-batches, each weighted by its share of the samples, as with every loss.
///
/// **Saved for backward:** nothing but the weights. **In place:** no.
/// **Numerics:** sums in f32, in two levels and always in the same order.
///
/// # Errors
/// Where an input is not f32 or the weights do not fit; backward, where a gradient for the weights is wanted.
///
/// Source: `sum_over_batch_size` of <https://keras.io/api/losses/>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeanLoss {
    /// Whether there is an input `sample_weight`.
    pub sample_weights: bool,
}

params! {
    struct Params {
        elements: u32,
        splits: u32,
        scale: f32,
    }
}

impl MeanLoss {
    /// A launch over losses of this number; its weights, if there are any, are the last input.
    fn launch(
        self,
        entry: &'static str,
        bindings: [Slot; 2],
        inputs: &[TensorDesc],
        elements: usize,
        (splits, scale): (usize, f32),
    ) -> Dispatch {
        let params = Params { elements: elements as u32, splits: splits as u32, scale };
        let dispatch = Dispatch::new("mean_loss", entry, bindings).params(&params).linear(splits.div_ceil(64));
        if self.sample_weights { sample_weights::bind(dispatch, inputs, inputs.len() - 1, elements) } else { dispatch }
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let input = call.input(0);
        let weight = sample_weights::factors(call, self.sample_weights, input.len());
        let sum = sum(input.iter().enumerate().map(|(i, &x)| weight(i) * x));
        call.output(0)[0] = sum / T::from_f64(input.len() as f64);
    }
}

impl Op for MeanLoss {
    fn name(&self) -> &'static str {
        "mean_loss"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let op = "mean_loss";
        expect_count(op, inputs, 1 + usize::from(self.sample_weights))?;
        expect_dtype(op, "input", &inputs[0], DType::F32)?;
        if self.sample_weights {
            sample_weights::expect(op, inputs)?;
        }
        Ok(vec![TensorDesc::f32([1])])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        if forward.wanted[1..].contains(&true) {
            return Err(OpError::NotDifferentiable { op: "mean_loss (for its weights)" });
        }
        let mut gradients = vec![None; forward.inputs.len()];
        if let Some(grad_loss) = forward.grad_outputs[0] {
            let grad = GradInput { loss: *self, shape: graph.desc(forward.inputs[0]).shape.clone() };
            gradients[0] = Some(graph.emit(grad, &[&[grad_loss], &forward.inputs[1..]].concat())?);
        }
        Ok(gradients)
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        Cost { flops: inputs[0].numel() as u64, bytes_moved: inputs[0].size_bytes() }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        reduction::workspaces(1, inputs[0].numel().div_ceil(4))
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let elements = inputs[0].numel();
        reduction::split(1, elements.div_ceil(4), 1.0 / elements as f32, |sums, splits, scale| {
            self.launch("forward", [Slot::Input(0), sums], inputs, elements, (splits, scale))
        })
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for MeanLoss {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let x = call.input(0);
        let weights = Repeated::of_samples(call, self.sample_weights, x.len());
        let level = with.cores.level();
        let sum = sum_tasks(with.cores, x.len(), 1, |range| {
            let mut factor = [0.0; PIECE];
            let sum = |part: Range<usize>| {
                let factor = weights.spread(part.start, &mut factor[..part.len()]);
                f64::from(dot(level, &x[part], factor))
            };
            parts(range, PIECE).map(sum).sum()
        });
        call.output(0)[0] = (sum / x.len() as f64) as f32;
    }
}

/// `grad_input = grad_loss · weight / n`; inputs `grad_loss`, and the weights if there are any.
#[derive(Clone, Debug)]
struct GradInput {
    loss: MeanLoss,
    /// Of the input of the loss.
    shape: Shape,
}

impl Op for GradInput {
    fn name(&self) -> &'static str {
        "mean_loss.grad_input"
    }

    fn outputs(&self, _inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(vec![TensorDesc::f32(self.shape.clone())])
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let elements = outputs[0].numel();
        let bindings = [Slot::Input(0), Slot::Output(0)];
        let vectors = elements.div_ceil(4);
        vec![self.loss.launch("grad_input", bindings, inputs, elements, (vectors, 1.0 / elements as f32))]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for GradInput {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let elements = self.shape.numel();
        let scale = call.input(0)[0] / elements as f32;
        let weights = Repeated::of_samples(call, self.loss.sample_weights, elements);
        with.cores.pieces(call.output(0), |start, output| {
            weights.spread(start, output).iter_mut().for_each(|weight| *weight *= scale);
        });
    }
}

impl GradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let elements = self.shape.numel();
        let factor = call.input(0)[0] / T::from_f64(elements as f64);
        let weight = sample_weights::factors(call, self.loss.sample_weights, elements);
        for (i, d) in call.output(0).iter_mut().enumerate() {
            *d = factor * weight(i);
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: String, op: MeanLoss, shape: &[usize]| {
        let desc = TensorDesc::f32(shape);
        let numel = desc.numel();
        let case = Case::new(name, op, [desc]).reduction(numel);
        if numel > 1000 { case.large() } else { case }
    };
    let plain: [&[usize]; 5] = [&[1], &[7], &[4, 5], &[2, 1, 3, 1, 2, 1, 3], &[2, 4099]];
    let weighted: [(usize, &[usize]); 5] = [(7, &[7]), (3, &[6, 5]), (1, &[4, 5]), (3, &[9, 1, 7]), (2, &[4, 2053])];
    let plain = plain.map(|shape| case(shape_name(shape), MeanLoss::default(), shape));
    let weighted = weighted.map(|(samples, shape)| {
        let name = format!("samples{samples}_{}", shape_name(shape));
        sample_weights::case(case(name, MeanLoss { sample_weights: true }, shape), samples)
    });
    plain.into_iter().chain(weighted).collect()
}
