//! The gradients of a recurrent op.

use super::chunk::{self, Chunk};
use super::tile::Bound;
use super::{At, Cell, Params, Recurrent, Sizes, TimeIndex, Weights, open_gates, steps_of, with_optional};
use crate::error::OpError;
use crate::ops::matmul::gemm::{Gemm, Matrix, View, multiply, reduce_rows};
use crate::ops::sums::Sums;
use crate::ops::{Call, Cost, Dispatch, Native, Op, Real, SavedActivations, Slot};
use crate::shader::Target;
use crate::tensor::TensorDesc;

/// Rows that one invocation adds in the first level of a bias gradient.
const ROWS: usize = 256;

/// All gradients of a recurrent op, going back through time by chunks of steps.
///
/// Inputs: `input, weight_ih, weight_hh, (bias_ih, bias_hh), (initial states), (lengths), states of all steps, (gates)`, the
/// biases if compressed and the gates if not, then the gradients of the hidden states and the last states that there are.
/// Outputs: gradients of `(input), weight_ih, weight_hh, bias_ih, bias_hh, (initial states)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecurrentBackward<C> {
    pub(super) forward: Recurrent<C>,
    /// Whether the hidden states and each of the last states have a gradient.
    pub(super) has_grad: [bool; 3],
    pub(super) wants_input: bool,
}

/// Workspaces, in order; then those of the gradients of states, and one for split sums where a sum is split.
const GRADS: usize = 0;
const BIAS_SUMS: usize = 1;
const GRAD_STATES: usize = 2;

params! {
    /// Parameters of the second level of bias gradients.
    struct BiasParams {
        columns: u32,
        width: u32,
        apart: u32,
        rows: u32,
    }
}

impl<C: Cell> RecurrentBackward<C> {
    const STATES: usize = C::STATES.len();

    pub(super) fn recomputes(self) -> bool {
        self.forward.saved == SavedActivations::Compressed
    }

    pub(super) fn sizes(self, input: &TensorDesc) -> Sizes {
        Sizes::new(&self.forward, input)
    }

    /// Position of the first of the inputs that not every run has.
    fn optional(self) -> usize {
        if self.recomputes() { 5 } else { 3 }
    }

    /// Input that holds an initial state.
    pub(super) fn initial(self, state: usize) -> Option<usize> {
        self.forward.has_initial.then_some(self.optional() + state)
    }

    /// Input that holds the lengths.
    pub(super) fn lengths(self) -> Option<usize> {
        let before = if self.forward.has_initial { Self::STATES } else { 0 };
        self.forward.lengths.map(|_| self.optional() + before)
    }

    /// Input that holds the hidden states of all steps; the other states' and the gates follow.
    pub(super) fn states(self) -> usize {
        self.optional()
            + if self.forward.has_initial { Self::STATES } else { 0 }
            + usize::from(self.forward.lengths.is_some())
    }

    /// Input that holds the gates.
    pub(super) fn gates(self) -> Option<usize> {
        (!self.recomputes()).then_some(self.states() + Self::STATES)
    }

    /// Input that holds the gradient of output `i`.
    pub(super) fn grad_output(self, i: usize) -> Option<usize> {
        let before = self.has_grad[..i].iter().filter(|has| **has).count();
        let first = self.states() + Self::STATES + usize::from(!self.recomputes());
        self.has_grad[i].then_some(first + before)
    }

    /// Output that holds the gradient of `weight_ih`; those of `weight_hh`, `bias_ih`, `bias_hh` and of initial states follow.
    pub(super) fn weights(self) -> usize {
        usize::from(self.wants_input)
    }

    /// Where the gradient of a state is on its way back: in the end it is that of the initial state, where this is given.
    fn grad_state(self, state: usize) -> Slot {
        if self.forward.has_initial {
            Slot::Output(self.weights() + 4 + state)
        } else {
            Slot::Workspace(GRAD_STATES + state)
        }
    }

    fn chunks(sizes: Sizes) -> impl DoubleEndedIterator<Item = Chunk> {
        Chunk::all(sizes.batch, sizes.time, chunk::length(sizes.batch, sizes.time))
    }

    /// The steps of a chunk that have a step before them.
    fn later(chunk: Chunk) -> Chunk {
        if chunk.begin == 0 { chunk.but_first() } else { chunk }
    }

    /// `grad_weight_ih (+)= gradsᵀ · input`, over all samples and the steps of a chunk.
    fn weight_ih(sizes: Sizes, chunk: Chunk) -> Gemm {
        chunk.sum(sizes.sums(), sizes.input)
    }

