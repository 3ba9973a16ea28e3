//! Ops, the operations that a graph is made of, in folders by family: each has its shape rule, cost, gradient, kernels, CPU twin (the
//! same in plain Rust, the reference) and test cases in one file.
//!
//! An op is a trait object; no stage of the engine matches on which op it is. Ops lie in folders by family. Adding one touches
//! three files: `ops/<family>/foo.rs`, `shaders/<family>/foo.wgsl` and one line in the list of `ops/<family>/mod.rs`.
//!
//! # Ops from outside this crate
//!
//! An op that is written elsewhere is as good as one of these: it is planned, recomputed, run in place, fused and trained like
//! them. [`Scope::apply`](crate::nn::Scope::apply) puts it into a model,
//! [`Tensor::with_ops`](crate::nn::Tensor::with_ops) without a layer of its own. `examples/custom_op` has two, with their tests.
//!
//! - A function of single elements implements [`Activation`]: its value and its gradient in Rust, and two functions in WGSL, in a
//!   [`WgslFile`](crate::shader::WgslFile) of its own.
//! - Any other implements [`Op`]: [`outputs`](Op::outputs) with the `expect_…` functions, [`backward`](Op::backward), which adds nodes
//!   through a [`Builder`], the CPU twin with [`twin!`](crate::twin!) over [`Call`] and [`Real`], and
//!   [`dispatches`](Op::dispatches), which returns a [`Dispatch`] for each launch, with its [`Slot`]s and the parameters that
//!   [`params!`](crate::params!) declares. The header of a file in `shaders/shared/` says what it offers to those who import it.
//! - [`check_launches`] compiles its kernels in every variant without a device and compares them with what the op launches; every
//!   launch on a device is compared again. `testing::run_op` (feature `testing`) runs it alone, to compare it with the twin.

#[macro_use]
mod params;

mod call;
#[cfg_attr(not(any(test, feature = "testing")), allow(dead_code))]
pub(crate) mod case;
mod check;
mod dispatch;
mod launches;
mod native;
pub mod onnx;
mod parts;
mod place;
mod real;
pub(crate) mod stored;
mod sums;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use call::{Call, Input, Output};
pub(crate) use case::{Case, Entry, Fill};
pub use check::{expect_count, expect_dtype, expect_finite, expect_rank, expect_shape};
pub use dispatch::{Dispatch, MAX_LOOP_ITERATIONS, Slot};
pub use elementwise::activation::Activation;
pub use elementwise::function::Elementwise;
pub use launches::{LaunchError, check_launches};
#[doc(hidden)]
pub use native::{Elements, Epilogue, Make, Native, Resources, Source};
pub use norm::normalization::Affine;
pub use params::{KernelParams, Number};
pub use parts::{OutputPart, Parts};
pub use real::Real;
pub use recurrent::cell::{Cell, Recurrent};
pub(crate) use stored::{run_native, run_twin, workspaces};

use crate::error::OpError;
pub use crate::shader::{Family, Target};
use crate::tensor::{Half, TensorDesc, ValueId};

/// What running an op once costs, for the planner's time model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations (a multiply-add counts two).
    pub flops: u64,
    /// Bytes read from and written to device memory.
    pub bytes_moved: u64,
}

/// What the planner must respect beyond data flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// Must run exactly once per step: it changes a value in place (updates, accumulation, running statistics).
    pub once: bool,
    /// Draws random numbers.
    pub rng: bool,
    /// Sample `i` of the outputs depends on sample `i` of the inputs only, so a batch can be split.
    pub batch_separable: bool,
}

impl Default for Flags {
    fn default() -> Self {
        Flags { once: false, rng: false, batch_separable: true }
    }
}

/// What an op takes the integers of an input for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integers {
    /// Each is an index: below `count`, or `besides`.
    Indices {
        /// How many there are to choose from.
        count: usize,
        /// One more that is allowed: a label that is ignored.
        besides: Option<u32>,
    },
    /// Each is a number of steps, from 1. A sequence may run in parts, each an op that ends with step `end`: the last one's is
    /// the largest number.
    Steps {
        /// Steps up to the end of this part.
        end: usize,
    },
}

