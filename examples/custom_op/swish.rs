//! Two ops that tightfit does not have, with their kernels: what a crate that brings its own would contain.
//!
//! - [`Swish`] is a function of single elements: two WGSL functions, and the trait `Activation` does the rest.
//! - [`TrainedSwish`] has kernels of its own: shape rule, gradient, cost, launches and CPU twin, as every op of tightfit.

use tightfit::error::OpError;
use tightfit::ops::reduce::sum::Sum;
use tightfit::ops::{
    Activation, Backward, Builder, Call, Cost, Dispatch, Op, Real, Slot, Target, expect_count, expect_dtype,
    expect_shape,
};
use tightfit::shader::WgslFile;
use tightfit::tensor::{DType, TensorDesc, ValueId};
use tightfit::testing::{Case, Entry, Fill};

/// `output = x · sigmoid(β x)` with a fixed β.
///
/// Source: <https://arxiv.org/abs/1710.05941>
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swish {
    pub(crate) beta: f32,
}

impl Activation for Swish {
    const NAME: &'static str = "swish";
    const FILE: WgslFile = WgslFile::new("swish", include_str!("swish.wgsl"));
    const GRAD_INPUT: &'static str = "swish.grad_input";
    const FLOPS: u64 = 6;

    fn settings(&self) -> Vec<f32> {
        vec![self.beta]
    }

    fn saves_output(&self) -> bool {
        false
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        x * sigmoid(T::from_f64(f64::from(self.beta)) * x)
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        grad_input(saved, T::from_f64(f64::from(self.beta)), grad_output)
    }
}

/// `output[n, c, …] = x · sigmoid(β[c] x)` with a β for each channel; inputs `x [N, C, …]` and `beta [C]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrainedSwish;

const FILE: WgslFile = WgslFile::new("trained_swish", include_str!("trained_swish.wgsl"));

tightfit::params! {
    /// As in `trained_swish.wgsl`: names, types and order are compared with it.
    struct Params {
        vectors: u32,
        channels: u32,
        inner: u32,
    }
}

/// Elements of one channel of one sample.
fn inner(x: &TensorDesc) -> usize {
    x.shape[2..].iter().product()
}

/// A launch of one of the kernels: four elements per invocation.
fn launch(entry: &'static str, bindings: impl Into<Vec<Slot>>, x: &TensorDesc) -> Vec<Dispatch> {
    let vectors = x.numel().div_ceil(4);
    let params = Params { vectors: vectors as u32, channels: x.shape[1] as u32, inner: inner(x) as u32 };
    vec![Dispatch::new(FILE, entry, bindings).params(&params).linear(vectors.div_ceil(64))]
}

impl Op for TrainedSwish {
    fn name(&self) -> &'static str {
        "trained_swish"
    }

    fn sample_inputs(&self) -> &[usize] {
        &[0]
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count(self.name(), inputs, 2)?;
        let [x, beta] = [&inputs[0], &inputs[1]];
        expect_dtype(self.name(), "x", x, DType::F32)?;
        expect_dtype(self.name(), "beta", beta, DType::F32)?;
        if x.shape.len() < 2 {
            let expected = "of a batch and channels".to_owned();
            return Err(OpError::Input { op: self.name(), input: "x", expected, found: x.clone() });
        }
        expect_shape(self.name(), "beta", beta, [x.shape[1]])?;
        Ok(vec![x.clone()])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let read = [forward.inputs[0], forward.inputs[1], grad_output];
        let grad_x = if forward.wanted[0] { Some(graph.emit(Gradient::Input, &read)?) } else { None };
        let grad_beta = if forward.wanted[1] {
            let terms = graph.emit(Gradient::BetaTerms, &read)?;
            let axes = (0..graph.desc(terms).shape.len()).filter(|&axis| axis != 1).collect();
            Some(graph.emit(Sum { axes, keepdim: false }, &[terms])?)
        } else {
            None
        };
        Ok(vec![grad_x, grad_beta])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let bytes_moved = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum();
        Cost { flops: Swish::FLOPS * outputs[0].numel() as u64, bytes_moved }
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &[(0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        launch("forward", [Slot::Input(0), Slot::Input(1), Slot::Output(0)], &inputs[0])
    }

    tightfit::twin!();
}

impl TrainedSwish {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let inner = inner(&call.input_descs[0]);
        let (x, beta) = (call.input(0), call.input(1));
        for (i, (y, &x)) in call.output(0).iter_mut().zip(x).enumerate() {
            *y = x * sigmoid(beta[i / inner % beta.len()] * x);
        }
    }
}

