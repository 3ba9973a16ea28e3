//! What activations share: each is a function of one element, and runs in one pass over the tensor.

use crate::ops::onnx;
use std::fmt::Debug;

use crate::error::OpError;
use crate::native::Level;
use crate::ops::elementwise::formula::{self, Formula};
use crate::ops::elementwise::mask::{GradInputMask, Mask};
use crate::ops::{
    Backward, Builder, BuiltInActivation, Call, Case, Cost, Elements, Elementwise, Fill, Op, Probabilities, Real,
    expect_count, expect_dtype,
};
use crate::shader::WgslFile;
use crate::tensor::{DType, TensorDesc, ValueId};

/// A function of one element. Every activation is an [`Op`] with two functions in its file: `<file>_forward` of an element, and
/// `<file>_grad_input` of the saved element and the gradient for the output, both for vectors of four.
///
/// On a CPU, [`value`](Self::value) and [`gradient`](Self::gradient) are compiled for vectors: mark them `#[inline(always)]`,
/// and all that they call.
pub trait Activation: Copy + Debug + Send + Sync + 'static {
    /// Name of the op, and in this crate of its files.
    const NAME: &'static str;
    /// Where both functions are: an activation from outside this crate brings its own file.
    const FILE: WgslFile = WgslFile::of_crate(Self::NAME);
    /// Name of the backward op: `<NAME>.grad_input`.
    const GRAD_INPUT: &'static str;
    /// Floating-point operations on one element, for the cost model.
    const FLOPS: u64;

    /// The numbers that both functions take besides.
    fn settings(&self) -> Vec<f32> {
        Vec::new()
    }

    /// Refuses settings that make no sense.
    fn check(&self) -> Result<(), OpError> {
        Ok(())
    }

    /// The functions' names without `<file>_`, where settings choose among several.
    fn entries(&self) -> [&'static str; 2] {
        ["forward", "grad_input"]
    }

    /// Where backward needs to know of a saved element only whether it is above 0: the names of the ops `<NAME>.mask` and
    /// `<NAME>.grad_input_mask`, the latter of which is the same function of 1 or 0 in place of a saved element.
    const MASK: Option<[&'static str; 2]> = None;

    /// What the output is, where the function makes probabilities of scores.
    const PROBABILITIES: Option<Probabilities> = None;

    /// What it is, if some ops have it built in.
    const BUILT_IN: Option<BuiltInActivation> = None;

    /// The function in ONNX: adds nodes and returns the name of the output. `None` where it has no such form.
    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let _ = call;
        None
    }

    /// Whether backward reads the output; otherwise it reads the input.
    fn saves_output(&self) -> bool;

    /// The function.
    fn value<T: Real>(&self, x: T) -> T;

    /// The gradient for the input, from the saved element and the gradient for the output.
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T;
}

/// The gradient of an activation as a function of what it saved and the gradient for the output.
pub(in crate::ops) fn gradient<A: Activation>(activation: &A) -> Elementwise {
    Elementwise::new(A::FILE, activation.entries()[1], activation.settings())
}

/// Adds the gradient of an activation: of an op's own, or of one that an op applies to its output.
pub(in crate::ops) fn grad_input<A: Activation>(
    activation: A,
    graph: &mut dyn Builder,
    forward: &Backward<'_>,
    saved: ValueId,
    grad_output: ValueId,
) -> Result<ValueId, OpError> {
    if let Some([mask, grad_input]) = A::MASK
        && forward.packs(saved)
    {
        let mask = graph.emit_forward(Mask { name: mask }, &[saved])?;
        return graph.emit(GradInputMask { activation, name: grad_input }, &[mask, grad_output]);
    }
    graph.emit(GradInput(activation), &[saved, grad_output])
}

fn cost<A: Activation>(inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
    let bytes_moved = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum();
    Cost { flops: A::FLOPS * outputs[0].numel() as u64, bytes_moved }
}

