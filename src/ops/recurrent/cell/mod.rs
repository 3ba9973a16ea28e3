//! What recurrent ops share, which is everything but the arithmetic of a cell.
//!
//! A step is two launches, the product of the states before it with W_hh and the cell's own kernel, or one that does both: see
//! `tile`. Other products with inputs and the sums that make the gradients of weights go over chunks of steps.

mod backward;
mod cases;
mod chunk;
mod forward;
mod native;
mod tile;

use crate::ops::onnx;
use std::fmt::Debug;

pub(in crate::ops) use self::cases::{case, cases};
use self::chunk::Chunk;
use crate::ops::elementwise::function;
use crate::ops::matmul::gemm::{Gemm, Matrix, View, multiply};
use crate::ops::{Call, Dispatch, Real, SavedActivations, Slot};
use crate::shader::Target;
use crate::tensor::TensorDesc;

/// What a cell keeps of a unit at a step for backward.
const KEPT: usize = 4;

/// The arithmetic of a recurrent op: how sums over inputs and over states become gates, gates and states new states, and
/// how the gradients go back. The op is [`Recurrent`]; its kernels are `forward_step`, `recompute_gates` and `backward_step`
/// of `shaders/<NAME>.wgsl` and what that imports from `shaders/shared/recurrent.wgsl` and `recurrent_tile.wgsl`. Mark its functions
/// `#[inline(always)]`: on a CPU they are parts of loops over vectors.
pub trait Cell: Copy + Default + Debug + Send + Sync + 'static {
    /// Name of the op and of its files.
    const NAME: &'static str;
    /// Name of the backward op: `<NAME>.backward`.
    const BACKWARD: &'static str;
    /// How an error names the outputs that only backward reads.
    const INNER: &'static str;
    /// Gates of a unit: `weight_ih` is `[GATES·H, I]`.
    const GATES: usize;
    /// The gate that keeps what the cell has, if one does: its bias may start at 1.
    const FORGET_GATE: Option<usize>;
    /// Names of the initial states, the hidden state's first.
    const STATES: &'static [&'static str];
    /// Whether sums over inputs and over states are kept apart, because the cell does more with them than to add them.
    const APART: bool;

    /// The operator of ONNX that has this cell, its gates by their numbers here in the order of there, and its settings.
    fn in_onnx() -> Option<onnx::RecurrentOperator> {
        None
    }

    /// What the cell keeps of a unit, from its sums over inputs and over states with their biases, [`Cell::GATES`] of each.
    fn gates<T: Real>(input: [T; 4], hidden: [T; 4]) -> [T; 4];

    /// The states of a unit after a step, from its gates and the states before.
    fn step<T: Real>(gates: [T; 4], earlier: [T; 2]) -> [T; 2];

    /// The gradients of a unit's sums over inputs, of those over states, and of the states before, from the states before
    /// and after and the gradients of the latter.
    fn step_back<T: Real>(gates: [T; 4], earlier: [T; 2], now: [T; 2], grad: [T; 2]) -> ([[T; 4]; 2], [T; 2]);
}

/// A recurrent op over a time axis: see [`lstm::Lstm`](crate::ops::recurrent::lstm::Lstm), [`gru::Gru`](crate::ops::recurrent::gru::Gru),
/// [`rnn::Rnn`](crate::ops::recurrent::rnn::Rnn) and [`rnn_relu::RnnRelu`](crate::ops::recurrent::rnn_relu::RnnRelu).
///
/// **Lengths.** Where they are given, sample b has `lengths[b]` steps, as in PyTorch's packed sequences. Hidden states of later
/// steps are zeros, no gradient goes through them, and the last states are those of the last step that the sample has; of a
/// sample of no steps, the initial ones. What the input holds at later steps has no influence but that it must be finite.
/// A sequence can run in parts: `lengths: Some(start)` says that step 0 of this run is step `start` of the lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrent<C> {
    /// What happens at a step.
    pub cell: C,
    /// Hidden units H.
    pub hidden: usize,
    /// Whether the initial states are given; else they are zeros.
    pub has_initial: bool,
    /// Where the samples' lengths are given: the step of the whole sequence that this run begins with.
    pub lengths: Option<usize>,
    /// Whether the gates are kept for backward.
    pub saved: SavedActivations,
}

impl<C: Cell> Recurrent<C> {
    /// This many hidden units, from states of zeros, all steps of all samples.
    pub fn new(hidden: usize) -> Self {
        Recurrent { cell: C::default(), hidden, has_initial: false, lengths: None, saved: SavedActivations::Full }
    }

    /// The initial states are given.
    #[must_use]
    pub fn with_initial(self) -> Self {
        Recurrent { has_initial: true, ..self }
    }

    /// The samples' lengths are given, in a sequence of which this run begins with step `start`.
    #[must_use]
    pub fn with_lengths(self, start: usize) -> Self {
        Recurrent { lengths: Some(start), ..self }
    }