/// What backward runs; inputs `x`, `beta`, `grad_output`.
#[derive(Clone, Copy, Debug)]
enum Gradient {
    Input,
    /// What is summed up to the gradient of β.
    BetaTerms,
}

impl Op for Gradient {
    fn name(&self) -> &'static str {
        match self {
            Gradient::Input => "trained_swish.grad_input",
            Gradient::BetaTerms => "trained_swish.beta_terms",
        }
    }

    fn sample_inputs(&self) -> &[usize] {
        &[0, 2]
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count(self.name(), inputs, 3)?;
        Ok(vec![inputs[0].clone()])
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &[(2, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let entry = match self {
            Gradient::Input => "grad_input",
            Gradient::BetaTerms => "beta_terms",
        };
        launch(entry, [Slot::Input(0), Slot::Input(1), Slot::Input(2), Slot::Output(0)], &inputs[0])
    }

    tightfit::twin!();
}

impl Gradient {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let inner = inner(&call.input_descs[0]);
        let (x, beta, grad_output) = (call.input(0), call.input(1), call.input(2));
        for (i, (d, (&x, &g))) in call.output(0).iter_mut().zip(x.iter().zip(grad_output)).enumerate() {
            let beta = beta[i / inner % beta.len()];
            let s = sigmoid(beta * x);
            *d = match self {
                Gradient::Input => grad_input(x, beta, g),
                Gradient::BetaTerms => g * x * x * s * (T::ONE - s),
            };
        }
    }
}

/// `1 / (1 + exp(−x))`, by an exponential that cannot overflow.
fn sigmoid<T: Real>(x: T) -> T {
    let e = (-x.abs()).exp();
    (if x >= T::ZERO { T::ONE } else { e }) / (T::ONE + e)
}

fn grad_input<T: Real>(x: T, beta: T, grad_output: T) -> T {
    let s = sigmoid(beta * x);
    grad_output * s * (T::ONE + beta * x * (T::ONE - s))
}

/// What the ops are tested on, as those of tightfit: twin against finite differences, kernels against twin.
#[allow(dead_code)]
pub(crate) const ENTRIES: [Entry; 2] = [
    Entry { name: "swish", family: "custom", cases: swish_cases },
    Entry { name: "trained_swish", family: "custom", cases: trained_swish_cases },
];

fn swish_cases() -> Vec<Case> {
    let case = |name: &str, beta: f32, shape: &[usize]| Case::new(name, Swish { beta }, [TensorDesc::f32(shape)]);
    vec![
        case("one", 1.0, &[1]),
        case("2x3x5", 1.7, &[2, 3, 5]),
        case("257", -0.3, &[257]),
        case("extreme", 1.0, &[13]).fill(0, Fill::Uniform(-100.0, 100.0)),
    ]
}

fn trained_swish_cases() -> Vec<Case> {
    let case = |name: &str, shape: &[usize]| {
        let terms = shape.iter().product::<usize>() / shape[1];
        Case::new(name, TrainedSwish, [TensorDesc::f32(shape), TensorDesc::f32([shape[1]])]).reduction(terms)
    };
    vec![
        case("1x1", &[1, 1]),
        case("4x7", &[4, 7]),
        case("3x8", &[3, 8]),
        case("2x3x2x2", &[2, 3, 2, 2]),
        case("2x5x3", &[2, 5, 3]),
        case("frozen_beta", &[2, 5, 3]).no_grad(1),
        case("7x3x33x31", &[7, 3, 33, 31]).large(),
    ]
}
