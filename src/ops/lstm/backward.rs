//! The gradients of an LSTM.

use super::Sizes;
use crate::error::OpError;
use crate::ops::gemm::{Gemm, Matrix, View, multiply, reduce_rows};
use crate::ops::{Call, Cost, Dispatch, Op, Real, Slot};
use crate::shader::Target;
use crate::tensor::TensorDesc;

/// Rows that one invocation adds in the first level of a bias gradient.
const ROWS: usize = 256;

/// All gradients of an LSTM, going back through time.
///
/// Inputs: `input, weight_ih, weight_hh, (h0, c0), hidden states, cell states, gates`, then the gradients of outputs 0, 1
/// and 2 that there are. Outputs: gradients of `(input), weight_ih, weight_hh, bias_ih, bias_hh, (h0, c0)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct LstmBackward {
    pub(super) hidden: usize,
    pub(super) has_initial: bool,
    pub(super) has_grad: [bool; 3],
    pub(super) wants_input: bool,
}

/// Workspaces, in order. The last ones are there only where a sum is split.
const GRAD_GATES: usize = 0;
const GRAD_HIDDEN: usize = 1;
const GRAD_CELL: usize = 2;
const BIAS_SUMS: usize = 3;

impl LstmBackward {
    /// Position of the hidden states among the inputs; cell states and gates follow.
    fn states(self) -> usize {
        if self.has_initial { 5 } else { 3 }
    }

    /// Input that holds the gradient of output `i`.
    fn grad_output(self, i: usize) -> Option<usize> {
        let before = self.has_grad[..i].iter().filter(|has| **has).count();
        self.has_grad[i].then(|| self.states() + 3 + before)
    }

    /// Output that holds the gradient of `weight_ih`; those of `weight_hh`, `bias_ih`, `bias_hh`, `h0`, `c0` follow.
    fn weights(self) -> usize {
        usize::from(self.wants_input)
    }

    /// `grad_weight_ih = grad_gatesᵀ · input`, over all samples and steps.
    fn weight_ih(sizes: Sizes) -> Gemm {
        let Sizes { batch, time, input, hidden } = sizes;
        Gemm { trans_a: true, ..Gemm::new(4 * hidden, input, batch * time) }
    }

    /// `grad_weight_hh = grad_gatesᵀ · hidden states`, each step with the state before it.
    fn weight_hh(sizes: Sizes) -> Gemm {
        let Sizes { batch, time, hidden, .. } = sizes;
        Gemm { trans_a: true, outer: batch, ..Gemm::new(4 * hidden, hidden, time - 1) }
    }

    /// `grad_input = grad_gates · weight_ih`
    fn input(sizes: Sizes) -> Gemm {
        let Sizes { batch, time, input, hidden } = sizes;
        Gemm::new(batch * time, input, 4 * hidden)
    }

