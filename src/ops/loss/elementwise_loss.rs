//! What losses share that are means over single elements: each is a function of one prediction and one target.

mod native;

use std::fmt::Debug;

use crate::error::OpError;
use crate::ops::elementwise::activation::shape_name;
use crate::ops::loss::sample_weights;
use crate::ops::reduce::reduction;
use crate::ops::sums::sum;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Fill, Native, Op, Real, Resources, Slot, expect_count, expect_dtype,
    expect_shape,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// A function of one element of the input and one of the target. The op is its mean over all elements; its kernels are
/// `forward` and `grad_input` of `shaders/<NAME>.wgsl` (see `shaders/shared/elementwise_loss.wgsl`).
pub(in crate::ops) trait ElementwiseLoss: Op + Copy {
    /// Name of the op and of its files.
    const NAME: &'static str;
    /// Name of the backward op: `<NAME>.grad_input`.
    const GRAD_INPUT: &'static str;
    /// Floating-point operations on one element, for the cost model.
    const FLOPS: u64;
    /// Whether the function is one of `input − target`, so that the target has a gradient too: the input's with the sign
    /// turned.
    const OF_DIFFERENCE: bool;

    /// The number that the kernels read as `params.setting`.
    fn setting(&self) -> f32 {
        0.0
    }

    /// Whether a third input holds a weight for every channel (axis 1), or one for all.
    fn weighted(&self) -> bool {
        false
    }

    /// Whether the last input holds weights of samples, which value and derivative are multiplied by.
    fn sample_weights(&self) -> bool;

    /// Whether the settings make sense.
    ///
    /// # Errors
    /// Where they do not.
    fn check(&self) -> Result<(), OpError> {
        Ok(())
    }

    /// The function, of an input, a target and a weight.
    fn value<T: Real>(&self, x: T, t: T, weight: T) -> T;

    /// Its derivative by the input.
    fn gradient<T: Real>(&self, x: T, t: T, weight: T) -> T;
}

/// Implements [`Op`] for an [`ElementwiseLoss`].
macro_rules! elementwise_loss {
    ($loss:ty) => {
        impl $crate::ops::Op for $loss {
            fn name(&self) -> &'static str {
                <$loss as ElementwiseLoss>::NAME
            }

            fn outputs(
                &self,
                inputs: &[$crate::tensor::TensorDesc],
            ) -> Result<Vec<$crate::tensor::TensorDesc>, $crate::error::OpError> {
                elementwise_loss::outputs(self, inputs)
            }

            fn backward(
                &self,
                graph: &mut dyn $crate::ops::Builder,
                forward: &$crate::ops::Backward<'_>,
            ) -> Result<Vec<Option<$crate::tensor::ValueId>>, $crate::error::OpError> {
                elementwise_loss::backward(self, graph, forward)
            }

            fn cost(
                &self,
                inputs: &[$crate::tensor::TensorDesc],
                _outputs: &[$crate::tensor::TensorDesc],
            ) -> $crate::ops::Cost {
                elementwise_loss::cost::<$loss>(inputs, 0)
            }

            fn workspaces(
                &self,
                inputs: &[$crate::tensor::TensorDesc],
                _outputs: &[$crate::tensor::TensorDesc],
            ) -> Vec<u64> {
                $crate::ops::reduce::reduction::workspaces(1, inputs[0].numel().div_ceil(4))
            }

            fn dispatches(
                &self,
                inputs: &[$crate::tensor::TensorDesc],
                _outputs: &[$crate::tensor::TensorDesc],
                _target: &$crate::ops::Target,
            ) -> Vec<$crate::ops::Dispatch> {
                elementwise_loss::dispatches(self, inputs)
            }

            fn native(&self) -> Option<&dyn $crate::ops::Native> {
                Some(self)
            }

            $crate::twin!();
        }

        impl $crate::ops::Native for $loss {
            fn run(&self, call: &mut $crate::ops::Call<'_, f32>, with: &mut $crate::ops::Resources<'_>) {
                elementwise_loss::run_native(self, call, with);
            }
        }

        impl $loss {
            fn twin<T: $crate::ops::Real>(&self, call: &mut $crate::ops::Call<'_, T>) {
                elementwise_loss::forward_twin(self, call);
            }
        }
    };
}

pub(in crate::ops) use elementwise_loss;
pub(in crate::ops) use native::forward as run_native;

params! {
    /// Parameters of both kernels.
    struct Params {
        elements: u32,
        splits: u32,
        scale: f32,
        setting: f32,
        inner: u32,
        channels: u32,
    }
}

