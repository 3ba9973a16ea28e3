//! The gradients of an LSTM.

use super::chunk::{self, Chunk};
use super::{At, Sizes, fill_with_biases, open_gates, transposed};
use crate::error::OpError;
use crate::ops::gemm::{Gemm, Matrix, View, multiply, reduce_rows};
use crate::ops::{Call, Cost, Dispatch, Op, Real, Slot, Stash};
use crate::shader::Target;
use crate::tensor::TensorDesc;

/// Rows that one invocation adds in the first level of a bias gradient.
const ROWS: usize = 256;

/// All gradients of an LSTM, going back through time by chunks of steps.
///
/// Inputs: `input, weight_ih, weight_hh, (bias_ih, bias_hh), (h0, c0), hidden states, cell states, (gates)`, the biases if
/// compact and the gates if not, then the gradients of outputs 0, 1 and 2 that there are. Outputs: gradients of
/// `(input), weight_ih, weight_hh, bias_ih, bias_hh, (h0, c0)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct LstmBackward {
    pub(super) hidden: usize,
    pub(super) has_initial: bool,
    pub(super) has_grad: [bool; 3],
    pub(super) wants_input: bool,
    pub(super) stash: Stash,
}

/// Workspaces, in order. Those for split sums are there only where a sum is split.
const GRAD_GATES: usize = 0;
const GRAD_HIDDEN: usize = 1;
const GRAD_CELL: usize = 2;
const BIAS_SUMS: usize = 3;
const SPLITS: usize = 4;

impl LstmBackward {
    fn recomputes(self) -> bool {
        self.stash == Stash::Compact
    }

    /// Position of h0 among the inputs, if it is there.
    fn initial(self) -> usize {
        if self.recomputes() { 5 } else { 3 }
    }

    /// Position of the hidden states among the inputs; cell states and gates follow.
    fn states(self) -> usize {
        self.initial() + if self.has_initial { 2 } else { 0 }
    }

    /// Input that holds the gradient of output `i`.
    fn grad_output(self, i: usize) -> Option<usize> {
        let before = self.has_grad[..i].iter().filter(|has| **has).count();
        let first = self.states() + if self.recomputes() { 2 } else { 3 };
        self.has_grad[i].then_some(first + before)
    }

    /// Output that holds the gradient of `weight_ih`; those of `weight_hh`, `bias_ih`, `bias_hh`, `h0`, `c0` follow.
    fn weights(self) -> usize {
        usize::from(self.wants_input)
    }

    fn chunks(sizes: Sizes) -> impl DoubleEndedIterator<Item = Chunk> {
        Chunk::all(sizes.batch, sizes.time, chunk::length(sizes.time))
    }

    /// The steps of a chunk that have a step before them.
    fn later(chunk: Chunk) -> Chunk {
        if chunk.begin == 0 { chunk.but_first() } else { chunk }
    }

    /// `grad_weight_ih (+)= grad_gatesᵀ · input`, over all samples and the steps of a chunk.
    fn weight_ih(sizes: Sizes, chunk: Chunk) -> Gemm {
        chunk.sum(4 * sizes.hidden, sizes.input)
    }

    /// `grad_weight_hh (+)= grad_gatesᵀ · hidden states`, each step with the state before it.
    fn weight_hh(sizes: Sizes, chunk: Chunk) -> Gemm {
        Self::later(chunk).sum(4 * sizes.hidden, sizes.hidden)
    }

    /// Bytes for the parts of split sums, of which there is one at a time.
    fn split_bytes(sizes: Sizes) -> Option<u64> {
        let products = Self::chunks(sizes).flat_map(|chunk| [Self::weight_ih(sizes, chunk), Self::weight_hh(sizes, chunk)]);
        products.filter_map(|product| product.workspace_bytes()).max()
    }

    /// Computes the gates of a chunk as forward did, into the place of their gradients.
    fn recompute(self, sizes: Sizes, chunk: Chunk, target: &Target) -> Vec<Dispatch> {
        let Sizes { time, hidden, .. } = sizes;
        let gates = Slot::Workspace(GRAD_GATES);
        let weight = Matrix::new(Slot::Input(2), hidden);
        let tiling = sizes.recurrent().tiling(target);
        let mut dispatches = vec![sizes.inputs_to_gates(target, chunk, gates)];
        if chunk.begin == 0 && self.has_initial {
            let initial = Matrix::new(Slot::Input(self.initial()), hidden);
            let sums = sizes.step(gates, 4 * hidden, [chunk.steps, 0]);
            dispatches.push(sizes.recurrent().single(target, initial, weight, sums));
        }
        let later = Self::later(chunk);
        if later.steps > 0 {
            let product = Gemm { trans_b: true, accumulate: true, ..later.product(4 * hidden, hidden) };
            let earlier = later.rows(Slot::Input(self.states()), hidden, time, later.begin - 1);
            let sums = later.rows(gates, 4 * hidden, chunk.steps, later.begin - chunk.begin);
            dispatches.push(product.single_tiled(tiling, earlier, weight, sums));
        }
        let at = At { t: 0, gates: [chunk.steps, 0], grads: [chunk.steps, 0] };
        let bindings = vec![Slot::Input(3), Slot::Input(4), gates];
        dispatches.push(sizes.launch("recompute_gates", bindings, chunk.steps, at).constant("BIASES", 1));
        dispatches
    }

