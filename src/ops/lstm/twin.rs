//! The LSTM on the CPU.

use super::super::Real;
use super::super::gemm::{View, multiply, transpose};
use super::Extents;

fn sigmoid<T: Real>(x: T) -> T {
    T::ONE / (T::ONE + (-x).exp())
}

/// Inputs `input, weight_ih, weight_hh, bias_ih, bias_hh`; outputs as the op's.
pub(super) fn forward<T: Real>(x: &Extents, inputs: [&[T]; 5], initial: Option<[&[T]; 2]>, outputs: [&mut [T]; 5]) {
    let [input, weight_ih, weight_hh, bias_ih, bias_hh] = inputs;
    let [states, last_hidden, last_cell, cells, gates] = outputs;
    let Extents { batch, steps, features, hidden } = *x;
    let width = x.gates();
    for row in gates.chunks_exact_mut(width) {
        for ((gate, &a), &b) in row.iter_mut().zip(bias_ih).zip(bias_hh) {
            *gate = a + b;
        }
    }
    let weight_ih = View::transposed(weight_ih, features);
    multiply(x.rows(), width, features, View::new(input, features), weight_ih, gates, width);
    let weight_hh = transpose(weight_hh, width, hidden);
    let weight_hh = View::new(&weight_hh, width);
    for step in 0..steps {
        let previous = match step {
            0 => initial.map(|[h0, _]| View::new(h0, hidden)),
            _ => Some(View::new(&states[(step - 1) * hidden..], steps * hidden)),
        };
        if let Some(previous) = previous {
            multiply(batch, width, hidden, previous, weight_hh, &mut gates[step * width..], steps * width);
        }
        for sample in 0..batch {
            let row = sample * steps + step;
            let gates = &mut gates[row * width..][..width];
            for unit in 0..hidden {
                let previous = match step {
                    0 => initial.map_or(T::ZERO, |[_, c0]| c0[sample * hidden + unit]),
                    _ => cells[(row - 1) * hidden + unit],
                };
                let i = sigmoid(gates[unit]);
                let f = sigmoid(gates[hidden + unit]);
                let g = gates[2 * hidden + unit].tanh();
                let o = sigmoid(gates[3 * hidden + unit]);
                let c = f * previous + i * g;
                for (k, gate) in [i, f, g, o].into_iter().enumerate() {
                    gates[k * hidden + unit] = gate;
                }
                cells[row * hidden + unit] = c;
                states[row * hidden + unit] = o * c.tanh();
            }
        }
    }
    for sample in 0..batch {
        let last = (sample * steps + steps - 1) * hidden;
        last_hidden[sample * hidden..][..hidden].copy_from_slice(&states[last..last + hidden]);
        last_cell[sample * hidden..][..hidden].copy_from_slice(&cells[last..last + hidden]);
    }
}

/// Inputs `gates, cells, states, input, weight_ih, weight_hh`; gradients of the hidden states, last hidden, last cell.
/// Returns the gradients of gates, weight_ih, weight_hh, either bias, input, h0 and c0.
pub(super) fn backward<T: Real>(
    x: &Extents,
    inputs: [&[T]; 6],
    initial: Option<[&[T]; 2]>,
    grads: [Option<&[T]>; 3],
) -> [Vec<T>; 7] {
    let [gates, cells, states, input, weight_ih, weight_hh] = inputs;
    let Extents { batch, steps, features, hidden } = *x;
    let width = x.gates();
    let state = batch * hidden;
    let mut grad_gates = vec![T::ZERO; x.rows() * width];
    let mut dh = grads[1].map_or_else(|| vec![T::ZERO; state], <[T]>::to_vec);
    let mut dc = grads[2].map_or_else(|| vec![T::ZERO; state], <[T]>::to_vec);
    for step in (0..steps).rev() {
        for sample in 0..batch {
            let row = sample * steps + step;
            let gates = &gates[row * width..][..width];
            let grad_gates = &mut grad_gates[row * width..][..width];
            for unit in 0..hidden {
                let (at, n) = (row * hidden + unit, sample * hidden + unit);
                let [i, f, g, o] = [0, 1, 2, 3].map(|k| gates[k * hidden + unit]);
                let previous = match step {
                    0 => initial.map_or(T::ZERO, |[_, c0]| c0[n]),
                    _ => cells[at - hidden],
                };
                let dh = dh[n] + grads[0].map_or(T::ZERO, |grad| grad[at]);
                let tanh_c = cells[at].tanh();
                let d = dc[n] + dh * o * (T::ONE - tanh_c * tanh_c);
                grad_gates[unit] = d * g * i * (T::ONE - i);
                grad_gates[hidden + unit] = d * previous * f * (T::ONE - f);
                grad_gates[2 * hidden + unit] = d * i * (T::ONE - g * g);
                grad_gates[3 * hidden + unit] = dh * tanh_c * o * (T::ONE - o);
                dc[n] = d * f;
            }
        }
        dh.fill(T::ZERO);
        let from = View::new(&grad_gates[step * width..], steps * width);
        multiply(batch, hidden, width, from, View::new(weight_hh, hidden), &mut dh, hidden);
    }
    let mut grad_weight_ih = vec![T::ZERO; width * features];
    let all = View::transposed(&grad_gates, width);
    multiply(width, features, x.rows(), all, View::new(input, features), &mut grad_weight_ih, features);
    let mut grad_weight_hh = vec![T::ZERO; width * hidden];
    for sample in 0..batch {
        let gates = &grad_gates[sample * steps * width..];
        if let Some([h0, _]) = initial {
            let h0 = View::new(&h0[sample * hidden..], hidden);
            multiply(width, hidden, 1, View::transposed(gates, width), h0, &mut grad_weight_hh, hidden);
        }
        if steps > 1 {
            let later = View::transposed(&gates[width..], width);
            let before = View::new(&states[sample * steps * hidden..], hidden);
            multiply(width, hidden, steps - 1, later, before, &mut grad_weight_hh, hidden);
        }
    }
    let mut grad_bias = vec![T::ZERO; width];
    for row in grad_gates.chunks_exact(width) {
        for (sum, &grad) in grad_bias.iter_mut().zip(row) {
            *sum += grad;
        }
    }
    let mut grad_input = vec![T::ZERO; x.rows() * features];
    let weight_ih = View::new(weight_ih, features);
    multiply(x.rows(), features, width, View::new(&grad_gates, width), weight_ih, &mut grad_input, features);
    [grad_gates, grad_weight_ih, grad_weight_hh, grad_bias, grad_input, dh, dc]
}