    /// `grad_weight_hh (+)= gradsᵀ · hidden states`, each step with the state before it.
    fn weight_hh(sizes: Sizes, chunk: Chunk) -> Gemm {
        Self::later(chunk).sum(sizes.sums(), sizes.hidden)
    }

    /// Bytes for the parts of split sums, of which there is one at a time.
    fn split_bytes(sizes: Sizes) -> Option<u64> {
        let products =
            Self::chunks(sizes).flat_map(|chunk| [Self::weight_ih(sizes, chunk), Self::weight_hh(sizes, chunk)]);
        products.filter_map(|product| product.workspace_bytes()).max()
    }

    /// The gradients of the sums over states at a step.
    fn over_states(sizes: Sizes, place: TimeIndex) -> Matrix {
        sizes.step(Slot::Workspace(GRADS), sizes.grads(), place).shifted(sizes.apart())
    }

    /// Computes the gates of a chunk as forward did, into the place of their gradients.
    fn recompute(self, sizes: Sizes, chunk: Chunk, target: &Target) -> Vec<Dispatch> {
        let Sizes { time, hidden, .. } = sizes;
        let grads = Slot::Workspace(GRADS);
        let weight = Matrix::new(Slot::Input(2), hidden);
        let tile = self.forward.tile(sizes, target);
        let single = self.forward.single_steps(chunk, tile);
        let separate = if tile.is_some_and(|tile| tile.takes_inputs) { single } else { chunk.steps };
        let mut dispatches = Vec::new();
        if separate > 0 {
            let part = Chunk { steps: separate, ..chunk };
            dispatches.push(sizes.inputs_to_sums(target, part, grads, sizes.grads(), chunk.steps));
        }
        let gates = |t: usize, steps: usize, has_states: bool| {
            let at = At { t, gates: [chunk.steps, t - chunk.begin], grads: [0, 0] };
            let params = Params { gates_width: sizes.grads() as u32, ..sizes.params(steps, at) };
            let bindings = vec![Slot::Input(3), Slot::Input(4), grads];
            let launch = sizes.launch_with("recompute_gates", bindings, params).constant("BIASES", 1);
            if has_states { launch.constant("STATES", 1) } else { launch }
        };
        if chunk.begin == 0 && single > 0 {
            let initial = self.initial(0).map(|initial| Matrix::new(Slot::Input(initial), hidden));
            let sums = Self::over_states(sizes, [chunk.steps, 0]);
            dispatches.extend(initial.map(|initial| sizes.over_states().single(target, initial, weight, sums)));
            dispatches.push(gates(0, 1, initial.is_some()));
        }
        if let Some(tile) = tile {
            let steps = chunk.steps - single;
            if steps > 0 {
                let at = At { t: chunk.begin + single, gates: [chunk.steps, single], grads: [0, 0] };
                let always = vec![Slot::Input(2), Slot::Input(3), Slot::Input(4), grads, Slot::Input(self.states())];
                let bound = Bound { always, optional: [("CELLS", None), ("LENGTHS", None)] };
                dispatches.push(tile.forward(sizes, bound, [Slot::Input(0), Slot::Input(1)], steps, at, true));
            }
            return dispatches;
        }
        let later = Self::later(chunk);
        if later.steps > 0 {
            let product = Gemm { trans_b: true, accumulate: !C::APART, ..later.product(sizes.sums(), hidden) };
            let earlier = later.rows(Slot::Input(self.states()), hidden, time, later.begin - 1);
            let sums = later.rows(grads, sizes.grads(), chunk.steps, later.begin - chunk.begin).shifted(sizes.apart());
            dispatches.push(product.single_tiled(sizes.over_states().tiling(target), earlier, weight, sums));
            dispatches.push(gates(later.begin, later.steps, true));
        }
        dispatches
    }

