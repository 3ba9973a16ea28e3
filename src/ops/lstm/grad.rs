//! The backward of an LSTM: one op for all gradients, back through the steps.

use super::super::gemm::{Gemm, Matrix, reduce_rows};
use super::super::{Call, Cost, Dispatch, Op, Real, Slot};
use super::{Extents, step_dispatch, twin};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::TensorDesc;

/// Rows that the first of two reductions of the biases' gradient adds at a time.
const BIAS_ROWS: usize = 64;

/// All gradients of an LSTM.
///
/// | tensor | shape |
/// |---|---|
/// | inputs gates, cells, hidden states | `[B, T, 4H]`, `[B, T, H]`, `[B, T, H]` |
/// | inputs input, weight_ih, weight_hh | `[B, T, I]`, `[4H, I]`, `[4H, H]` |
/// | inputs h0, c0, if `has_initial` | `[B, H]` |
/// | inputs gradients of the hidden states, last hidden, last cell, as `grad_outputs` says | `[B, T, H]`, `[B, H]`, `[B, H]` |
/// | output 0, gradient of the gates before activation | `[B, T, 4H]`, in place of gates |
/// | outputs 1–4, gradients of weight_ih, weight_hh, bias_ih, bias_hh | as those |
/// | gradient of input, if `grad_input` | `[B, T, I]` |
/// | gradients of h0, c0, if `has_initial` | `[B, H]` |
#[derive(Clone, Copy, Debug)]
pub(super) struct LstmBackward {
    pub(super) hidden: usize,
    pub(super) has_initial: bool,
    pub(super) grad_input: bool,
    pub(super) grad_outputs: [bool; 3],
}

const GATES: Slot = Slot::Input(0);
const CELLS: Slot = Slot::Input(1);
const STATES: Slot = Slot::Input(2);
const INPUT: Slot = Slot::Input(3);
const WEIGHT_IH: Slot = Slot::Input(4);
const WEIGHT_HH: Slot = Slot::Input(5);
const GRAD_GATES: Slot = Slot::Output(0);

/// Gradient of the hidden state, from step to step.
const GRAD_HIDDEN: Slot = Slot::Workspace(0);
/// Parts of split sums.
const SUMS: Slot = Slot::Workspace(1);

impl LstmBackward {
    fn initial(&self, i: usize) -> Option<usize> {
        self.has_initial.then_some(6 + i)
    }

    /// Which input is the gradient of output `i`.
    fn grad_output(&self, i: usize) -> Option<usize> {
        let before = self.grad_outputs[..i].iter().filter(|&&given| given).count();
        self.grad_outputs[i].then_some(6 + 2 * usize::from(self.has_initial) + before)
    }

    /// Which outputs are the gradients of h0 and c0.
    fn grad_initial(&self) -> Option<[usize; 2]> {
        let first = 5 + usize::from(self.grad_input);
        self.has_initial.then_some([first, first + 1])
    }

    fn extents(&self, inputs: &[TensorDesc]) -> Extents {
        Extents::new(&inputs[3], self.hidden)
    }

    fn grad_weight_ih(&self, x: &Extents) -> Gemm {
        Gemm { trans_a: true, ..Gemm::new(x.gates(), x.features, x.rows()) }
    }

    /// Gates of every step but the first meet the hidden state of the step before.
    fn grad_weight_hh(&self, x: &Extents) -> Gemm {
        Gemm { trans_a: true, outer: x.batch, ..Gemm::new(x.gates(), x.hidden, x.steps - 1) }
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let x = self.extents(call.input_descs);
        let inputs = std::array::from_fn(|i| call.input(i));
        let initial = self.has_initial.then(|| [call.input(6), call.input(7)]);
        let grads = std::array::from_fn(|i| self.grad_output(i).map(|i| call.input(i)));
        let made = twin::backward(&x, inputs, initial, grads);
        let order = if self.grad_input { vec![0, 1, 2, 3, 3, 4, 5, 6] } else { vec![0, 1, 2, 3, 3, 5, 6] };
        for (i, &from) in order.iter().take(call.output_descs.len()).enumerate() {
            call.output(i).copy_from_slice(&made[from]);
        }
    }
}

