//! Long short-term memory over a time axis.

mod backward;
mod chunk;

use std::sync::Arc;

use bytemuck::NoUninit;

use self::backward::LstmBackward;
use self::chunk::Chunk;
use super::gemm::{Gemm, Matrix, View, multiply};
use super::sigmoid::sigmoid;
use super::{
    Backward, Builder, Call, Case, Cost, Dispatch, Op, Real, Slot, Stash, expect_count, expect_dtype, expect_rank,
    expect_shape,
};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// For each time step t, with `[iₜ fₜ gₜ oₜ] = W_ih xₜ + b_ih + W_hh hₜ₋₁ + b_hh`:
/// `cₜ = σ(fₜ) cₜ₋₁ + σ(iₜ) tanh(gₜ)`, `hₜ = σ(oₜ) tanh(cₜ)`
///
/// | tensor | shape |
/// |---|---|
/// | input x | `[B, T, I]` (batch first) |
/// | weight_ih, weight_hh | `[4H, I]`, `[4H, H]`; gates in the order i, f, g, o |
/// | bias_ih, bias_hh | `[4H]` |
/// | h0, c0, where `has_initial`; else zeros | `[B, H]` |
/// | output 0: hₜ of all steps | `[B, T, H]` |
/// | outputs 1, 2: the last h and c | `[B, H]` |
/// | output 3: cₜ of all steps; output 4: gates after σ and tanh | `[B, T, H]`, `[B, T, 4H]`; compact, `[B, C, 4H]` |
///
/// **Saved for backward:** input, weights and outputs 0, 3, 4: `B·T·(I + 6H)` numbers. Compact, not output 4, which then
/// is scratch for C ≈ √T steps, but the biases: `B·T·(I + 2H)` numbers; backward computes the gates again, C steps at a
/// time. Outputs 3 and 4 get no gradient. **In place:** no.
/// **Numerics:** products in f32. Each step costs two launches, one product with W_hh and one for the gates. Backward adds
/// up the gradients of weights and biases in the same order, last chunk first, in both forms.
///
/// # Errors
/// Where shapes do not fit, an extent is 0 or an input is not f32; backward, where outputs 3 or 4 get a gradient.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.LSTM.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lstm {
    /// Hidden units H.
    pub hidden: usize,
    /// Whether h0 and c0 are given.
    pub has_initial: bool,
    /// Whether the gates are kept for backward.
    pub stash: Stash,
}

/// The sizes of one run.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: usize,
    time: usize,
    input: usize,
    hidden: usize,
}

/// The step at hand, and where it is in buffers of gates and of their gradients: how many steps such a buffer holds, and
/// which of them it is.
#[derive(Clone, Copy, Debug)]
struct At {
    t: usize,
    gates: [usize; 2],
    grads: [usize; 2],
}

/// Parameters of the step kernels.
#[repr(C)]
#[derive(Clone, Copy, NoUninit)]
struct Params {
    count: u32,
    hidden: u32,
    time: u32,
    t: u32,
    gates: [u32; 2],
    grads: [u32; 2],
}

impl Sizes {
    fn new(input: &TensorDesc, hidden: usize) -> Self {
        Sizes { batch: input.shape[0], time: input.shape[1], input: input.shape[2], hidden }
    }

    /// A launch over the elements of `[B, H]`, `steps` times.
    fn launch(self, entry: &'static str, bindings: Vec<Slot>, steps: usize, at: At) -> Dispatch {
        let count = self.batch * steps * self.hidden;
        let params = Params {
            count: count as u32,
            hidden: self.hidden as u32,
            time: self.time as u32,
            t: at.t as u32,
            gates: at.gates.map(|x| x as u32),
            grads: at.grads.map(|x| x as u32),
        };
        Dispatch::new("lstm", entry, bindings).params(&params).linear(count.div_ceil(64))
    }