/// What a model makes that does not end in plain scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probabilities {
    /// Of classes, which add up to 1.
    Softmax,
    /// Logarithms of these.
    LogSoftmax,
    /// Each by itself.
    Sigmoid,
}

/// In which form forward keeps what backward reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SavedActivations {
    /// As forward has it.
    #[default]
    Full,
    /// In fewer bytes, for some more work: signs packed into bits, indices packed into a few bits each, gates
    /// recomputed. The gradients are the same, bit for bit.
    Compressed,
    /// So, and what remains in 16 bits: forward computes with f32, and makes copies for backward. Gradients are rounded.
    Half(Half),
}

impl SavedActivations {
    /// Whether ops keep less than they have.
    pub fn is_compressed(self) -> bool {
        self != SavedActivations::Full
    }
}

/// An activation that the kernels of some ops have built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltInActivation {
    /// `max(x, 0)`
    Relu,
}

/// Adds nodes to the graph under construction, for [`Op::backward`].
pub trait Builder {
    /// Runs `op` on `inputs`; returns its outputs.
    fn apply(&mut self, op: Arc<dyn Op>, inputs: &[ValueId]) -> Result<Vec<ValueId>, OpError>;
    /// Runs `op` on forward values as a part of forward, right after they are made: it makes what backward reads in place of
    /// them.
    fn apply_forward(&mut self, op: Arc<dyn Op>, inputs: &[ValueId]) -> Result<Vec<ValueId>, OpError>;
    /// Shape and element type of a value.
    fn desc(&self, value: ValueId) -> &TensorDesc;
}

impl dyn Builder + '_ {
    /// Runs an op that has one output.
    pub fn emit(&mut self, op: impl Op, inputs: &[ValueId]) -> Result<ValueId, OpError> {
        Ok(self.apply(Arc::new(op), inputs)?[0])
    }

    /// Runs an op that has one output as a part of forward: see [`Builder::apply_forward`].
    pub fn emit_forward(&mut self, op: impl Op, inputs: &[ValueId]) -> Result<ValueId, OpError> {
        Ok(self.apply_forward(Arc::new(op), inputs)?[0])
    }
}

/// A forward node as its backward sees it.
#[derive(Clone, Copy, Debug)]
pub struct Backward<'a> {
    /// Inputs of the forward node.
    pub inputs: &'a [ValueId],
    /// Outputs of the forward node.
    pub outputs: &'a [ValueId],
    /// Gradient of the loss for each output; `None` where the loss does not depend on it.
    pub grad_outputs: &'a [Option<ValueId>],
    /// Which inputs need a gradient.
    pub wanted: &'a [bool],
    /// In which form forward values are kept.
    pub saved: SavedActivations,
    /// Forward values that stay in memory for backward whatever this op reads.
    pub kept: &'a BTreeSet<ValueId>,
}

impl Backward<'_> {
    /// Whether reading a compressed form in place of a forward value saves memory: the compressed form is asked for, and nothing else
    /// keeps the value.
    pub fn packs(&self, value: ValueId) -> bool {
        self.saved.is_compressed() && !self.kept.contains(&value)
    }
}