    /// Turns gates into gradients of their sums, from the last step of a chunk to its first.
    fn back(self, sizes: Sizes, chunk: Chunk, target: &Target) -> Vec<Dispatch> {
        let Sizes { batch, time, hidden, .. } = sizes;
        // The state that a cell passes on besides its products: its last one.
        let carried = Self::STATES - 1;
        let states = Slot::Input(self.states() + carried);
        let [initial, grad_output, gates, lengths] = [
            ("INITIAL", self.initial(carried)),
            ("GRAD_OUTPUT", self.grad_output(0)),
            ("GATES", self.gates()),
            ("LENGTHS", self.lengths()),
        ]
        .map(|(name, input)| (name, input.map(Slot::Input)));
        let at = |t: usize| At { t, gates: [time, t], grads: [chunk.steps, t - chunk.begin] };
        let single = |t: usize| {
            let mut bindings = vec![states, Slot::Workspace(GRADS)];
            bindings.extend((0..Self::STATES).map(|state| self.grad_state(state)));
            with_optional(sizes.launch("backward_step", bindings, at(t)), [initial, grad_output, gates, lengths])
        };
        let product = |t: usize| {
            let product = Gemm { accumulate: true, ..Gemm::new(batch, hidden, sizes.sums()) };
            let weight = Matrix::new(Slot::Input(2), hidden);
            let grad_hidden = Matrix::new(self.grad_state(0), hidden);
            product.single(target, Self::over_states(sizes, at(t).grads), weight, grad_hidden)
        };
        let mut done = chunk.range().end - 1;
        let mut dispatches = vec![single(done)];
        if let Some(tile) = self.forward.tile(sizes, target) {
            let first = chunk.begin + self.forward.single_steps(chunk, Some(tile));
            for t in (first..done).rev() {
                let always = vec![Slot::Input(2), states, Slot::Workspace(GRADS)];
                // Hidden states reach the next step through products alone, but for a cell that has no other state, and past
                // the end of a sample.
                let carries = carried == 0 || self.lengths().is_some();
                let hidden = ("GRAD_HIDDEN", carries.then(|| self.grad_state(0)));
                let cells = ("CELLS", (carried > 0).then(|| self.grad_state(carried)));
                let bound = Bound { always, optional: [hidden, cells, grad_output, gates, lengths] };
                dispatches.push(tile.backward(sizes, bound, at(t)));
            }
            done = done.min(first);
        }
        for t in (chunk.begin..done).rev() {
            dispatches.extend([product(t + 1), single(t)]);
        }
        if chunk.begin > 0 || self.forward.has_initial {
            dispatches.push(product(chunk.begin));
        }
        dispatches
    }

    /// Adds what a chunk gives to the gradients of weights and biases, and writes that of its inputs. `first` says that
    /// nothing is there yet.
    fn add_up(self, sizes: Sizes, chunk: Chunk, first: bool, target: &Target) -> Vec<Dispatch> {
        let Sizes { batch, time, input, hidden, .. } = sizes;
        let (width, grads) = (sizes.grads(), Slot::Workspace(GRADS));
        let output = self.weights();
        let splits = Slot::Workspace(GRAD_STATES + if self.forward.has_initial { 0 } else { Self::STATES });
        let mut dispatches = Vec::new();

        let all = chunk.terms(grads, width, chunk.steps, 0);
        let samples = chunk.terms(Slot::Input(0), input, time, chunk.begin);
        let weight_ih = Gemm { accumulate: !first, ..Self::weight_ih(sizes, chunk) };
        dispatches.extend(weight_ih.dispatches(target, all, samples, Slot::Output(output), splits));

        let later = Self::later(chunk);
        if first || later.steps > 0 {
            let weight_hh = Gemm { accumulate: !first, ..Self::weight_hh(sizes, chunk) };
            let all = later.terms(grads, width, chunk.steps, later.begin - chunk.begin).shifted(sizes.apart());
            let earlier = later.terms(Slot::Input(self.states()), hidden, time, later.begin - 1);
            dispatches.extend(weight_hh.dispatches(target, all, earlier, Slot::Output(output + 1), splits));
        }
        if chunk.begin == 0
            && let Some(initial) = self.initial(0)
        {
            let product = Gemm { trans_a: true, accumulate: true, ..Gemm::new(sizes.sums(), hidden, batch) };
            let initial = Matrix::new(Slot::Input(initial), hidden);
            let weight = Matrix::new(Slot::Output(output + 1), hidden);
            dispatches.push(product.single(target, Self::over_states(sizes, [chunk.steps, 0]), initial, weight));
        }

        let rows = batch * chunk.steps;
        dispatches.push(reduce_rows(grads, Slot::Workspace(BIAS_SUMS), rows, width, ROWS));
        dispatches.push(Self::grad_biases(sizes, rows.div_ceil(ROWS), first, output + 2));

        if self.wants_input {
            let rows = chunk.rows(grads, width, chunk.steps, 0);
            let weight = Matrix::new(Slot::Input(1), input);
            let grad_input = chunk.rows(Slot::Output(0), input, time, chunk.begin);
            dispatches.push(chunk.product(input, sizes.sums()).single(target, rows, weight, grad_input));
        }
        dispatches
    }