    /// The rows of step `t` of a tensor `[B, time, width]`, one per sample.
    fn step(self, slot: Slot, width: usize, [time, t]: [usize; 2]) -> Matrix {
        // One matrix, but aligned at this step where it is at all others: then they all are computed by the same code.
        Matrix { offset: t * width, batch: width, ..Matrix::new(slot, time * width) }
    }

    /// The product of inputs and W_ih for all samples and steps. Its tiling is that of the parts of it too.
    fn over_inputs(self) -> Gemm {
        Gemm { trans_b: true, ..Gemm::new(self.batch * self.time, 4 * self.hidden, self.input) }
    }

    /// The product of states and W_hh for one step, added to gates.
    fn recurrent(self) -> Gemm {
        Gemm { trans_b: true, accumulate: true, ..Gemm::new(self.batch, 4 * self.hidden, self.hidden) }
    }

    /// Writes the product of inputs and W_ih to the gates of a chunk.
    fn inputs_to_gates(self, target: &Target, chunk: Chunk, gates: Slot) -> Dispatch {
        let product = Gemm { trans_b: true, ..chunk.product(4 * self.hidden, self.input) };
        let rows = chunk.rows(Slot::Input(0), self.input, self.time, chunk.begin);
        let weight = Matrix::new(Slot::Input(1), self.input);
        let gates = chunk.rows(gates, 4 * self.hidden, chunk.steps, 0);
        product.single_tiled(self.over_inputs().tiling(target), rows, weight, gates)
    }

    /// Flops of all products of a forward run.
    fn flops(self) -> u64 {
        (self.batch * self.time) as u64 * (8 * self.hidden) as u64 * (self.input + self.hidden + 4) as u64
    }
}