    /// Outputs: hidden states of all steps, last states, other states of all steps, gates.
    const GATES_OUTPUT: usize = 2 * C::STATES.len();

    /// Output that holds the states of all steps: the hidden ones, or the others.
    fn states_output(state: usize) -> usize {
        if state == 0 { 0 } else { C::STATES.len() + state }
    }

    /// Steps that the output of gates holds: all, or those of one chunk where backward recomputes them.
    fn gate_steps(&self, batch: usize, time: usize) -> usize {
        match self.saved {
            SavedActivations::Full => time,
            SavedActivations::Compressed | SavedActivations::Half(_) => chunk::length(batch, time),
        }
    }
}

/// The sizes of one run, and how the rows of a cell lie in memory.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    file: &'static str,
    batch: usize,
    time: usize,
    input: usize,
    hidden: usize,
    /// The step of the whole sequence that the run begins with, where lengths are given.
    start: usize,
    /// Sums of a unit over inputs, and as many over states.
    gates: usize,
    apart: bool,
}

/// Steps that a buffer holds, and which of them is at hand.
type TimeIndex = [usize; 2];

/// The step at hand, and where it is in buffers of gates and of their gradients.
#[derive(Clone, Copy, Debug)]
struct At {
    t: usize,
    gates: TimeIndex,
    grads: TimeIndex,
}

params! {
    /// Parameters of the cells' kernels.
    struct Params {
        count: u32,
        batch: u32,
        hidden: u32,
        time: u32,
        t: u32,
        start: u32,
        grads_width: u32,
        gates: [u32; 2] as [gates_time, gates_t],
        grads: [u32; 2] as [grads_time, grads_t],
        gates_width: u32,
        steps: u32,
        input: u32,
        blocks: u32,
        tiles: u32,
    }
}

impl Sizes {
    fn new<C: Cell>(op: &Recurrent<C>, input: &TensorDesc) -> Self {
        let [batch, time, input] = [0, 1, 2].map(|i| input.shape[i]);
        let start = op.lengths.unwrap_or(0);
        Sizes { file: C::NAME, batch, time, input, hidden: op.hidden, start, gates: C::GATES, apart: C::APART }
    }

    /// Sums of a row.
    fn sums(self) -> usize {
        self.gates * self.hidden
    }

    /// Numbers in a row of a buffer of gates.
    fn kept(self) -> usize {
        KEPT * self.hidden
    }

    /// First of the sums over states in a row of gradients; those over inputs come first.
    fn apart(self) -> usize {
        if self.apart { self.sums() } else { 0 }
    }

    /// Numbers in a row of a buffer of gradients, in whole vectors of four. What is kept must fit too: where it is recomputed, it
    /// is there that it becomes gradients.
    fn grads(self) -> usize {
        (self.sums() + self.apart()).max(self.kept()).next_multiple_of(4)
    }

    /// Bytes of one row of a state for each sample.
    fn state_bytes(self) -> u64 {
        (self.batch * self.hidden * 4) as u64
    }

    fn params(self, steps: usize, at: At) -> Params {
        Params {
            count: (self.batch * steps * self.hidden) as u32,
            batch: self.batch as u32,
            hidden: self.hidden as u32,
            time: self.time as u32,
            t: at.t as u32,
            start: self.start as u32,
            grads_width: self.grads() as u32,
            gates: at.gates.map(|x| x as u32),
            grads: at.grads.map(|x| x as u32),
            gates_width: self.kept() as u32,
            steps: steps as u32,
            input: self.input as u32,
            blocks: 0,
            tiles: 0,
        }
    }

    /// A launch over the elements of `[B, H]` for one step.
    fn launch(self, entry: &'static str, bindings: Vec<Slot>, at: At) -> Dispatch {
        self.launch_with(entry, bindings, self.params(1, at))
    }

    fn launch_with(self, entry: &'static str, bindings: Vec<Slot>, params: Params) -> Dispatch {
        Dispatch::new(self.file, entry, bindings).params(&params).linear((params.count as usize).div_ceil(64))
    }

    /// Writes what a state starts from: another tensor `[B, H]`, or zeros.
    fn start(self, from: Option<Slot>, to: Slot) -> Dispatch {
        let count = self.batch * self.hidden;
        match from {
            Some(from) => function::launch("copy", "forward", [from, to], count, 0.0),
            None => function::launch("fill", "forward", [to], count, 0.0),
        }
    }

    /// The rows of step `t` of a tensor `[B, time, width]`, one per sample.
    fn step(self, slot: Slot, width: usize, [time, t]: TimeIndex) -> Matrix {
        // One matrix, but aligned at this step where it is at all others: then they all are computed by the same code.
        Matrix { offset: t * width, batch: width, ..Matrix::new(slot, time * width) }
    }

