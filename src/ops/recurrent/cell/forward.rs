//! The op itself.

use crate::ops::onnx;
use std::sync::Arc;

use super::backward::RecurrentBackward;
use super::chunk::Chunk;
use super::tile::{Bound, LANE, StepTile};
use super::{At, Cell, Recurrent, Sizes, Weights, open_gates, steps_of, with_optional};
use crate::error::OpError;
use crate::ops::matmul::gemm::{Matrix, View};
use crate::ops::{
    Backward, Builder, Call, Cost, Dispatch, Integers, MAX_LOOP_ITERATIONS, Native, Op, Real, SavedActivations, Slot,
    expect_count, expect_dtype, expect_rank, expect_shape,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// What an invocation may loop beside its sums.
const SPARE_ITERATIONS: usize = 256;

impl<C: Cell> Recurrent<C> {
    /// Names of the inputs.
    fn input_names(&self) -> Vec<&'static str> {
        let mut names = vec!["input", "weight_ih", "weight_hh", "bias_ih", "bias_hh"];
        names.extend(C::STATES.iter().take_while(|_| self.has_initial));
        names.extend(self.lengths.map(|_| "lengths"));
        names
    }

    /// Input that holds an initial state.
    pub(super) fn initial(&self, state: usize) -> Option<usize> {
        self.has_initial.then_some(5 + state)
    }

    /// The kernel for steps with their products, where the device and the sizes are for it.
    pub(super) fn tile(&self, sizes: Sizes, target: &Target) -> Option<StepTile> {
        StepTile::new(sizes, 4 + C::STATES.len() + usize::from(self.lengths.is_some()), target)
    }

    /// How many steps of a chunk are not for that kernel: all without it, otherwise one that starts from given states.
    pub(super) fn single_steps(&self, chunk: Chunk, tile: Option<StepTile>) -> usize {
        if tile.is_none() { chunk.steps } else { usize::from(chunk.begin == 0 && self.has_initial) }
    }

    /// Input that holds the lengths.
    pub(super) fn lengths_input(&self) -> Option<usize> {
        self.lengths.map(|_| 5 + if self.has_initial { C::STATES.len() } else { 0 })
    }
}

