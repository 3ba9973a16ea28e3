//! What `amax` and `amin` share: launches, twins, the gradient, test cases; the Rust side of `shaders/shared/extremum.wgsl`.

use crate::error::OpError;
use crate::native::{Fast, Fold, Terms};
use crate::ops::reduce::reduction::{self, Axes};
use crate::ops::reduce::sum;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Fill, Native, Op, Real, Resources, Slot, expect_count, expect_shape,
};
use crate::shader::Target;
use crate::tensor::{TensorDesc, ValueId};

/// From so many partial results on, a workgroup compares them.
const WORKGROUP_SPLITS: usize = 32;

params! {
    struct CombineParams {
        outputs: u32,
        splits: u32,
    }
}

/// The launches of the file `amax` or `amin`.
pub(in crate::ops) fn dispatches(file: &'static str, input: &TensorDesc, axes: &[usize]) -> Vec<Dispatch> {
    let axes = Axes::new(&input.shape, axes);
    let splits = reduction::splits(axes.outputs, axes.terms);
    let partial = |to| {
        let dispatch = Dispatch::new(file, "forward", [Slot::Input(0), to]).loops(axes.terms.div_ceil(splits));
        axes.launch(dispatch, splits, 1.0, 1)
    };
    if splits == 1 {
        return vec![partial(Slot::Output(0))];
    }
    let lanes = reduction::lanes(splits, WORKGROUP_SPLITS);
    let combine = Dispatch::new(file, "combine", [Slot::Workspace(0), Slot::Output(0)])
        .params(&CombineParams { outputs: axes.outputs as u32, splits: splits as u32 })
        .loops(splits.div_ceil(lanes) + 8);
    vec![partial(Slot::Workspace(0)), reduction::over_rows(combine, axes.outputs, lanes)]
}

/// The CPU twin, where `is_beyond` says whether an element takes the place of the extremum so far.
pub(in crate::ops) fn twin<T: Real>(call: &mut Call<'_, T>, axes: &[usize], is_beyond: impl Fn(T, T) -> bool) {
    let axes = Axes::new(&call.input_descs[0].shape, axes);
    let input = call.input(0);
    let mut extrema = vec![None; axes.outputs];
    for (i, &x) in input.iter().enumerate() {
        let extremum = &mut extrema[axes.to_output().offset(i)];
        if extremum.is_none_or(|extremum| is_beyond(x, extremum) || x.is_nan()) {
            *extremum = Some(x);
        }
    }
    for (y, extremum) in call.output(0).iter_mut().zip(extrema) {
        *y = extremum.expect("bug: an output of no element");
    }
}

/// Adds the gradient: of the elements that are equal to their output, an equal part for each.
pub(in crate::ops) fn backward(
    [ties, grad_input]: [&'static str; 2],
    file: &'static str,
    axes: &[usize],
    graph: &mut dyn Builder,
    forward: &Backward<'_>,
) -> Result<Vec<Option<ValueId>>, OpError> {
    let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
    let (input, output) = (forward.inputs[0], forward.outputs[0]);
    let ties = graph.emit(Ties { name: ties, file, axes: axes.to_vec() }, &[input, output])?;
    let grad_input = ExtremumGradInput { name: grad_input, file, axes: axes.to_vec() };
    Ok(vec![Some(graph.emit(grad_input, &[input, output, ties, grad_output])?)])
}

/// `ties = the number of elements of input that are equal to their output`; inputs `input, output`.
#[derive(Clone, Debug)]
struct Ties {
    /// `amax.ties`
    name: &'static str,
    file: &'static str,
    axes: Vec<usize>,
}

impl Op for Ties {
    fn name(&self) -> &'static str {
        self.name
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count(self.name, inputs, 2)?;
        Ok(vec![inputs[1].clone()])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        sum::cost(inputs, outputs)
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        let axes = Axes::new(&inputs[0].shape, &self.axes);
        reduction::workspaces(axes.outputs, axes.terms)
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let axes = Axes::new(&inputs[0].shape, &self.axes);
        reduction::split(axes.outputs, axes.terms, 1.0, |counts, splits, scale| {
            let dispatch = Dispatch::new(self.file, "ties", [Slot::Input(0), Slot::Input(1), counts]);
            axes.launch(dispatch, splits, scale, 1)
        })
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Ties {
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _threads: usize) -> Vec<u64> {
        Axes::new(&inputs[0].shape, &self.axes).fold_workspaces()
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let terms = Terms { data: call.input(0), pairs: &[], results: call.input(1) };
        Axes::new(&call.input_descs[0].shape, &self.axes).fold(Equal, terms, 1.0, call.output(0), with);
    }
}

/// How many terms are the extremum.
#[derive(Clone, Copy)]
struct Equal;

impl Fold for Equal {
    const HAS_RESULTS: bool = true;
    const START: f32 = 0.0;

    #[inline(always)]
    fn term(self, x: Fast, _: Fast, extremum: Fast) -> Fast {
        Fast(if x == extremum { 1.0 } else { 0.0 })
    }

    #[inline(always)]
    fn join(self, a: Fast, b: Fast) -> Fast {
        a + b
    }
}

impl Ties {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let axes = Axes::new(&call.input_descs[0].shape, &self.axes);
        let (input, extrema) = (call.input(0), call.input(1));
        let counts = call.output(0);
        counts.fill(T::ZERO);
        for (i, &x) in input.iter().enumerate() {
            let o = axes.to_output().offset(i);
            if x == extrema[o] {
                counts[o] += T::ONE;
            }
        }
    }
}