/// Elements behind one channel, and channels: of axis 1, or all as one where there is a single weight. `weights` is the number of the input
/// that holds them.
fn channels<L: ElementwiseLoss>(loss: &L, inputs: &[TensorDesc], weights: usize) -> (usize, usize) {
    match inputs.get(weights).filter(|_| loss.weighted()) {
        Some(weights) if weights.numel() > 1 => (inputs[0].shape[2..].iter().product(), inputs[0].shape[1]),
        _ => (inputs[0].numel(), 1),
    }
}

/// The shape rule.
pub(in crate::ops) fn outputs<L: ElementwiseLoss>(loss: &L, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
    loss.check()?;
    let op = L::NAME;
    expect_count(op, inputs, 2 + usize::from(loss.weighted()) + usize::from(loss.sample_weights()))?;
    expect_dtype(op, "input", &inputs[0], DType::F32)?;
    expect_dtype(op, "target", &inputs[1], DType::F32)?;
    expect_shape(op, "target", &inputs[1], inputs[0].shape.clone())?;
    if let Some(weights) = inputs.get(2).filter(|_| loss.weighted()) {
        expect_dtype(op, "weight", weights, DType::F32)?;
        let channels = inputs[0].shape.get(1).copied().unwrap_or(1);
        if weights.shape[..] != [1] && weights.shape[..] != [channels] {
            let expected = format!("of shape [1] or [{channels}], one for each channel");
            return Err(OpError::Input { op, input: "weight", expected, found: weights.clone() });
        }
    }
    if loss.sample_weights() {
        sample_weights::expect(op, inputs)?;
    }
    Ok(vec![TensorDesc::f32([1])])
}

/// The nodes of the gradients.
pub(in crate::ops) fn backward<L: ElementwiseLoss>(
    loss: &L,
    graph: &mut dyn Builder,
    forward: &Backward<'_>,
) -> Result<Vec<Option<ValueId>>, OpError> {
    let differentiable = 1 + usize::from(L::OF_DIFFERENCE);
    if forward.wanted[differentiable..].contains(&true) {
        return Err(OpError::NotDifferentiable { op: L::NAME });
    }
    let mut gradients = vec![None; forward.inputs.len()];
    let Some(grad_loss) = forward.grad_outputs[0] else { return Ok(gradients) };
    let inputs = [&forward.inputs[..2], &[grad_loss], &forward.inputs[2..]].concat();
    for (i, sign) in [1.0, -1.0].into_iter().enumerate() {
        if forward.wanted[i] {
            gradients[i] = Some(graph.emit(GradInput { loss: *loss, sign }, &inputs)?);
        }
    }
    Ok(gradients)
}

/// Both tensors are read once, and so many more are moved.
pub(in crate::ops) fn cost<L: ElementwiseLoss>(inputs: &[TensorDesc], more: u64) -> Cost {
    Cost { flops: L::FLOPS * inputs[0].numel() as u64, bytes_moved: (2 + more) * inputs[0].size_bytes() }
}

/// A launch that binds `fixed` and then the weights, if there are any: the inputs from `first` on.
fn launch<L: ElementwiseLoss>(
    loss: &L,
    entry: &'static str,
    (fixed, first): (&[Slot], usize),
    inputs: &[TensorDesc],
    splits: usize,
    scale: f32,
) -> Dispatch {
    let (inner, channels) = channels(loss, inputs, first);
    let params = Params {
        elements: inputs[0].numel() as u32,
        splits: splits as u32,
        scale,
        setting: loss.setting(),
        inner: inner as u32,
        channels: channels as u32,
    };
    let weights = loss.weighted().then_some(Slot::Input(first));
    let bindings: Vec<_> = fixed.iter().copied().chain(weights).collect();
    let dispatch = Dispatch::new(L::NAME, entry, bindings).params(&params).linear(splits.div_ceil(64));
    let dispatch = dispatch.flags([("WEIGHTED", loss.weighted())]);
    if loss.sample_weights() {
        sample_weights::bind(dispatch, inputs, inputs.len() - 1, inputs[0].numel())
    } else {
        dispatch
    }
}

/// The launches of the mean.
pub(in crate::ops) fn dispatches<L: ElementwiseLoss>(loss: &L, inputs: &[TensorDesc]) -> Vec<Dispatch> {
    let numel = inputs[0].numel();
    let vectors = numel.div_ceil(4);
    let (splits, scale) = (reduction::splits(1, vectors), 1.0 / numel as f32);
    let partial = |sums: Slot, scale: f32| {
        let fixed = [Slot::Input(0), Slot::Input(1), sums];
        launch(loss, "forward", (&fixed, 2), inputs, splits, scale).loops(vectors.div_ceil(splits))
    };
    if splits == 1 {
        return vec![partial(Slot::Output(0), scale)];
    }
    vec![partial(Slot::Workspace(0), 1.0), reduction::combine(Slot::Workspace(0), Slot::Output(0), 1, splits, scale)]
}