    /// Turns gates into gradients of their sums, from the last step of a chunk to its first.
    fn back(self, sizes: Sizes, chunk: Chunk, states: [Slot; 2], target: &Target) -> Vec<Dispatch> {
        let Sizes { batch, time, hidden, .. } = sizes;
        let [grad_hidden, grad_cell] = states;
        let grad_gates = Slot::Workspace(GRAD_GATES);
        let optional = [
            ("INITIAL", self.has_initial.then_some(self.initial() + 1)),
            ("GRAD_OUTPUT", self.grad_output(0)),
            ("GATES", (!self.recomputes()).then_some(self.states() + 2)),
        ];
        let recurrent = Gemm::new(batch, hidden, 4 * hidden);
        let mut dispatches = Vec::new();
        for t in chunk.range().rev() {
            let place = [chunk.steps, t - chunk.begin];
            let at = At { t, gates: [time, t], grads: place };
            let bindings = vec![Slot::Input(self.states() + 1), grad_gates, grad_hidden, grad_cell];
            dispatches.push(with_optional(sizes.launch("backward_step", bindings, 1, at), optional));
            if t > 0 || self.has_initial {
                let step = sizes.step(grad_gates, 4 * hidden, place);
                let weight = Matrix::new(Slot::Input(2), hidden);
                dispatches.push(recurrent.single(target, step, weight, Matrix::new(grad_hidden, hidden)));
            }
        }
        dispatches
    }

    /// Adds what a chunk gives to the gradients of weights and biases, and writes that of its inputs. `first` says that
    /// nothing is there yet.
    fn add_up(self, sizes: Sizes, chunk: Chunk, first: bool, target: &Target) -> Vec<Dispatch> {
        let Sizes { batch, time, input, hidden } = sizes;
        let (gates, grad_gates) = (4 * hidden, Slot::Workspace(GRAD_GATES));
        let output = self.weights();
        let splits = Slot::Workspace(SPLITS);
        let mut dispatches = Vec::new();

        let all = chunk.terms(grad_gates, gates, chunk.steps, 0);
        let samples = chunk.terms(Slot::Input(0), input, time, chunk.begin);
        let weight_ih = Gemm { accumulate: !first, ..Self::weight_ih(sizes, chunk) };
        dispatches.extend(weight_ih.dispatches(target, all, samples, Slot::Output(output), splits));

        let later = Self::later(chunk);
        if first || later.steps > 0 {
            let weight_hh = Gemm { accumulate: !first, ..Self::weight_hh(sizes, chunk) };
            let all = later.terms(grad_gates, gates, chunk.steps, later.begin - chunk.begin);
            let earlier = later.terms(Slot::Input(self.states()), hidden, time, later.begin - 1);
            dispatches.extend(weight_hh.dispatches(target, all, earlier, Slot::Output(output + 1), splits));
        }
        if chunk.begin == 0 && self.has_initial {
            let product = Gemm { trans_a: true, accumulate: true, ..Gemm::new(gates, hidden, batch) };
            let initial = Matrix::new(Slot::Input(self.initial()), hidden);
            let step = sizes.step(grad_gates, gates, [chunk.steps, 0]);
            dispatches.push(product.single(target, step, initial, Matrix::new(Slot::Output(output + 1), hidden)));
        }

        let rows = batch * chunk.steps;
        let parts = rows.div_ceil(ROWS);
        let sums = Slot::Workspace(BIAS_SUMS);
        dispatches.push(reduce_rows(grad_gates, sums, rows, gates, ROWS));
        for bias in [output + 2, output + 3] {
            let sum = reduce_rows(sums, Slot::Output(bias), parts, gates, parts);
            dispatches.push(if first { sum } else { sum.constant("ACCUMULATE", 1) });
        }

        if self.wants_input {
            let rows = chunk.rows(grad_gates, gates, chunk.steps, 0);
            let weight = Matrix::new(Slot::Input(1), input);
            let grad_input = chunk.rows(Slot::Output(0), input, time, chunk.begin);
            dispatches.push(chunk.product(input, gates).single(target, rows, weight, grad_input));
        }
        dispatches
    }
}