    /// The product of inputs and W_ih for all samples and steps. Its tiling is that of the parts of it too.
    fn over_inputs(self) -> Gemm {
        Gemm { trans_b: true, ..Gemm::new(self.batch * self.time, self.sums(), self.input) }
    }

    /// The product of states and W_hh for one step, added to the sums over inputs where these need not be kept apart.
    fn over_states(self) -> Gemm {
        Gemm { trans_b: true, accumulate: !self.apart, ..Gemm::new(self.batch, self.sums(), self.hidden) }
    }

    /// Writes the product of inputs and W_ih for the first steps of a chunk to rows of this width, of which there are `time` a
    /// sample.
    fn inputs_to_sums(self, target: &Target, chunk: Chunk, to: Slot, width: usize, time: usize) -> Dispatch {
        let weight = Matrix::new(Slot::Input(1), self.input);
        let tiling = self.over_inputs().tiling(target);
        if chunk.steps == self.time {
            let rows = Matrix::new(Slot::Input(0), self.input);
            return self.over_inputs().single_tiled(tiling, rows, weight, Matrix::new(to, width));
        }
        let product = Gemm { trans_b: true, ..chunk.product(self.sums(), self.input) };
        let rows = chunk.rows(Slot::Input(0), self.input, self.time, chunk.begin);
        product.single_tiled(tiling, rows, weight, chunk.rows(to, width, time, 0))
    }

    /// Flops of all products of a forward run.
    fn flops(self) -> u64 {
        (self.batch * self.time) as u64 * (2 * self.sums()) as u64 * (self.input + self.hidden + 4) as u64
    }
}

/// Binds what is there after the bindings of a launch, each with its number as the constant of its name.
fn with_optional<const N: usize>(mut dispatch: Dispatch, slots: [(&'static str, Option<Slot>); N]) -> Dispatch {
    for (name, slot) in slots {
        let Some(slot) = slot else { continue };
        let number = dispatch.bindings.len() as u32;
        dispatch.bindings.push(slot);
        dispatch = dispatch.constant(name, number);
    }
    dispatch
}

/// What twins compute products with: weights with rows and columns swapped, so that sums over columns run along memory.
struct Weights<'a, T> {
    sizes: Sizes,
    ih: Vec<T>,
    hh: Vec<T>,
    biases: [&'a [T]; 2],
}

impl<'a, T: Real> Weights<'a, T> {
    fn new(sizes: Sizes, call: &Call<'a, T>) -> Self {
        let (ih, hh) = (transposed(call.input(1), sizes.input), transposed(call.input(2), sizes.hidden));
        Weights { sizes, ih, hh, biases: [call.input(3), call.input(4)] }
    }

    /// Sums over the inputs of so many rows.
    fn over_inputs(&self, input: &[T], rows: usize) -> Vec<T> {
        let Sizes { input: features, .. } = self.sizes;
        let mut sums = self.biases[0].repeat(rows);
        let width = self.sizes.sums();
        multiply(rows, width, features, View::new(input, features), View::new(&self.ih, width), &mut sums, width);
        sums
    }

    /// Sums over the states of all samples before a step.
    fn over_states(&self, earlier: View<'_, T>) -> Vec<T> {
        let Sizes { batch, hidden, .. } = self.sizes;
        let mut sums = self.biases[1].repeat(batch);
        let width = self.sizes.sums();
        multiply(batch, width, hidden, earlier, View::new(&self.hh, width), &mut sums, width);
        sums
    }
}

fn transposed<T: Real>(weight: &[T], columns: usize) -> Vec<T> {
    let rows = weight.len() / columns;
    (0..columns).flat_map(|k| (0..rows).map(move |j| weight[j * columns + k])).collect()
}

/// The sums of a unit in a row of them.
fn sums_of<T: Real>(row: &[T], unit: usize, sizes: Sizes) -> [T; 4] {
    std::array::from_fn(|gate| if gate < sizes.gates { row[gate * sizes.hidden + unit] } else { T::ZERO })
}

/// Writes the gates of a sample at a step.
fn open_gates<C: Cell, T: Real>(sizes: Sizes, over_inputs: &[T], over_states: &[T], gates: &mut [T]) {
    for unit in 0..sizes.hidden {
        let [input, hidden] = [over_inputs, over_states].map(|row| sums_of(row, unit, sizes));
        for (number, gate) in C::gates(input, hidden).into_iter().enumerate() {
            gates[number * sizes.hidden + unit] = gate;
        }
    }
}

/// How many of the run's steps sample `b` has.
fn steps_of(sizes: Sizes, lengths: Option<&[u32]>, b: usize) -> usize {
    lengths.map_or(sizes.time, |lengths| (lengths[b] as usize).saturating_sub(sizes.start).min(sizes.time))
}