/// Inputs, targets and weights, element by element.
fn elements<'a, T: Real>(
    input: &'a [T],
    target: &'a [T],
    weights: Option<&'a [T]>,
    (inner, channels): (usize, usize),
) -> impl Iterator<Item = (T, T, T)> + 'a {
    input.iter().zip(target).enumerate().map(move |(i, (&x, &t))| {
        let weight = weights.map_or(T::ONE, |weights| weights[i / inner % channels]);
        (x, t, weight)
    })
}

/// The CPU twin of the mean.
pub(in crate::ops) fn forward_twin<L: ElementwiseLoss, T: Real>(loss: &L, call: &mut Call<'_, T>) {
    let (input, target) = (call.input(0), call.input(1));
    let weights = loss.weighted().then(|| call.input(2));
    let factor = sample_weights::factors(call, loss.sample_weights(), input.len());
    let terms = elements(input, target, weights, channels(loss, call.input_descs, 2)).enumerate();
    let sum = sum(terms.map(|(i, (x, t, weight))| factor(i) * loss.value(x, t, weight)));
    call.output(0)[0] = sum / T::from_f64(input.len() as f64);
}

/// `grad_input = sign · grad_loss / n · weight · derivative`, weight that of the sample; inputs `input, target, grad_loss`, and all weights
/// that there are.
#[derive(Clone, Copy, Debug)]
struct GradInput<L> {
    loss: L,
    sign: f32,
}

impl<L: ElementwiseLoss> Op for GradInput<L> {
    fn name(&self) -> &'static str {
        L::GRAD_INPUT
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(vec![inputs[0].clone()])
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        cost::<L>(inputs, 1)
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (1, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let numel = inputs[0].numel();
        let fixed = [Slot::Input(0), Slot::Input(1), Slot::Input(2), Slot::Output(0)];
        let scale = self.sign / numel as f32;
        vec![launch(&self.loss, "grad_input", (&fixed, 3), inputs, numel.div_ceil(4), scale)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl<L: ElementwiseLoss> Native for GradInput<L> {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        native::grad_input(&self.loss, self.sign, call, with);
    }
}

impl<L: ElementwiseLoss> GradInput<L> {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, target, grad_loss) = (call.input(0), call.input(1), call.input(2)[0]);
        let weights = self.loss.weighted().then(|| call.input(3));
        let factor = T::from_f64(f64::from(self.sign)) / T::from_f64(input.len() as f64) * grad_loss;
        let sample = sample_weights::factors(call, self.loss.sample_weights(), input.len());
        let terms = elements(input, target, weights, channels(&self.loss, call.input_descs, 3)).enumerate();
        for (d, (i, (x, t, weight))) in call.output(0).iter_mut().zip(terms) {
            *d = factor * sample(i) * self.loss.gradient(x, t, weight);
        }
    }
}

/// The cases of every such loss: shapes of 1, primes, one element beside a vector, several partial sums.
pub(in crate::ops) fn cases<L: ElementwiseLoss>(loss: L, prefix: &str, targets: Fill) -> Vec<Case> {
    [vec![1], vec![7], vec![4, 5], vec![257], vec![2, 4099]]
        .into_iter()
        .map(|shape| case(loss, format!("{prefix}{}", shape_name(&shape)), &shape, targets))
        .collect()
}

/// The cases of such a loss with weights of samples: as many as rows, fewer, one.
pub(in crate::ops) fn sample_cases<L: ElementwiseLoss>(loss: L, prefix: &str, targets: Fill) -> Vec<Case> {
    [(7, vec![7]), (3, vec![6, 5]), (1, vec![4, 5]), (3, vec![9, 1, 7]), (2, vec![4, 2053])]
        .into_iter()
        .map(|(samples, shape)| {
            let name = format!("{prefix}samples{samples}_{}", shape_name(&shape));
            sample_weights::case(case(loss, name, &shape, targets), samples)
        })
        .collect()
}

/// One case, without weights.
pub(in crate::ops) fn case<L: ElementwiseLoss>(
    loss: L,
    name: impl Into<String>,
    shape: &[usize],
    targets: Fill,
) -> Case {
    let desc = TensorDesc::f32(shape);
    let numel = desc.numel();
    let case = Case::new(name, loss, [desc.clone(), desc]).fill(1, targets).reduction(numel);
    let case = if L::OF_DIFFERENCE { case } else { case.no_grad(1) };
    if numel > 1000 { case.large() } else { case }
}