/// Binds the inputs that are there after the bindings of a launch, each with its number as the constant of its name.
fn with_optional<const N: usize>(mut dispatch: Dispatch, inputs: [(&'static str, Option<usize>); N]) -> Dispatch {
    for (name, input) in inputs {
        let Some(input) = input else { continue };
        let number = dispatch.bindings.len() as u32;
        dispatch.bindings.push(Slot::Input(input));
        dispatch = dispatch.constant(name, number);
    }
    dispatch
}

impl Op for LstmBackward {
    fn name(&self) -> &'static str {
        "lstm.backward"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let bias = TensorDesc::f32([4 * self.hidden]);
        let mut outputs = vec![inputs[1].clone(), inputs[2].clone(), bias.clone(), bias];
        if self.wants_input {
            outputs.insert(0, inputs[0].clone());
        }
        if self.has_initial {
            outputs.extend(inputs[self.initial()..][..2].iter().cloned());
        }
        Ok(outputs)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let sizes = Sizes::new(&inputs[0], self.hidden);
        let bytes: u64 = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum();
        let gates = (sizes.batch * sizes.time * 4 * self.hidden * 4) as u64;
        let products = 1 + u64::from(self.wants_input) + u64::from(self.recomputes());
        let recurrent = (sizes.batch * sizes.time * 8 * self.hidden * self.hidden) as u64;
        let chunks = Self::chunks(sizes).count() as u64;
        // The recurrent weights are read at every step, the gradients of weights changed by every chunk.
        let again = sizes.time as u64 * inputs[2].size_bytes() + 2 * chunks * (inputs[1].size_bytes() + inputs[2].size_bytes());
        let passes = if self.recomputes() { 9 } else { 4 };
        Cost { flops: products * sizes.flops() + recurrent, bytes_moved: bytes + again + passes * gates }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        let sizes = Sizes::new(&inputs[0], self.hidden);
        let rows = sizes.batch * chunk::length(sizes.time);
        let state = (sizes.batch * self.hidden * 4) as u64;
        let mut workspaces = vec![
            (rows * 4 * self.hidden * 4) as u64,
            state,
            state,
            (rows.div_ceil(ROWS) * 4 * self.hidden * 4) as u64,
        ];
        workspaces.extend(Self::split_bytes(sizes));
        workspaces
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        let sizes = Sizes::new(&inputs[0], self.hidden);
        // The gradients of the states end up as those of h0 and c0 where these are given.
        let states = if self.has_initial {
            [4, 5].map(|i| Slot::Output(self.weights() + i))
        } else {
            [GRAD_HIDDEN, GRAD_CELL].map(Slot::Workspace)
        };
        let at = At { t: 0, gates: [0, 0], grads: [0, 0] };
        let init = sizes.launch("backward_init", states.to_vec(), 1, at);
        let last = [("GRAD_HIDDEN", self.grad_output(1)), ("GRAD_CELL", self.grad_output(2))];
        let mut dispatches = vec![with_optional(init, last)];
        for (i, chunk) in Self::chunks(sizes).rev().enumerate() {
            if self.recomputes() {
                dispatches.extend(self.recompute(sizes, chunk, target));
            }
            dispatches.extend(self.back(sizes, chunk, states, target));
            dispatches.extend(self.add_up(sizes, chunk, i == 0, target));
        }
        dispatches
    }

    twin!();
}

impl LstmBackward {
    /// The gates of all steps, as forward had them.
    fn gates_again<T: Real>(&self, call: &Call<'_, T>) -> Vec<T> {
        let Sizes { batch, time, input, hidden } = Sizes::new(&call.input_descs[0], self.hidden);
        let (weight_ih, weight_hh) = (transposed(call.input(1), input), transposed(call.input(2), hidden));
        let hiddens = call.input(self.states());
        let mut gates = vec![T::ZERO; batch * time * 4 * hidden];
        fill_with_biases(&mut gates, call.input(3), call.input(4));
        let rows = View::new(call.input(0), input);
        multiply(batch * time, 4 * hidden, input, rows, View::new(&weight_ih, 4 * hidden), &mut gates, 4 * hidden);
        let zeros = vec![T::ZERO; batch * hidden];
        for t in 0..time {
            let earlier = match t {
                0 if self.has_initial => View::new(call.input(self.initial()), hidden),
                0 => View::new(&zeros, hidden),
                _ => View::new(&hiddens[(t - 1) * hidden..], time * hidden),
            };
            let sums = &mut gates[t * 4 * hidden..];
            multiply(batch, 4 * hidden, hidden, earlier, View::new(&weight_hh, 4 * hidden), sums, time * 4 * hidden);
        }
        gates.chunks_mut(4 * hidden).for_each(open_gates);
        gates
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let sizes = Sizes::new(&call.input_descs[0], self.hidden);
        let Sizes { batch, time, input, hidden } = sizes;
        let (x, weight_ih, weight_hh) = (call.input(0), call.input(1), call.input(2));
        let initial = self.has_initial.then(|| (call.input(self.initial()), call.input(self.initial() + 1)));
        let states = self.states();
        let (hiddens, cells) = (call.input(states), call.input(states + 1));
        let recomputed = self.recomputes().then(|| self.gates_again(call));
        let gates = recomputed.as_deref().unwrap_or_else(|| call.input(states + 2));
        let [grad_output, grad_last_hidden, grad_last_cell] =
            [0, 1, 2].map(|i| self.grad_output(i).map(|input| call.input(input)));

        let zeros = || vec![T::ZERO; batch * hidden];
        let mut grad_hidden = grad_last_hidden.map_or_else(zeros, <[T]>::to_vec);
        let mut grad_cell = grad_last_cell.map_or_else(zeros, <[T]>::to_vec);
        let mut grad_gates = vec![T::ZERO; batch * time * 4 * hidden];
        let mut grad_weight_hh = vec![T::ZERO; 4 * hidden * hidden];
        for t in (0..time).rev() {
            for b in 0..batch {
                let row = &gates[(b * time + t) * 4 * hidden..][..4 * hidden];
                let grads = &mut grad_gates[(b * time + t) * 4 * hidden..][..4 * hidden];
                for unit in 0..hidden {
                    let at = b * hidden + unit;
                    let [i, f, g, o] = [0, 1, 2, 3].map(|gate| row[gate * hidden + unit]);
                    let earlier = match t {
                        0 => initial.map_or(T::ZERO, |(_, c)| c[at]),
                        _ => cells[(b * time + t - 1) * hidden + unit],
                    };
                    let now = (b * time + t) * hidden + unit;
                    let d_hidden = grad_hidden[at] + grad_output.map_or(T::ZERO, |grad| grad[now]);
                    let squashed = cells[now].tanh();
                    let d_cell = grad_cell[at] + d_hidden * o * (T::ONE - squashed * squashed);
                    grads[unit] = d_cell * g * i * (T::ONE - i);
                    grads[hidden + unit] = d_cell * earlier * f * (T::ONE - f);
                    grads[2 * hidden + unit] = d_cell * i * (T::ONE - g * g);
                    grads[3 * hidden + unit] = d_hidden * squashed * o * (T::ONE - o);
                    grad_cell[at] = d_cell * f;
                }
            }
            let step = &grad_gates[t * 4 * hidden..];
            let rows = View::new(step, time * 4 * hidden);
            grad_hidden.fill(T::ZERO);
            multiply(batch, hidden, 4 * hidden, rows, View::new(weight_hh, hidden), &mut grad_hidden, hidden);
            let before = match t {
                0 => initial.map(|(h, _)| View::new(h, hidden)),
                _ => Some(View::new(&hiddens[(t - 1) * hidden..], time * hidden)),
            };
            if let Some(before) = before {
                let columns = View::transposed(step, time * 4 * hidden);
                multiply(4 * hidden, hidden, batch, columns, before, &mut grad_weight_hh, hidden);
            }
        }

        let first = self.weights();
        if self.wants_input {
            let grad_input = call.output(0);
            grad_input.fill(T::ZERO);
            let all = View::new(&grad_gates, 4 * hidden);
            multiply(batch * time, input, 4 * hidden, all, View::new(weight_ih, input), grad_input, input);
        }
        let grad_weight_ih = call.output(first);
        grad_weight_ih.fill(T::ZERO);
        let all = View::transposed(&grad_gates, 4 * hidden);
        multiply(4 * hidden, input, batch * time, all, View::new(x, input), grad_weight_ih, input);
        call.output(first + 1).copy_from_slice(&grad_weight_hh);
        for bias in [first + 2, first + 3] {
            let grad_bias = call.output(bias);
            grad_bias.fill(T::ZERO);
            for row in grad_gates.chunks(4 * hidden) {
                for (sum, &grad) in grad_bias.iter_mut().zip(row) {
                    *sum += grad;
                }
            }
        }
        if self.has_initial {
            call.output(first + 4).copy_from_slice(&grad_hidden);
            call.output(first + 5).copy_from_slice(&grad_cell);
        }
    }
}
