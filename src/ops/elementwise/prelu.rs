//! Rectified linear unit with trained slopes.

use crate::error::OpError;
use crate::native::{Fast, Fold, Level, Terms};
use crate::ops::elementwise::activation::shape_name;
use crate::ops::elementwise::formula::{self, Formula};
use crate::ops::native::Repeated;
use crate::ops::onnx;
use crate::ops::reduce::reduction::{self, Axes};
use crate::ops::sums::Sums;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Elements, Fill, Native, Op, Real, Resources, Slot, Source,
    expect_count, expect_dtype, expect_shape, native,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output[n, c, …] = input[n, c, …]` where that is above 0, else `weight[c] · input[n, c, …]`
///
/// | tensor | shape |
/// |---|---|
/// | input | `[N, C, …]`; any where there is one weight |
/// | weight | `[C]`, or `[1]`: one for all channels |
/// | output | as input |
///
/// **Saved for backward:** input and weight. **In place:** yes, on the input, where no weight wants a gradient.
/// **Numerics:** the gradient at 0 is `weight`, as in PyTorch. That of the weight is a sum in f32, whose order depends on the
/// shape only; partial sums are those of [`Sum`](crate::ops::reduce::sum::Sum).
///
/// # Errors
/// Where an input is not f32 or the weight is neither `[1]` nor `[C]`.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.PReLU.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prelu;

params! {
    struct Params {
        vectors: u32,
        channels: u32,
        inner: u32,
    }
}

params! {
    struct SumParams {
        channels: u32,
        inner: u32,
        terms: u32,
        splits: u32,
    }
}

/// Elements of one channel of one sample.
fn inner(input: &TensorDesc, channels: usize) -> usize {
    if channels == 1 { input.numel() } else { input.shape[2..].iter().product() }
}

fn elementwise(entry: &'static str, bindings: &[Slot], input: &TensorDesc, weight: &TensorDesc) -> Vec<Dispatch> {
    let (vectors, channels) = (input.numel().div_ceil(4), weight.numel());
    let params = Params { vectors: vectors as u32, channels: channels as u32, inner: inner(input, channels) as u32 };
    vec![Dispatch::new("prelu", entry, bindings).params(&params).linear(vectors.div_ceil(64))]
}

impl Op for Prelu {
    fn name(&self) -> &'static str {
        "prelu"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let [value, slope] = [0, 1].map(|i| call.input(i));
        let slope = if call.extents(1) == [Some(1)] { slope } else { call.over_channels(&slope, call.rank(0)) };
        Some(vec![call.apply("PRelu", &[&value, &slope])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("prelu", inputs, 2)?;
        expect_dtype("prelu", "input", &inputs[0], DType::F32)?;
        expect_dtype("prelu", "weight", &inputs[1], DType::F32)?;
        if inputs[1].shape[..] != [1] {
            let channels = inputs[0].shape.get(1).copied().unwrap_or(1);
            expect_shape("prelu", "weight", &inputs[1], [channels])?;
        }
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let (input, weight) = (forward.inputs[0], forward.inputs[1]);
        let mut gradients = vec![None, None];
        if forward.wanted[1] {
            let channels = graph.desc(weight).numel();
            gradients[1] = Some(graph.emit(PreluGradWeight { channels }, &[input, grad_output])?);
        }
        if forward.wanted[0] {
            gradients[0] = Some(graph.emit(PreluGradInput, &[input, weight, grad_output])?);
        }
        Ok(gradients)
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        elementwise("forward", &[Slot::Input(0), Slot::Input(1), Slot::Output(0)], &inputs[0], &inputs[1])
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Prelu {
    fn takes_half(&self, operand: Slot) -> bool {
        operand != Slot::Input(1)
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let weight = of_channels(call);
        native::elementwise(&Rectified, vec![Source::of(&call.inputs[0]), Source::Made(&weight)], call, with);
    }
}

/// The slope of each element.
fn of_channels<'a>(call: &Call<'a, f32>) -> Repeated<'a> {
    let numbers = call.input(1);
    Repeated { numbers, inner: inner(&call.input_descs[0], numbers.len()) }
}

/// The function of an element and its slope; the gradient, of an element, its slope and the gradient for the output.
#[derive(Clone, Copy)]
struct Rectified;

impl Formula<2> for Rectified {
    #[inline(always)]
    fn value<T: Real>(self, [x, slope]: [T; 2]) -> T {
        if x > T::ZERO { x } else { slope * x }
    }
}

impl Formula<3> for Rectified {
    #[inline(always)]
    fn value<T: Real>(self, [x, slope, grad_output]: [T; 3]) -> T {
        if x > T::ZERO { grad_output } else { slope * grad_output }
    }
}

impl Elements for Rectified {
    fn elements(&self, level: Level, operands: &[&[f32]], output: &mut [f32]) {
        match operands.len() {
            2 => formula::elements::<2>(*self, level, operands, output),
            _ => formula::elements::<3>(*self, level, operands, output),
        }
    }
}

impl Prelu {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, weight) = (call.input(0), call.input(1));
        let inner = inner(&call.input_descs[0], weight.len());
        for (i, (y, &x)) in call.output(0).iter_mut().zip(input).enumerate() {
            *y = Rectified.value([x, weight[i / inner % weight.len()]]);
        }
    }
}

/// `grad_input = grad_output` where `input > 0`, else `weight · grad_output`; inputs `input, weight, grad_output`.
#[derive(Clone, Copy, Debug)]
struct PreluGradInput;

impl Op for PreluGradInput {
    fn name(&self) -> &'static str {
        "prelu.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("prelu.grad_input", inputs, 3)?;
        Ok(vec![inputs[2].clone()])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(2, 0), (0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Input(2), Slot::Output(0)];
        elementwise("grad_input", &bindings, &inputs[0], &inputs[1])
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for PreluGradInput {
    fn takes_half(&self, operand: Slot) -> bool {
        operand != Slot::Input(1)
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let weight = of_channels(call);
        let [input, grad_output] = [0, 2].map(|i| Source::of(&call.inputs[i]));
        native::elementwise(&Rectified, vec![input, Source::Made(&weight), grad_output], call, with);
    }
}

impl PreluGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, weight, grad_output) = (call.input(0), call.input(1), call.input(2));
        let inner = inner(&call.input_descs[0], weight.len());
        for (i, (d, (&x, &g))) in call.output(0).iter_mut().zip(input.iter().zip(grad_output)).enumerate() {
            *d = Rectified.value([x, weight[i / inner % weight.len()], g]);
        }
    }
}

/// `grad_weight[c] = Σ input · grad_output` where `input ≤ 0`; inputs `input, grad_output`.
#[derive(Clone, Copy, Debug)]
struct PreluGradWeight {
    channels: usize,
}

impl Op for PreluGradWeight {
    fn name(&self) -> &'static str {
        "prelu.grad_weight"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("prelu.grad_weight", inputs, 2)?;
        Ok(vec![TensorDesc::f32([self.channels])])
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        Cost { flops: 2 * inputs[0].numel() as u64, bytes_moved: 2 * inputs[0].size_bytes() }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        reduction::workspaces(self.channels, inputs[0].numel() / self.channels)
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let (channels, terms) = (self.channels, inputs[0].numel() / self.channels);
        reduction::split(channels, terms, 1.0, |sums, splits, _| {
            let params = SumParams {
                channels: channels as u32,
                inner: inner(&inputs[0], channels) as u32,
                terms: terms as u32,
                splits: splits as u32,
            };
            Dispatch::new("prelu", "grad_weight", [Slot::Input(0), Slot::Input(1), sums])
                .params(&params)
                .linear((channels * splits).div_ceil(64))
        })
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for PreluGradWeight {
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _threads: usize) -> Vec<u64> {
        self.axes(&inputs[0]).fold_workspaces()
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let terms = Terms { data: call.input(0), pairs: call.input(1), results: &[] };
        self.axes(&call.input_descs[0]).fold(Slopes, terms, 1.0, call.output(0), with);
    }
}

/// The sum of what slopes have part in.
#[derive(Clone, Copy)]
struct Slopes;

impl Fold for Slopes {
    const HAS_PAIRS: bool = true;
    const START: f32 = 0.0;

    #[inline(always)]
    fn term(self, x: Fast, grad_output: Fast, _: Fast) -> Fast {
        if x > Fast(0.0) { Fast(0.0) } else { x * grad_output }
    }

    #[inline(always)]
    fn join(self, a: Fast, b: Fast) -> Fast {
        a + b
    }
}

impl PreluGradWeight {
    /// The sums over all that has one slope.
    fn axes(&self, input: &TensorDesc) -> Axes {
        let axes: Vec<_> = (0..input.shape.len()).filter(|&axis| self.channels == 1 || axis != 1).collect();
        Axes::new(&input.shape, &axes)
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, grad_output) = (call.input(0), call.input(1));
        let inner = inner(&call.input_descs[0], self.channels);
        let mut sums = Sums::new(self.channels);
        for (i, (&x, &g)) in input.iter().zip(grad_output).enumerate() {
            let slope = if x > T::ZERO { T::ZERO } else { x * g };
            sums.add(i / inner % self.channels, slope);
        }
        sums.write(call.output(0));
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |prefix: &str, weights: usize, shape: &[usize]| {
        let descs = [TensorDesc::f32(shape), TensorDesc::f32([weights])];
        let terms = shape.iter().product::<usize>() / weights;
        let case = Case::new(format!("{prefix}{}", shape_name(shape)), Prelu, descs);
        case.fill(0, Fill::AwayFromZero(0.05)).reduction(terms)
    };
    let per_channel = |shape: &[usize]| case("", shape[1], shape);
    vec![
        per_channel(&[1, 1]),
        per_channel(&[4, 7]),
        per_channel(&[3, 8]),
        per_channel(&[2, 5, 3]),
        per_channel(&[2, 3, 4, 5]),
        case("shared_", 1, &[7]),
        case("shared_", 1, &[2, 3, 5]),
        case("zeros_", 3, &[2, 3]).fill(0, Fill::Constant(0.0)).large(),
        per_channel(&[1031, 12]).large(),
        per_channel(&[7, 3, 33, 31]).large(),
        case("shared_", 1, &[3, 5, 41, 43]).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_does_not_fit() {
        let outputs = |input: &[usize], weight: &[usize]| {
            Prelu.outputs(&[TensorDesc::f32(input), TensorDesc::f32(weight)]).map_err(|error| error.to_string())
        };
        assert!(outputs(&[2, 3, 4], &[3]).is_ok() && outputs(&[2, 3, 4], &[1]).is_ok());
        assert!(outputs(&[2, 3, 4], &[4]).is_err_and(|e| e.contains("`weight` must be of shape [3]")));
        assert!(outputs(&[2], &[2]).is_err());
    }
}