    /// Where the sums of a split product go: after the fixed workspaces, in the order of the products.
    fn split_workspaces(self, sizes: Sizes) -> [Option<u64>; 3] {
        let input = if self.wants_input { Self::input(sizes).workspace_bytes() } else { None };
        [Self::weight_ih(sizes).workspace_bytes(), Self::weight_hh(sizes).workspace_bytes(), input]
    }
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
            outputs.extend([inputs[3].clone(), inputs[4].clone()]);
        }
        Ok(outputs)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let sizes = Sizes::new(&inputs[0], self.hidden);
        let bytes: u64 = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum();
        let gates = inputs[self.states() + 2].size_bytes();
        let products = if self.wants_input { 2 } else { 1 };
        let forward = sizes.flops();
        let recurrent = (sizes.batch * sizes.time * 8 * self.hidden * self.hidden) as u64;
        Cost {
            flops: products * forward + recurrent,
            bytes_moved: bytes + sizes.time as u64 * inputs[2].size_bytes() + 4 * gates,
        }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        let sizes = Sizes::new(&inputs[0], self.hidden);
        let rows = sizes.batch * sizes.time;
        let state = (sizes.batch * self.hidden * 4) as u64;
        let mut workspaces = vec![
            (rows * 4 * self.hidden * 4) as u64,
            state,
            state,
            (rows.div_ceil(ROWS) * 4 * self.hidden * 4) as u64,
        ];
        workspaces.extend(self.split_workspaces(sizes).into_iter().flatten());
        workspaces
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        let sizes = Sizes::new(&inputs[0], self.hidden);
        let Sizes { batch, time, input, hidden } = sizes;
        let first_output = self.weights();
        let (states, gates) = (Slot::Input(self.states()), Slot::Input(self.states() + 2));
        let grad_gates = Slot::Workspace(GRAD_GATES);
        // The gradients of the states end up as those of h0 and c0 where these are given.
        let (grad_hidden, grad_cell) = if self.has_initial {
            (Slot::Output(first_output + 4), Slot::Output(first_output + 5))
        } else {
            (Slot::Workspace(GRAD_HIDDEN), Slot::Workspace(GRAD_CELL))
        };

        let mut bindings = vec![grad_hidden, grad_cell];
        bindings.extend([1, 2].into_iter().filter_map(|i| self.grad_output(i)).map(Slot::Input));
        let mut init = sizes.launch("backward_init", bindings, 0);
        for (i, name) in [(1, "GRAD_HIDDEN"), (2, "GRAD_CELL")] {
            if self.has_grad[i] {
                init = init.constant(name, 1);
            }
        }
        let mut dispatches = vec![init];

        let recurrent = Gemm::new(batch, hidden, 4 * hidden);
        for t in (0..time).rev() {
            let mut bindings = vec![gates, Slot::Input(self.states() + 1), grad_gates, grad_hidden, grad_cell];
            bindings.extend(self.has_initial.then_some(Slot::Input(4)));
            bindings.extend(self.grad_output(0).map(Slot::Input));
            let mut step = sizes.launch("backward_step", bindings, t);
            if self.has_initial {
                step = step.constant("INITIAL", 1);
            }
            if self.has_grad[0] {
                step = step.constant("GRAD_OUTPUT", 1);
            }
            dispatches.push(step);
            if t > 0 || self.has_initial {
                let step = sizes.step(grad_gates, 4 * hidden, t);
                let weight = Matrix::new(Slot::Input(2), hidden);
                dispatches.push(recurrent.single(target, step, weight, Matrix::new(grad_hidden, hidden)));
            }
        }

        let mut next = BIAS_SUMS + 1;
        let splits = self.split_workspaces(sizes).map(|bytes| {
            let slot = Slot::Workspace(next);
            next += usize::from(bytes.is_some());
            slot
        });
        let all = Matrix::new(grad_gates, 4 * hidden);
        let samples = Matrix::new(Slot::Input(0), input);
        let weight_ih = Self::weight_ih(sizes);
        dispatches.extend(weight_ih.dispatches(target, all, samples, Slot::Output(first_output), splits[0]));
        let later = Matrix { offset: 4 * hidden, outer: time * 4 * hidden, ..all };
        let earlier = Matrix { outer: time * hidden, ..Matrix::new(states, hidden) };
        let grad_weight_hh = Slot::Output(first_output + 1);
        dispatches.extend(Self::weight_hh(sizes).dispatches(target, later, earlier, grad_weight_hh, splits[1]));
        if self.has_initial {
            let first = Gemm { trans_a: true, accumulate: true, ..Gemm::new(4 * hidden, hidden, batch) };
            let initial = Matrix::new(Slot::Input(3), hidden);
            let output = Matrix::new(grad_weight_hh, hidden);
            dispatches.push(first.single(target, sizes.step(grad_gates, 4 * hidden, 0), initial, output));
        }
        let rows = batch * time;
        let sums = Slot::Workspace(BIAS_SUMS);
        dispatches.push(reduce_rows(grad_gates, sums, rows, 4 * hidden, ROWS));
        for bias in [first_output + 2, first_output + 3] {
            let parts = rows.div_ceil(ROWS);
            dispatches.push(reduce_rows(sums, Slot::Output(bias), parts, 4 * hidden, parts));
        }
        if self.wants_input {
            let weight = Matrix::new(Slot::Input(1), input);
            dispatches.extend(Self::input(sizes).dispatches(target, all, weight, Slot::Output(0), splits[2]));
        }
        dispatches
    }

    twin!();
}

impl LstmBackward {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let sizes = Sizes::new(&call.input_descs[0], self.hidden);
        let Sizes { batch, time, input, hidden } = sizes;
        let (x, weight_ih, weight_hh) = (call.input(0), call.input(1), call.input(2));
        let initial = self.has_initial.then(|| (call.input(3), call.input(4)));
        let states = self.states();
        let (hiddens, cells, gates) = (call.input(states), call.input(states + 1), call.input(states + 2));
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