impl Op for LstmBackward {
    fn name(&self) -> &'static str {
        "lstm.backward"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let x = self.extents(inputs);
        let bias = TensorDesc::f32([x.gates()]);
        let mut outputs = vec![inputs[0].clone(), inputs[4].clone(), inputs[5].clone(), bias.clone(), bias];
        outputs.extend(self.grad_input.then(|| inputs[3].clone()));
        if self.has_initial {
            let state = TensorDesc::f32([x.batch, x.hidden]);
            outputs.extend([state.clone(), state]);
        }
        Ok(outputs)
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let x = self.extents(inputs);
        let tensors = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum::<u64>();
        let skipped = if self.grad_input { 0 } else { 2 * (x.rows() * x.gates() * x.features) as u64 };
        let elementwise = 40 * (x.rows() * x.hidden) as u64;
        // Every step reads its gates' gradients again, and so does each of three sums over all steps.
        let bytes_moved = tensors + x.step_bytes(if self.grad_input { 4 } else { 3 });
        Cost { flops: 2 * x.products_flops() - skipped + elementwise, bytes_moved }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        let x = self.extents(inputs);
        let state = (4 * x.batch * x.hidden) as u64;
        let products = [self.grad_weight_ih(&x), self.grad_weight_hh(&x)].map(|gemm| gemm.workspace_bytes().unwrap_or(0));
        let biases = (4 * x.rows().div_ceil(BIAS_ROWS) * x.gates()) as u64;
        let mut workspaces = vec![state, products[0].max(products[1]).max(biases)];
        // With an initial state the gradient of the cell is carried in the gradient of c0.
        workspaces.extend((!self.has_initial).then_some(state));
        workspaces
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        let x = self.extents(inputs);
        let mut dispatches = Vec::new();
        for step in (0..x.steps).rev() {
            dispatches.push(self.cell(&x, step));
            let grad_hidden = match step {
                0 => self.grad_initial().map(|[h0, _]| Slot::Output(h0)),
                _ => Some(GRAD_HIDDEN),
            };
            if let Some(grad_hidden) = grad_hidden {
                dispatches.push(Gemm::new(x.batch, x.hidden, x.gates()).single(
                    target,
                    x.step(GRAD_GATES, step, x.gates()),
                    Matrix::new(WEIGHT_HH, x.hidden),
                    Matrix::new(grad_hidden, x.hidden),
                ));
            }
        }
        self.weights(&x, target, &mut dispatches);
        self.biases(&x, &mut dispatches);
        if self.grad_input {
            dispatches.push(Gemm::new(x.rows(), x.features, x.gates()).single(
                target,
                Matrix::new(GRAD_GATES, x.gates()),
                Matrix::new(WEIGHT_IH, x.features),
                Matrix::new(Slot::Output(5), x.features),
            ));
        }
        dispatches
    }

    twin!();
}

impl LstmBackward {
    fn cell(&self, x: &Extents, step: usize) -> Dispatch {
        let is_last = step + 1 == x.steps;
        let grad_last_hidden = self.grad_output(1).map(Slot::Input);
        let grad_hidden = if is_last { grad_last_hidden.unwrap_or(GRAD_HIDDEN) } else { GRAD_HIDDEN };
        let carry = self.grad_initial().map_or(Slot::Workspace(2), |[_, c0]| Slot::Output(c0));
        let optional = [self.grad_output(0), self.grad_output(2), self.initial(1)];
        // A binding that the kernel does not declare is not looked at.
        let mut bindings = vec![GATES, CELLS, grad_hidden, carry, GRAD_GATES];
        bindings.extend(optional.map(|input| Slot::Input(input.unwrap_or(0))));
        while bindings.len() > 5 && optional[bindings.len() - 6].is_none() {
            bindings.pop();
        }
        let dispatch = step_dispatch("grad_cell", bindings, x, step, !is_last || grad_last_hidden.is_some());
        ["GRAD_OUTPUT", "GRAD_CELL", "HAS_INITIAL"]
            .into_iter()
            .zip(optional)
            .filter(|(_, input)| input.is_some())
            .fold(dispatch, |dispatch, (name, _)| dispatch.constant(name, 1))
    }

    fn weights(&self, x: &Extents, target: &Target, dispatches: &mut Vec<Dispatch>) {
        let all_gates = Matrix::new(GRAD_GATES, x.gates());
        let input = Matrix::new(INPUT, x.features);
        dispatches.extend(self.grad_weight_ih(x).dispatches(target, all_gates, input, Slot::Output(1), SUMS));
        let later_gates = Matrix { offset: x.gates(), outer: x.steps * x.gates(), ..all_gates };
        let states = Matrix { outer: x.steps * x.hidden, ..Matrix::new(STATES, x.hidden) };
        dispatches.extend(self.grad_weight_hh(x).dispatches(target, later_gates, states, Slot::Output(2), SUMS));
        if let Some(h0) = self.initial(0) {
            let gemm = Gemm { trans_a: true, accumulate: true, ..Gemm::new(x.gates(), x.hidden, x.batch) };
            dispatches.push(gemm.single(
                target,
                x.step(GRAD_GATES, 0, x.gates()),
                Matrix::new(Slot::Input(h0), x.hidden),
                Matrix::new(Slot::Output(2), x.hidden),
            ));
        }
    }

    fn biases(&self, x: &Extents, dispatches: &mut Vec<Dispatch>) {
        let rows = x.rows().div_ceil(BIAS_ROWS);
        dispatches.push(reduce_rows(GRAD_GATES, SUMS, x.rows(), x.gates(), BIAS_ROWS));
        for output in [Slot::Output(3), Slot::Output(4)] {
            dispatches.push(reduce_rows(SUMS, output, rows, x.gates(), rows));
        }
    }
}