impl Op for Lstm {
    fn name(&self) -> &'static str {
        "lstm"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        const NAMES: [&str; 7] = ["input", "weight_ih", "weight_hh", "bias_ih", "bias_hh", "h0", "c0"];
        expect_count("lstm", inputs, if self.has_initial { 7 } else { 5 })?;
        for (input, name) in inputs.iter().zip(NAMES) {
            expect_dtype("lstm", name, input, DType::F32)?;
        }
        expect_rank("lstm", "input", &inputs[0], 3)?;
        let Sizes { batch, time, input, hidden } = Sizes::new(&inputs[0], self.hidden);
        if [batch, time, input, hidden].contains(&0) {
            let expected = format!("of at least one sample, step and feature, with {hidden} hidden units");
            return Err(OpError::Input { op: "lstm", input: "input", expected, found: inputs[0].clone() });
        }
        let expected: [&[usize]; 6] =
            [&[4 * hidden, input], &[4 * hidden, hidden], &[4 * hidden], &[4 * hidden], &[batch, hidden], &[batch, hidden]];
        for ((desc, name), shape) in inputs[1..].iter().zip(&NAMES[1..]).zip(expected) {
            expect_shape("lstm", name, desc, shape)?;
        }
        Ok(vec![
            TensorDesc::f32([batch, time, hidden]),
            TensorDesc::f32([batch, hidden]),
            TensorDesc::f32([batch, hidden]),
            TensorDesc::f32([batch, time, hidden]),
            TensorDesc::f32([batch, self.gate_steps(time), 4 * hidden]),
        ])
    }

    fn compact(&self) -> Option<Arc<dyn Op>> {
        (self.stash == Stash::Full).then(|| Arc::new(Lstm { stash: Stash::Compact, ..*self }) as Arc<dyn Op>)
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        if forward.grad_outputs[3..].iter().any(Option::is_some) {
            return Err(OpError::NotDifferentiable { op: "lstm (for its cell states and gates)" });
        }
        let mut inputs = forward.inputs[..3].to_vec();
        if self.stash == Stash::Compact {
            inputs.extend(&forward.inputs[3..5]);
        }
        inputs.extend(&forward.inputs[5..]);
        inputs.extend([forward.outputs[0], forward.outputs[3]]);
        if self.stash == Stash::Full {
            inputs.push(forward.outputs[4]);
        }
        inputs.extend(forward.grad_outputs.iter().flatten());
        let op = LstmBackward {
            hidden: self.hidden,
            stash: self.stash,
            has_initial: self.has_initial,
            has_grad: [0, 1, 2].map(|i| forward.grad_outputs[i].is_some()),
            wants_input: forward.wanted[0],
        };
        let mut gradients: Vec<_> =
            graph.apply(Arc::new(op), &inputs)?.into_iter().map(Some).collect();
        if !forward.wanted[0] {
            gradients.insert(0, None);
        }
        Ok(gradients)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let sizes = Sizes::new(&inputs[0], self.hidden);
        let bytes: u64 = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum();
        // The recurrent weights are read at every step, the gates of a step three times and written as often.
        let gates = (sizes.batch * sizes.time * 4 * self.hidden * 4) as u64;
        let again = sizes.time as u64 * inputs[2].size_bytes() + 2 * gates;
        Cost { flops: sizes.flops(), bytes_moved: bytes + again }
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        let sizes = Sizes::new(&inputs[0], self.hidden);
        let Sizes { batch, time, input, hidden } = sizes;
        let gates = Slot::Output(4);
        let weight = Matrix::new(Slot::Input(2), hidden);
        let mut dispatches = Vec::new();
        for chunk in Chunk::all(batch, time, self.gate_steps(time)) {
            dispatches.push(if chunk.steps == time {
                let rows = Matrix::new(Slot::Input(0), input);
                let weight = Matrix::new(Slot::Input(1), input);
                sizes.over_inputs().single(target, rows, weight, Matrix::new(gates, 4 * hidden))
            } else {
                sizes.inputs_to_gates(target, chunk, gates)
            });
            for t in chunk.range() {
                let place = [chunk.steps, t - chunk.begin];
                let earlier = match t {
                    0 if self.has_initial => Some(Matrix::new(Slot::Input(5), hidden)),
                    0 => None,
                    _ => Some(sizes.step(Slot::Output(0), hidden, [time, t - 1])),
                };
                if let Some(earlier) = earlier {
                    let sums = sizes.step(gates, 4 * hidden, place);
                    dispatches.push(sizes.recurrent().single(target, earlier, weight, sums));
                }
                let mut bindings = vec![Slot::Input(3), Slot::Input(4), gates];
                bindings.extend([3, 0, 1, 2].map(Slot::Output));
                bindings.extend(self.has_initial.then_some(Slot::Input(6)));
                let initial = bindings.len() as u32 - 1;
                let at = At { t, gates: place, grads: [0, 0] };
                let step = sizes.launch("forward_step", bindings, 1, at).constant("BIASES", 1);
                dispatches.push(if self.has_initial { step.constant("INITIAL", initial) } else { step });
            }
        }
        dispatches
    }

    twin!();
}