    /// The second level of the gradients of both biases.
    fn grad_biases(sizes: Sizes, rows: usize, first: bool, output: usize) -> Dispatch {
        let params = BiasParams {
            columns: sizes.sums() as u32,
            width: sizes.grads() as u32,
            apart: sizes.apart() as u32,
            rows: rows as u32,
        };
        let bindings = [Slot::Workspace(BIAS_SUMS), Slot::Output(output), Slot::Output(output + 1)];
        let dispatch = Dispatch::new(C::NAME, "grad_biases", bindings)
            .params(&params)
            .loops(rows)
            .linear(sizes.sums().div_ceil(64));
        if first { dispatch } else { dispatch.constant("ACCUMULATE", 1) }
    }
}

impl<C: Cell> Op for RecurrentBackward<C> {
    fn name(&self) -> &'static str {
        C::BACKWARD
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let bias = TensorDesc::f32([C::GATES * self.forward.hidden]);
        let mut outputs = vec![inputs[1].clone(), inputs[2].clone(), bias.clone(), bias];
        if self.wants_input {
            outputs.insert(0, inputs[0].clone());
        }
        if let Some(initial) = self.initial(0) {
            outputs.extend(inputs[initial..][..Self::STATES].iter().cloned());
        }
        Ok(outputs)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let sizes = self.sizes(&inputs[0]);
        let bytes: u64 = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum();
        let rows = sizes.batch * sizes.time;
        let grads = (rows * sizes.grads() * 4) as u64;
        let products = 1 + u64::from(self.wants_input) + u64::from(self.recomputes());
        let recurrent = (rows * 2 * sizes.sums() * sizes.hidden) as u64;
        let chunks = Self::chunks(sizes).count() as u64;
        // The recurrent weights are read at every step, the gradients of weights changed by every chunk.
        let again =
            sizes.time as u64 * inputs[2].size_bytes() + 2 * chunks * (inputs[1].size_bytes() + inputs[2].size_bytes());
        let passes = if self.recomputes() { 9 } else { 4 };
        Cost { flops: products * sizes.flops() + recurrent, bytes_moved: bytes + again + passes * grads }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        let sizes = self.sizes(&inputs[0]);
        let rows = sizes.batch * chunk::length(sizes.batch, sizes.time);
        let mut workspaces = vec![(rows * sizes.grads() * 4) as u64, (rows.div_ceil(ROWS) * sizes.grads() * 4) as u64];
        if !self.forward.has_initial {
            workspaces.extend(C::STATES.iter().map(|_| sizes.state_bytes()));
        }
        workspaces.extend(Self::split_bytes(sizes));
        workspaces
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        let sizes = self.sizes(&inputs[0]);
        let mut dispatches: Vec<_> = (0..Self::STATES)
            .map(|state| sizes.start(self.grad_output(1 + state).map(Slot::Input), self.grad_state(state)))
            .collect();
        for (i, chunk) in Self::chunks(sizes).rev().enumerate() {
            if self.recomputes() {
                dispatches.extend(self.recompute(sizes, chunk, target));
            }
            dispatches.extend(self.back(sizes, chunk, target));
            dispatches.extend(self.add_up(sizes, chunk, i == 0, target));
        }
        dispatches
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl<C: Cell> RecurrentBackward<C> {
    /// The hidden states before step t.
    fn earlier<'a, T: Real>(&self, call: &Call<'a, T>, sizes: Sizes, t: usize) -> Option<View<'a, T>> {
        let Sizes { time, hidden, .. } = sizes;
        match t {
            0 => self.initial(0).map(|initial| View::new(call.input(initial), hidden)),
            _ => Some(View::new(&call.input(self.states())[(t - 1) * hidden..], time * hidden)),
        }
    }

    /// The gates of all steps, as forward had them.
    fn gates_again<T: Real>(&self, call: &Call<'_, T>, sizes: Sizes) -> Vec<T> {
        let Sizes { batch, time, hidden, .. } = sizes;
        let weights = Weights::new(sizes, call);
        let over_inputs = weights.over_inputs(call.input(0), batch * time);
        let zeros = vec![T::ZERO; batch * hidden];
        let mut gates = vec![T::ZERO; batch * time * sizes.kept()];
        for t in 0..time {
            let earlier = self.earlier(call, sizes, t).unwrap_or(View::new(&zeros, hidden));
            let over_states = weights.over_states(earlier);
            for b in 0..batch {
                let row = b * time + t;
                let [input, hidden] = [(&over_inputs, row), (&over_states, b)]
                    .map(|(sums, row)| &sums[row * sizes.sums()..][..sizes.sums()]);
                open_gates::<C, T>(sizes, input, hidden, &mut gates[row * sizes.kept()..][..sizes.kept()]);
            }
        }
        gates
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let sizes = self.sizes(&call.input_descs[0]);
        let Sizes { batch, time, input, hidden, .. } = sizes;
        let width = sizes.sums();
        let (x, weight_ih, weight_hh) = (call.input(0), call.input(1), call.input(2));
        let lengths = self.lengths().map(|i| call.ints(i));
        let recomputed = self.recomputes().then(|| self.gates_again(call, sizes));
        let gates = recomputed.as_deref().or_else(|| self.gates().map(|i| call.input(i))).expect("bug: no gates");
        let grad_output = self.grad_output(0).map(|i| call.input(i));
        // A cell of one state leaves the second as it is.
        let zeros = || vec![T::ZERO; batch * hidden];
        let mut grad_states =
            [1, 2].map(|output| self.grad_output(output).map_or_else(zeros, |i| call.input(i).to_vec()));
        let state = |state: usize, t: Option<usize>, b: usize, unit: usize| match t {
            _ if state >= Self::STATES => T::ZERO,
            Some(t) => call.input(self.states() + state)[(b * time + t) * hidden + unit],
            None => self.initial(state).map_or(T::ZERO, |initial| call.input(initial)[b * hidden + unit]),
        };

        let mut grads = [0, 1].map(|_| vec![T::ZERO; batch * time * width]);
        for t in (0..time).rev() {
            for b in (0..batch).filter(|&b| t < steps_of(sizes, lengths, b)) {
                let row = b * time + t;
                for unit in 0..hidden {
                    let at = b * hidden + unit;
                    let [earlier, now] =
                        [t.checked_sub(1), Some(t)].map(|t| [0, 1].map(|number| state(number, t, b, unit)));
                    let kept = std::array::from_fn(|number| gates[row * sizes.kept() + number * hidden + unit]);
                    let given = grad_output.map_or(T::ZERO, |grad| grad[row * hidden + unit]);
                    let grad = [grad_states[0][at] + given, grad_states[1][at]];
                    let (grad_sums, grad_earlier) = C::step_back(kept, earlier, now, grad);
                    for (grads, sums) in grads.iter_mut().zip(grad_sums) {
                        for (gate, sum) in sums.into_iter().enumerate().take(C::GATES) {
                            grads[row * width + gate * hidden + unit] = sum;
                        }
                    }
                    grad_states[0][at] = grad_earlier[0];
                    grad_states[1][at] = grad_earlier[1];
                }
            }
            let step = &grads[1][t * width..];
            let rows = View::new(step, time * width);
            multiply(batch, hidden, width, rows, View::new(weight_hh, hidden), &mut grad_states[0], hidden);
        }

        let earlier: Vec<T> = (0..batch * time * hidden)
            .map(|i| state(0, (i / hidden % time).checked_sub(1), i / hidden / time, i % hidden))
            .collect();
        let first = self.weights();
        if self.wants_input {
            let grad_input = call.output(0);
            grad_input.fill(T::ZERO);
            multiply(
                batch * time,
                input,
                width,
                View::new(&grads[0], width),
                View::new(weight_ih, input),
                grad_input,
                input,
            );
        }
        let grad_weight_ih = call.output(first);
        grad_weight_ih.fill(T::ZERO);
        let all = |grads| View::transposed(grads, width);
        multiply(width, input, batch * time, all(&grads[0]), View::new(x, input), grad_weight_ih, input);
        let grad_weight_hh = call.output(first + 1);
        grad_weight_hh.fill(T::ZERO);
        multiply(width, hidden, batch * time, all(&grads[1]), View::new(&earlier, hidden), grad_weight_hh, hidden);
        for (i, grads) in grads.iter().enumerate() {
            let mut sums = Sums::new(width);
            grads.chunks(width).for_each(|row| sums.add_all(0, row));
            sums.write(call.output(first + 2 + i));
        }
        if self.forward.has_initial {
            for (state, grad) in grad_states.iter().enumerate().take(Self::STATES) {
                call.output(first + 4 + state).copy_from_slice(grad);
            }
        }
    }
}