impl<C: Cell> Op for Recurrent<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        in_onnx(self, call)
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let names = self.input_names();
        expect_count(C::NAME, inputs, names.len())?;
        for (input, name) in inputs.iter().zip(&names) {
            expect_dtype(C::NAME, name, input, if *name == "lengths" { DType::U32 } else { DType::F32 })?;
        }
        expect_rank(C::NAME, "input", &inputs[0], 3)?;
        let Sizes { batch, time, input, hidden, .. } = Sizes::new(self, &inputs[0]);
        if [batch, time, input, hidden].contains(&0) {
            let expected = format!("of at least one sample, step and feature, with {hidden} hidden units");
            return Err(OpError::Input { op: C::NAME, input: "input", expected, found: inputs[0].clone() });
        }
        let sums = C::GATES * hidden;
        // One invocation goes over all terms of a sum, four at a time.
        if input.saturating_add(hidden).max(sums) / LANE + SPARE_ITERATIONS > MAX_LOOP_ITERATIONS as usize {
            let expected = format!("smaller: sums over so many features and {hidden} hidden units are too long");
            return Err(OpError::Input { op: C::NAME, input: "input", expected, found: inputs[0].clone() });
        }
        let weights: [&[usize]; 4] = [&[sums, input], &[sums, hidden], &[sums], &[sums]];
        for ((desc, name), shape) in inputs[1..].iter().zip(&names[1..]).zip(weights) {
            expect_shape(C::NAME, name, desc, shape)?;
        }
        for (desc, name) in inputs[5..].iter().zip(&names[5..]) {
            let shape: &[usize] = if *name == "lengths" { &[batch] } else { &[batch, hidden] };
            expect_shape(C::NAME, name, desc, shape)?;
        }
        let mut outputs = vec![TensorDesc::f32([batch, time, hidden])];
        outputs.extend(C::STATES.iter().map(|_| TensorDesc::f32([batch, hidden])));
        outputs.extend(C::STATES[1..].iter().map(|_| TensorDesc::f32([batch, time, hidden])));
        outputs.push(TensorDesc::f32([batch, self.gate_steps(batch, time), super::KEPT * hidden]));
        Ok(outputs)
    }

    fn compressed(&self) -> Option<Arc<dyn Op>> {
        (self.saved == SavedActivations::Full)
            .then(|| Arc::new(Recurrent { saved: SavedActivations::Compressed, ..*self }) as Arc<dyn Op>)
    }

    fn recomputes_compressed(&self) -> bool {
        true
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let states = C::STATES.len();
        if forward.grad_outputs[1 + states..].iter().any(Option::is_some) {
            return Err(OpError::NotDifferentiable { op: C::INNER });
        }
        let mut inputs = forward.inputs[..3].to_vec();
        if self.saved == SavedActivations::Compressed {
            inputs.extend(&forward.inputs[3..5]);
        }
        inputs.extend(&forward.inputs[5..]);
        inputs.extend((0..states).map(|state| forward.outputs[Self::states_output(state)]));
        if self.saved == SavedActivations::Full {
            inputs.push(forward.outputs[Self::GATES_OUTPUT]);
        }
        inputs.extend(forward.grad_outputs.iter().flatten());
        let op = RecurrentBackward {
            forward: *self,
            has_grad: [0, 1, 2].map(|i| forward.grad_outputs[i].is_some()),
            wants_input: forward.wanted[0],
        };
        let mut gradients: Vec<_> = graph.apply(Arc::new(op), &inputs)?.into_iter().map(Some).collect();
        if !forward.wanted[0] {
            gradients.insert(0, None);
        }
        gradients.resize(forward.inputs.len(), None);
        Ok(gradients)
    }

    fn integers(&self, input: usize, inputs: &[TensorDesc]) -> Option<Integers> {
        let start = self.lengths.filter(|_| self.lengths_input() == Some(input))?;
        Some(Integers::Steps { end: start + inputs[0].shape[1] })
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let sizes = Sizes::new(self, &inputs[0]);
        let bytes: u64 = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum();
        // The recurrent weights are read at every step, the gates of a step three times and written as often.
        let gates = (sizes.batch * sizes.time * sizes.kept() * 4) as u64;
        let again = sizes.time as u64 * inputs[2].size_bytes() + 2 * gates;
        Cost { flops: sizes.flops(), bytes_moved: bytes + again }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        let sizes = Sizes::new(self, &inputs[0]);
        C::APART.then_some((sizes.batch * sizes.sums() * 4) as u64).into_iter().collect()
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        let sizes = Sizes::new(self, &inputs[0]);
        let Sizes { batch, time, hidden, .. } = sizes;
        let gates = Slot::Output(Self::GATES_OUTPUT);
        let weight = Matrix::new(Slot::Input(2), hidden);
        let tile = self.tile(sizes, target);
        // The state that a cell passes on besides its products: its last one.
        let carried = C::STATES.len() - 1;
        let states = || (0..C::STATES.len()).map(|state| Slot::Output(Self::states_output(state)));
        let lengths = ("LENGTHS", self.lengths_input().map(Slot::Input));
        let mut dispatches = Vec::new();
        for chunk in Chunk::all(batch, time, self.gate_steps(batch, time)) {
            let at = |t: usize| At { t, gates: [chunk.steps, t - chunk.begin], grads: [0, 0] };
            let single = self.single_steps(chunk, tile);
            let separate = if tile.is_some_and(|tile| tile.takes_inputs) { single } else { chunk.steps };
            if separate > 0 {
                let part = Chunk { steps: separate, ..chunk };
                dispatches.push(sizes.inputs_to_sums(target, part, gates, sizes.kept(), chunk.steps));
            }
            for t in chunk.range().take(single) {
                let earlier = match t {
                    0 => self.initial(0).map(|initial| Matrix::new(Slot::Input(initial), hidden)),
                    _ => Some(sizes.step(Slot::Output(0), hidden, [time, t - 1])),
                };
                let sums = if C::APART {
                    Matrix::new(Slot::Workspace(0), sizes.sums())
                } else {
                    sizes.step(gates, sizes.kept(), at(t).gates)
                };
                dispatches.extend(earlier.map(|earlier| sizes.over_states().single(target, earlier, weight, sums)));
                let mut bindings = vec![Slot::Input(3), Slot::Input(4), gates];
                bindings.extend(states());
                let optional = [
                    ("INITIAL", self.initial(carried).map(Slot::Input)),
                    ("SUMS", earlier.map(|_| sums.slot).filter(|_| C::APART)),
                    lengths,
                ];
                let step = sizes.launch("forward_step", bindings, at(t)).constant("BIASES", 1);
                dispatches.push(with_optional(step, optional));
            }
            for t in chunk.range().skip(single) {
                let tile = tile.expect("bug: steps without a tile");
                let always = vec![Slot::Input(2), Slot::Input(3), Slot::Input(4), gates, Slot::Output(0)];
                let bound = Bound { always, optional: [("CELLS", states().nth(1)), lengths] };
                dispatches.push(tile.forward(sizes, bound, [Slot::Input(0), Slot::Input(1)], 1, at(t), false));
            }
        }
        for (state, states) in states().enumerate() {
            let at = At { t: 0, gates: [0, 0], grads: [0, 0] };
            let launch = sizes.launch("last_states", vec![states, Slot::Output(1 + state)], at);
            dispatches.push(with_optional(launch, [("INITIAL", self.initial(state).map(Slot::Input)), lengths]));
        }
        dispatches
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl<C: Cell> Recurrent<C> {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let sizes = Sizes::new(self, &call.input_descs[0]);
        let Sizes { batch, time, input, hidden, .. } = sizes;
        let weights = Weights::new(sizes, call);
        let x = call.input(0);
        let lengths = self.lengths_input().map(|i| call.ints(i));
        let zeros = || vec![T::ZERO; batch * hidden];
        // The states before the step at hand; a cell of one state leaves the second as it is.
        let mut states = [0, 1].map(|state| match self.initial(state).filter(|_| state < C::STATES.len()) {
            Some(initial) => call.input(initial).to_vec(),
            None => zeros(),
        });
        for chunk in Chunk::all(batch, time, self.gate_steps(batch, time)) {
            let rows = (0..batch).flat_map(|b| &x[(b * time + chunk.begin) * input..][..chunk.steps * input]);
            let over_inputs = weights.over_inputs(&rows.copied().collect::<Vec<_>>(), batch * chunk.steps);
            for t in chunk.range() {
                let over_states = weights.over_states(View::new(&states[0], hidden));
                for b in 0..batch {
                    let row = b * chunk.steps + t - chunk.begin;
                    let mut gates = vec![T::ZERO; sizes.kept()];
                    let is_there = t < steps_of(sizes, lengths, b);
                    if is_there {
                        let [input, hidden] = [(&over_inputs, row), (&over_states, b)]
                            .map(|(sums, row)| &sums[row * sizes.sums()..][..sizes.sums()]);
                        open_gates::<C, T>(sizes, input, hidden, &mut gates);
                    }
                    call.output(Self::GATES_OUTPUT)[row * sizes.kept()..][..sizes.kept()].copy_from_slice(&gates);
                    for unit in 0..hidden {
                        let at = b * hidden + unit;
                        let mut now = [T::ZERO; 2];
                        if is_there {
                            let gates = std::array::from_fn(|number| gates[number * hidden + unit]);
                            now = C::step(gates, [states[0][at], states[1][at]]);
                            states[0][at] = now[0];
                            states[1][at] = now[1];
                        }
                        for (state, &now) in now.iter().enumerate().take(C::STATES.len()) {
                            call.output(Self::states_output(state))[(b * time + t) * hidden + unit] = now;
                        }
                    }
                }
            }
        }
        for (state, last) in states.iter().enumerate().take(C::STATES.len()) {
            call.output(1 + state).copy_from_slice(last);
        }
    }
}