impl Lstm {
    /// How many steps the buffer of gates holds.
    fn gate_steps(&self, time: usize) -> usize {
        match self.stash {
            Stash::Full => time,
            Stash::Compact => chunk::length(time),
        }
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let Sizes { batch, time, input, hidden } = Sizes::new(&call.input_descs[0], self.hidden);
        let (x, weight_ih, weight_hh) = (call.input(0), call.input(1), call.input(2));
        let (bias_ih, bias_hh) = (call.input(3), call.input(4));
        let initial = self.has_initial.then(|| (call.input(5), call.input(6)));
        let [hiddens, last_hidden, last_cell, cells, gates] = call.split_outputs();
        let (weight_ih, weight_hh) = (transposed(weight_ih, input), transposed(weight_hh, hidden));
        let mut state = initial.map_or_else(|| vec![T::ZERO; batch * hidden], |(h, _)| h.to_vec());
        let mut cell = initial.map_or_else(|| vec![T::ZERO; batch * hidden], |(_, c)| c.to_vec());
        for Chunk { begin, steps, .. } in Chunk::all(batch, time, self.gate_steps(time)) {
            let gates = &mut gates[..batch * steps * 4 * hidden];
            fill_with_biases(gates, bias_ih, bias_hh);
            for (b, sums) in gates.chunks_mut(steps * 4 * hidden).enumerate() {
                let rows = View::new(&x[(b * time + begin) * input..], input);
                multiply(steps, 4 * hidden, input, rows, View::new(&weight_ih, 4 * hidden), sums, 4 * hidden);
            }
            for t in begin..begin + steps {
                let sums = &mut gates[(t - begin) * 4 * hidden..];
                let weight = View::new(&weight_hh, 4 * hidden);
                multiply(batch, 4 * hidden, hidden, View::new(&state, hidden), weight, sums, steps * 4 * hidden);
                for b in 0..batch {
                    let row = &mut gates[(b * steps + t - begin) * 4 * hidden..][..4 * hidden];
                    open_gates(row);
                    for unit in 0..hidden {
                        let [i, f, g, o] = [0, 1, 2, 3].map(|gate| row[gate * hidden + unit]);
                        let c = f * cell[b * hidden + unit] + i * g;
                        let h = o * c.tanh();
                        cell[b * hidden + unit] = c;
                        state[b * hidden + unit] = h;
                        cells[(b * time + t) * hidden + unit] = c;
                        hiddens[(b * time + t) * hidden + unit] = h;
                    }
                }
            }
        }
        last_hidden.copy_from_slice(&state);
        last_cell.copy_from_slice(&cell);
    }
}

/// A weight of so many columns with rows and columns swapped, so that sums over columns run along memory.
fn transposed<T: Real>(weight: &[T], columns: usize) -> Vec<T> {
    let rows = weight.len() / columns;
    (0..columns).flat_map(|k| (0..rows).map(move |j| weight[j * columns + k])).collect()
}

/// What the sums of gates start from.
fn fill_with_biases<T: Real>(gates: &mut [T], bias_ih: &[T], bias_hh: &[T]) {
    for row in gates.chunks_mut(bias_ih.len()) {
        for ((sum, &b), &c) in row.iter_mut().zip(bias_ih).zip(bias_hh) {
            *sum = b + c;
        }
    }
}

/// From the sums of a sample at a step to its gates.
fn open_gates<T: Real>(row: &mut [T]) {
    let hidden = row.len() / 4;
    for (at, gate) in row.iter_mut().enumerate() {
        *gate = if at / hidden == 2 { gate.tanh() } else { sigmoid(*gate) };
    }
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, has_initial: bool, batch: usize, time: usize, input: usize, hidden: usize| {
        let mut inputs = vec![
            TensorDesc::f32([batch, time, input]),
            TensorDesc::f32([4 * hidden, input]),
            TensorDesc::f32([4 * hidden, hidden]),
            TensorDesc::f32([4 * hidden]),
            TensorDesc::f32([4 * hidden]),
        ];
        if has_initial {
            inputs.extend([TensorDesc::f32([batch, hidden]), TensorDesc::f32([batch, hidden])]);
        }
        Case::new(name, Lstm { hidden, has_initial, stash: Stash::Full }, inputs).reduction(batch * time * (input + hidden))
    };
    vec![
        case("sequence", false, 2, 5, 3, 4),
        case("last", false, 2, 5, 3, 4),
        case("cell", false, 2, 3, 3, 4),
        case("all", false, 2, 5, 3, 4),
        case("state_sequence", true, 3, 4, 2, 5),
        case("state_last", true, 3, 4, 2, 5),
        case("state_all", true, 3, 4, 2, 5),
        case("one", false, 1, 1, 1, 1),
        case("state_one", true, 1, 1, 1, 1),
        case("long_sequence", true, 1, 40, 2, 3),
        case("hidden17", true, 3, 3, 5, 17),
        case("tile_33x29x36", false, 33, 5, 29, 36).large(),
        case("many_rows", false, 70, 20, 3, 8).large(),
    ]
}