/// `grad_input = grad_output / ties` where the element is equal to its output, else 0; inputs `input, output, ties, grad_output`.
#[derive(Clone, Debug)]
struct ExtremumGradInput {
    /// `amax.grad_input`
    name: &'static str,
    file: &'static str,
    axes: Vec<usize>,
}

impl Op for ExtremumGradInput {
    fn name(&self) -> &'static str {
        self.name
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count(self.name, inputs, 4)?;
        expect_shape(self.name, "grad_output", &inputs[3], inputs[1].shape.clone())?;
        Ok(vec![inputs[0].clone()])
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let axes = Axes::new(&inputs[0].shape, &self.axes);
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Input(2), Slot::Input(3), Slot::Output(0)];
        vec![
            Dispatch::new(self.file, "grad_input", bindings)
                .params(&axes.to_output().params(1.0))
                .linear(inputs[0].numel().div_ceil(64)),
        ]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for ExtremumGradInput {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let axes = Axes::new(&call.input_descs[0].shape, &self.axes);
        let (input, extrema, ties, grad_output) = (call.input(0), call.input(1), call.input(2), call.input(3));
        let (run, stride) = axes.to_output().inner();
        with.cores.rows(call.output(0), run, |row, column, output| {
            let first = axes.to_output().offset(row * run) + column * stride;
            let input = &input[row * run + column..];
            for (i, (d, &x)) in output.iter_mut().zip(input).enumerate() {
                let o = first + i * stride;
                *d = if x == extrema[o] { grad_output[o] / ties[o] } else { 0.0 };
            }
        });
    }
}

impl ExtremumGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let axes = Axes::new(&call.input_descs[0].shape, &self.axes);
        let (input, extrema, ties, grad_output) = (call.input(0), call.input(1), call.input(2), call.input(3));
        for (i, d) in call.output(0).iter_mut().enumerate() {
            let o = axes.to_output().offset(i);
            *d = if input[i] == extrema[o] { grad_output[o] / ties[o] } else { T::ZERO };
        }
    }
}

/// The cases of both.
pub(in crate::ops) fn cases<O: Op>(op: impl Fn(Vec<usize>, bool) -> O) -> Vec<Case> {
    let mut cases: Vec<_> =
        sum::axis_cases(&op).into_iter().map(|case| case.fill(0, Fill::Distinct(0.01)).reduction(1)).collect();
    let case = |name: &str, axes: &[usize], shape: &[usize], fill| {
        Case::new(name, op(axes.to_vec(), false), [TensorDesc::f32(shape)]).fill(0, fill).large()
    };
    cases.extend([
        case("ties_axis1_3x4", &[1], &[3, 4], Fill::Constant(-0.5)),
        case("ties_2x3x5", &[0, 2], &[2, 3, 5], Fill::Labels(3)),
        case("ties_split_2x5003", &[1], &[2, 5003], Fill::Labels(7)),
        case("nan_axis1_2x3", &[1], &[2, 3], Fill::Constant(f32::NAN)),
        case("infinite_axis0_5x3", &[0], &[5, 3], Fill::Constant(f32::NEG_INFINITY)),
    ]);
    cases
}
