//! The native forms of recurrent ops.

use super::backward::RecurrentBackward;
use super::chunk::{self, Chunk};
use super::{Cell, Recurrent, Sizes, steps_of};
use crate::native::Fast;
use crate::native::recurrent::{self, Backward, Forward, Gradients, KEPT, Lengths, Scratch, Weights};
use crate::ops::{Call, Native, Output, Resources};
use crate::tensor::TensorDesc;

/// A cell as native code knows it.
#[derive(Clone, Copy)]
struct Of<C>(C);

impl<C: Cell> recurrent::Cell for Of<C> {
    const GATES: usize = C::GATES;
    const APART: bool = C::APART;

    #[inline(always)]
    fn gates(self, input: [Fast; KEPT], hidden: [Fast; KEPT]) -> [Fast; KEPT] {
        C::gates(input, hidden)
    }

    #[inline(always)]
    fn step(self, gates: [Fast; KEPT], earlier: [Fast; 2]) -> [Fast; 2] {
        C::step(gates, earlier)
    }

    #[inline(always)]
    fn step_back(
        self,
        gates: [Fast; KEPT],
        earlier: [Fast; 2],
        now: [Fast; 2],
        grad: [Fast; 2],
    ) -> ([[Fast; KEPT]; 2], [Fast; 2]) {
        C::step_back(gates, earlier, now, grad)
    }
}

impl Sizes {
    fn native(self) -> recurrent::Sizes {
        let Sizes { batch, time, input, hidden, gates, apart, .. } = self;
        recurrent::Sizes { batch, time, input, hidden, gates, apart }
    }
}

/// The data of all outputs.
fn outputs<'b>(call: &'b mut Call<'_, f32>) -> Vec<&'b mut [f32]> {
    let real = |output: &'b mut Output<'_, f32>| match output {
        Output::Real(data) => &mut **data,
        _ => panic!("bug: an output of a recurrent op that is not f32"),
    };
    call.outputs.iter_mut().map(real).collect()
}

impl<C: Cell> Native for Recurrent<C> {
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _threads: usize) -> Vec<u64> {
        vec![(4 * Weights::scratch(Sizes::new(self, &inputs[0]).native())) as u64]
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let sizes = Sizes::new(self, &call.input_descs[0]);
        let Sizes { batch, time, hidden, .. } = sizes;
        let cores = with.cores;
        let lengths = self.lengths_input().map(|i| call.ints(i));
        let (weights, biases) = ([1, 2].map(|i| call.input(i)), [3, 4].map(|i| call.input(i)));
        let initial =
            [0, 1].map(|state| self.initial(state).filter(|_| state < C::STATES.len()).map(|i| call.input(i)));
        let forward = Forward {
            cell: Of(self.cell),
            sizes: sizes.native(),
            input: call.input(0),
            weights: Weights::pack(cores, sizes.native(), weights, biases, with.workspaces[0]),
            initial,
            lengths: lengths.map(|lengths| Lengths { lengths, start: sizes.start }),
        };
        let mut outputs = outputs(call);
        let gates = outputs.pop().expect("bug: no output for gates");
        let (all, others) = outputs.split_at_mut(1 + C::STATES.len());
        let (hidden_states, last) = all.split_at_mut(1);
        let mut states = [&mut *hidden_states[0], others.first_mut().map(|states| &mut **states).unwrap_or_default()];
        for chunk in Chunk::all(batch, time, self.gate_steps(batch, time)) {
            forward.run(cores, chunk.range(), states.each_mut().map(|states| &mut **states), gates);
        }
        for (state, last) in last.iter_mut().enumerate() {
            for (sample, last) in last.chunks_exact_mut(hidden).enumerate() {
                match (steps_of(sizes, lengths, sample), initial[state]) {
                    (0, None) => last.fill(0.0),
                    (0, Some(initial)) => last.copy_from_slice(&initial[sample * hidden..][..hidden]),
                    (steps, _) => {
                        last.copy_from_slice(&states[state][(sample * time + steps - 1) * hidden..][..hidden]);
                    }
                }
            }
        }
    }
}

impl<C: Cell> Native for RecurrentBackward<C> {
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], threads: usize) -> Vec<u64> {
        let sizes = self.sizes(&inputs[0]);
        let steps = chunk::length(sizes.batch, sizes.time);
        let mut lengths = vec![Scratch::size(sizes.native(), steps, threads)];
        if self.recomputes() {
            lengths.push(Weights::scratch(sizes.native()));
        }
        if !self.forward.has_initial {
            lengths.extend(C::STATES.iter().map(|_| sizes.batch * sizes.hidden));
        }
        lengths.into_iter().map(|length| 4 * length as u64).collect()
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let sizes = self.sizes(&call.input_descs[0]);
        let Sizes { batch, time, .. } = sizes;
        let cores = with.cores;
        let count = C::STATES.len();
        let steps = chunk::length(batch, time);
        let lengths = self.lengths().map(|i| call.ints(i));
        let grad_outputs = [0, 1, 2].map(|i| self.grad_output(i).map(|i| call.input(i)));
        let of_states =
            |input: Option<usize>, state: usize| input.filter(|_| state < count).map(|input| call.input(input + state));
        let initial = [0, 1].map(|state| of_states(self.initial(0), state));
        let states = [0, 1].map(|state| of_states(Some(self.states()), state));
        let weights = [1, 2].map(|i| call.input(i));
        let gates = self.gates().map(|i| call.input(i));
        let input = call.input(0);
        let biases = self.recomputes().then(|| [3, 4].map(|i| call.input(i)));

        let mut workspaces = with.workspaces.iter_mut().map(|workspace| &mut **workspace);
        let mut workspace = || workspaces.next().expect("bug: too few workspaces");
        let mut scratch = Scratch::new(sizes.native(), steps, cores.threads(), workspace());
        let packed = match biases {
            Some(biases) => Weights::pack(cores, sizes.native(), weights, biases, workspace()),
            None => Weights::none(sizes.native()),
        };
        let mut outputs = outputs(call).into_iter();
        let mut output = || outputs.next().expect("bug: too few outputs");
        let grad_input = self.wants_input.then(&mut output);
        let (grad_weights, grad_biases) = ([output(), output()], [output(), output()]);
        let mut grad_states = [0, 1].map(|state| -> &mut [f32] {
            match self.forward.has_initial {
                _ if state >= count => &mut [],
                true => output(),
                false => &mut workspace()[..batch * sizes.hidden],
            }
        });
        for (grad, given) in grad_states.iter_mut().zip(&grad_outputs[1..]) {
            match given {
                Some(given) if !grad.is_empty() => grad.copy_from_slice(given),
                _ => grad.fill(0.0),
            }
        }
        let mut gradients =
            Gradients { input: grad_input, weights: grad_weights, biases: grad_biases, states: grad_states };
        gradients.weights.iter_mut().chain(&mut gradients.biases).for_each(|grad| grad.fill(0.0));
        let forward = Forward {
            cell: Of(self.forward.cell),
            sizes: sizes.native(),
            input,
            weights: packed,
            initial,
            lengths: lengths.map(|lengths| Lengths { lengths, start: sizes.start }),
        };
        let backward = Backward { forward, weights, states, gates, grad_output: grad_outputs[0] };
        backward.pack(cores, &mut scratch);
        for chunk in Chunk::all(batch, time, steps).rev() {
            backward.run(cores, chunk.range(), &mut scratch, &mut gradients);
        }
    }
}