impl<A: Activation> Op for A {
    fn name(&self) -> &'static str {
        A::NAME
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        Some(vec![self.in_onnx(call)?])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        self.check()?;
        expect_count(A::NAME, inputs, 1)?;
        expect_dtype(A::NAME, "input", &inputs[0], DType::F32)?;
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let saved = if self.saves_output() { forward.outputs[0] } else { forward.inputs[0] };
        Ok(vec![Some(grad_input(*self, graph, forward, saved, grad_output)?)])
    }

    fn probabilities(&self) -> Option<Probabilities> {
        A::PROBABILITIES
    }

    fn activation(&self) -> Option<BuiltInActivation> {
        A::BUILT_IN
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        cost::<A>(inputs, outputs)
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(Elementwise::new(A::FILE, self.entries()[0], self.settings()))
    }

    fn elements(&self) -> Option<&dyn Elements> {
        Some(self)
    }

    fn run_f32(&self, call: &mut Call<'_, f32>) {
        formula::twin(Value(*self), call);
    }

    fn run_f64(&self, call: &mut Call<'_, f64>) {
        formula::twin(Value(*self), call);
    }
}

impl<A: Activation> Elements for A {
    fn elements(&self, level: Level, operands: &[&[f32]], output: &mut [f32]) {
        formula::elements(Value(*self), level, operands, output);
    }
}

/// The function of an activation.
#[derive(Clone, Copy)]
struct Value<A>(A);

impl<A: Activation> Formula<1> for Value<A> {
    #[inline(always)]
    fn value<T: Real>(self, [x]: [T; 1]) -> T {
        self.0.value(x)
    }
}

/// The gradient of an activation; inputs `saved, grad_output`, where `saved` is the activation's input or output.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct GradInput<A>(pub(in crate::ops) A);

impl<A: Activation> Op for GradInput<A> {
    fn name(&self) -> &'static str {
        A::GRAD_INPUT
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count(A::GRAD_INPUT, inputs, 2)?;
        Ok(vec![inputs[1].clone()])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        cost::<A>(inputs, outputs)
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(1, 0), (0, 0)]
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(gradient(&self.0))
    }

    fn elements(&self) -> Option<&dyn Elements> {
        Some(self)
    }

    twin!();
}

impl<A: Activation> GradInput<A> {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        formula::twin(*self, call);
    }
}

impl<A: Activation> Elements for GradInput<A> {
    fn elements(&self, level: Level, operands: &[&[f32]], output: &mut [f32]) {
        formula::elements(*self, level, operands, output);
    }
}

impl<A: Activation> Formula<2> for GradInput<A> {
    #[inline(always)]
    fn value<T: Real>(self, [saved, grad_output]: [T; 2]) -> T {
        self.0.gradient(saved, grad_output)
    }
}

/// `2x3x5`: how cases are named after shapes.
pub(in crate::ops) fn shape_name(shape: &[usize]) -> String {
    shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

/// The cases of every activation: shapes of 1, primes, and one element beside a vector, a workgroup.
pub(in crate::ops) fn cases(activation: impl Activation, prefix: &str, fill: Fill) -> Vec<Case> {
    [vec![1], vec![7], vec![2, 3, 5], vec![257], vec![4, 64], vec![255], vec![1021, 3]]
        .into_iter()
        .map(|shape| {
            let case =
                Case::new(format!("{prefix}{}", shape_name(&shape)), activation, [TensorDesc::f32(shape.clone())]);
            let case = if shape.iter().product::<usize>() > 1000 { case.large() } else { case };
            case.fill(0, fill)
        })
        .collect()
}

/// A case far out on both sides, where a careless formula overflows.
pub(in crate::ops) fn extreme(activation: impl Activation, prefix: &str) -> Case {
    Case::new(format!("{prefix}extreme"), activation, [TensorDesc::f32([13])]).fill(0, Fill::Uniform(-100.0, 100.0))
}