/// One operation of a graph, forward, backward or update.
///
/// `Debug` must print every setting: it is part of a graph's hash.
pub trait Op: fmt::Debug + Send + Sync + 'static {
    /// The kernel's name: `conv2d`, `conv2d.grad_weight`.
    fn name(&self) -> &'static str;

    /// The shape rule: outputs for these inputs, or why they do not fit.
    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError>;

    /// Adds the nodes that compute the gradients of `forward.inputs`, in that order. An entry may be `None` where
    /// `wanted` is false. Values used here are what backward keeps alive.
    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let _ = (graph, forward);
        Err(OpError::NotDifferentiable { op: self.name() })
    }

    /// The op that runs in place of this one where activations are saved compressed ([`SavedActivations::Compressed`]), if it is
    /// another: of the same inputs it makes the same outputs, but that those which only its own backward reads may be
    /// smaller.
    fn compressed(&self) -> Option<Arc<dyn Op>> {
        None
    }

    /// Whether backward, with the compressed form, computes again what forward had: from values that were rounded in between, that
    /// is not the same.
    fn recomputes_compressed(&self) -> bool {
        false
    }

    /// The activation that the op is, if some ops have it built in.
    fn activation(&self) -> Option<BuiltInActivation> {
        None
    }

    /// The op that computes this one and then the activation of its output 0, if its kernels have that built in. It takes the
    /// same inputs, and has a gradient of its own.
    fn with_activation(&self, activation: BuiltInActivation) -> Option<Arc<dyn Op>> {
        let _ = activation;
        None
    }

    /// Whether the activation may run on the op's output 0 in place of its only input: outputs and gradients then have the same
    /// bits.
    fn commutes_with(&self, activation: BuiltInActivation) -> bool {
        let _ = activation;
        false
    }

    /// How the op computes each element of its only output from the elements of its inputs at the same place, and nothing
    /// else, where it does so. Output and inputs have one shape; of an input of type u32, each element takes a bit.
    fn elementwise(&self) -> Option<Elementwise> {
        None
    }

    /// Whether elementwise ops may run on output 0 before it is written ([`Fused`](elementwise::fused::Fused)): each of its elements is
    /// written once, and the launches that bind it are of kernels with an epilogue, as `shaders/shared/fused.wgsl` says.
    fn takes_epilogue(&self) -> bool {
        self.elementwise().is_some()
    }

    /// Whether an output stays f32 where activations are stored in 16 bits: statistics that others are divided by, sums of many
    /// numbers, and numbers that stand for places.
    fn full_precision(&self, output: usize) -> bool {
        let _ = output;
        false
    }

    /// What the op takes the integers of an input for, where it can take some only: they are checked before they are fed.
    fn integers(&self, input: usize, inputs: &[TensorDesc]) -> Option<Integers> {
        let _ = (input, inputs);
        None
    }

    /// What the output is, where the op makes probabilities of scores: a loss on scores would do so again.
    fn probabilities(&self) -> Option<Probabilities> {
        None
    }

    /// Flops and bytes of one run. The default is an elementwise pass.
    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let bytes = |t: &[TensorDesc]| t.iter().map(TensorDesc::size_bytes).sum::<u64>();
        Cost {
            flops: outputs.iter().map(|t| t.numel() as u64).sum(),
            bytes_moved: bytes(inputs)
                + bytes(outputs)
                + self.mutates().iter().map(|&i| inputs[i].size_bytes()).sum::<u64>(),
        }
    }

    /// Under which name its time is known: the op's, followed by a word where other code runs for some shapes, which takes another time for
    /// a flop (`conv2d.depthwise`).
    fn cost_name(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> &'static str {
        self.name()
    }

    /// Scratch buffers in bytes, alive only while the op runs.
    fn workspaces(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Vec<u64> {
        let _ = (inputs, outputs);
        Vec::new()
    }

    /// What the planner must respect beyond data flow.
    fn flags(&self) -> Flags {
        Flags::default()
    }

    /// What to do, besides leaving the batch whole, where the op mixes samples and a batch shall be split.
    fn split_advice(&self) -> Option<&'static str> {
        None
    }

    /// Pairs (input, output): the output may take the input's place in memory when the input dies here. The kernel
    /// then runs with `IN_PLACE_<input>` defined and that input unbound.
    fn in_place(&self) -> &[(usize, usize)] {
        &[]
    }

    /// Inputs that the op changes in place (updates). Such an op sets [`Flags::once`].
    fn mutates(&self) -> &'static [usize] {
        &[]
    }

    /// True where output 0 is input 0 under another shape: no kernel runs and both share memory.
    fn is_view(&self) -> bool {
        false
    }

    /// True where nothing that depends on the op's outputs gives its inputs a gradient: to backward they are as if given.
    fn stops_gradients(&self) -> bool {
        false
    }

    /// The op in ONNX, in inference: adds nodes and returns the names of the outputs, at least of those that are read. `None` where it has
    /// no such form.
    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let _ = call;
        None
    }

    /// The kernels to run, in order. The default is that of an elementwise op.
    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        let _ = target;
        let function = self.elementwise().expect("bug: an op has neither kernels nor an elementwise function");
        vec![elementwise::function::dispatch(&function, inputs, &outputs[0])]
    }

    /// Inputs that hold one sample after another along their first axis, as all outputs do, where a sample of the outputs depends on
    /// the same sample of these alone, and on the whole of all other inputs. Without a native form, the twin of such an op runs on
    /// all cores of a CPU, some samples on each; of any other, on one.
    fn sample_inputs(&self) -> &[usize] {
        &[]
    }

    /// The op on the vectors and threads of a CPU, if it has such a form. Otherwise it is [`elements`](Op::elements) or the twin that
    /// runs there.
    #[doc(hidden)]
    fn native(&self) -> Option<&dyn Native> {
        None
    }

    /// An elementwise op as a function on the vectors of a CPU.
    #[doc(hidden)]
    fn elements(&self) -> Option<&dyn Elements> {
        None
    }

    /// The CPU twin in f32. Written once, generic, with [`twin!`](crate::twin).
    fn run_f32(&self, call: &mut Call<'_, f32>);

    /// The CPU twin in f64, for finite differences.
    fn run_f64(&self, call: &mut Call<'_, f64>);
}

/// Implements [`Op::run_f32`] and [`Op::run_f64`] by an inherent `fn twin<T: Real>(&self, call: &mut Call<'_, T>)`.
#[macro_export]
#[doc(hidden)]
macro_rules! twin {
    () => {
        fn run_f32(&self, call: &mut $crate::ops::Call<'_, f32>) {
            self.twin(call);
        }
        fn run_f64(&self, call: &mut $crate::ops::Call<'_, f64>) {
            self.twin(call);
        }
    };
}

/// How an optimizer appears in a graph: one update node per parameter, and its state.
///
/// The node's inputs are `parameter, gradient, states…, hyper, guard`; it mutates the parameter and the states and has
/// no outputs. `hyper` is a small f32 tensor that the trainer uploads each step (learning rate, bias corrections).
/// Where `guard[0]` is not finite, the update leaves everything as it was.
pub trait UpdateRule: fmt::Debug + Send + Sync {
    /// The op of a parameter's update node.
    fn op(&self, parameter: &TensorDesc) -> Arc<dyn Op>;
    /// The states kept for a parameter, by name. They begin as zeros.
    fn states(&self, parameter: &TensorDesc) -> Vec<(&'static str, TensorDesc)>;
    /// The contents of `hyper` for step `step` (from 1) at a learning rate.
    fn hyper(&self, step: u64, lr: f64) -> [f32; HYPER_LEN];
}

/// Elements of the `hyper` input of update nodes.
pub const HYPER_LEN: usize = 4;

/// The ops of a family, one line each.
macro_rules! ops {
    ($($name:ident),* $(,)?) => {
        $(#[allow(clippy::module_inception)] pub mod $name;)*

        pub(super) fn entries(family: &'static str) -> Vec<$crate::ops::Entry> {
            vec![$($crate::ops::Entry { name: stringify!($name), family, cases: $name::cases }),*]
        }
    };
}

macro_rules! families {
    ($($name:ident),* $(,)?) => {
        $(pub mod $name;)*

        /// Every op with its test cases, by name.
        #[cfg_attr(not(any(test, feature = "testing")), allow(dead_code))]
        pub(crate) fn all() -> Vec<Entry> {
            let mut all: Vec<_> = [$($name::entries(stringify!($name))),*].concat();
            all.sort_unstable_by_key(|entry| entry.name);
            all
        }
    };
}

families! {
    conv,
    elementwise,
    embedding,
    loss,
    matmul,
    norm,
    optim,
    pool,
    random,
    recurrent,
    reduce,
    shape,
}