/// A node with time first, one direction and gates in the order of ONNX.
fn in_onnx<C: Cell>(op: &Recurrent<C>, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
    let (operator, order, mut attributes) = C::in_onnx()?;
    let lengths = vec![op.hidden as i64; C::GATES];
    let first = call.ints([0]);
    let gates = |call: &mut onnx::Call<'_>, index: usize| {
        let weight = call.input(index);
        if order.len() == 1 {
            return weight;
        }
        let lengths = call.ints(lengths.clone());
        let blocks = call.node_of("Split", &[&weight, &lengths], [("axis", 0.into())], &[true; 4][..order.len()]);
        let ordered: Vec<&str> = order.iter().map(|&gate| &blocks[gate][..]).collect();
        call.node("Concat", &ordered, [("axis", 0.into())])
    };
    let mut weights: Vec<String> = (1..=4).map(|index| gates(call, index)).collect();
    let biases = call.node("Concat", &[&weights[2], &weights[3]], [("axis", 0.into())]);
    weights.truncate(2);
    weights.push(biases);
    // The axis of directions.
    let weights: Vec<String> = weights.iter().map(|weight| call.apply("Unsqueeze", &[weight, &first])).collect();
    let value = call.input(0);
    let mut inputs = vec![call.transpose(&value, &[1, 0, 2])];
    inputs.extend(weights);
    inputs.push(match op.lengths_input() {
        // A run from a later step on has fewer.
        Some(_) if op.lengths != Some(0) => return None,
        Some(index) => {
            let lengths = call.input(index);
            call.node("Cast", &[&lengths], [("to", 6.into())])
        }
        None => String::new(),
    });
    if op.has_initial {
        for state in 0..C::STATES.len() {
            let state = call.input(5 + state);
            inputs.push(call.apply("Unsqueeze", &[&state, &first]));
        }
    }
    attributes.push(("hidden_size", (op.hidden as i64).into()));
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let states = C::STATES.len();
    let used: Vec<bool> = (0..=states).map(|output| call.is_used(output)).collect();
    let made = call.node_of(operator, &inputs, attributes, &used);
    let mut outputs = Vec::new();
    for (index, made) in made.iter().enumerate() {
        outputs.push(match (used[index], index) {
            (false, _) => String::new(),
            // [time, 1, batch, hidden]
            (true, 0) => {
                let axis = call.ints([1]);
                let steps = call.apply("Squeeze", &[made, &axis]);
                call.transpose(&steps, &[1, 0, 2])
            }
            // [1, batch, hidden]
            (true, _) => call.apply("Squeeze", &[made, &first]),
        });
    }
    Some(outputs)
}
