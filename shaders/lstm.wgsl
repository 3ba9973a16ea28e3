// What an LSTM does between products with weights, which are matmul.forward.
//
// forward_step:    [i f g o] = gates + bias_ih + bias_hh, through sigmoid (i, f, o) and tanh (g), kept in `gates`
//                  cell = f * earlier cell + i * g, hidden = o * tanh(cell)
//                  At steps that a sample has not: zeros everywhere, and last_hidden, last_cell stay as they are. They hold
//                  the initial states before the first step.
// recompute_gates: the first of these lines alone, for all steps that `gates` holds
// backward_step:   grad_hidden (+ grad_output of the step) and grad_cell become grads of the sums before sigmoid and tanh,
//                  and the gradients of the step before; that of its hidden state is 0, to which a product is added. At steps
//                  that a sample has not: grads are 0, and the gradients of states pass by.
//
// bindings   See shared/recurrent.wgsl for the letters; W = 4H.
//            forward_step: bias_ih [4H], bias_hh [4H], gates [B, C, 4H] (changed), hidden [B, T, H], last_hidden [B, H]
//            (changed), cells [B, T, H], last_cell [B, H] (changed), lengths [B]
//            recompute_gates: bias_ih [4H], bias_hh [4H], gates [B, C, 4H] (changed)
//            backward_step: cells [B, T, H], grads [B, D, 4H], grad_hidden [B, H], grad_cell [B, H] (all changed but the
//            first), initial cell [B, H], grad_output [B, T, H], gates [B, C, 4H], lengths [B]; without GATES these are in
//            grads, and C = D
// dispatch   one invocation per element of [B, H], recompute_gates: of [B, C, H]; 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.LSTM.html
#import "shared/recurrent.wgsl"

#ifdef BIASES
@group(0) @binding(0) var<storage, read> bias_ih: array<Storage>;
@group(0) @binding(1) var<storage, read> bias_hh: array<Storage>;
@group(0) @binding(2) var<storage, read_write> gates: array<Storage>;

fn gate_sum(at: u32, unit: u32) -> Accum {
    return Accum(gates[at]) + Accum(bias_ih[unit]) + Accum(bias_hh[unit]);
}

// Turns the sums of a unit into its gates; returns i, f, g, o.
fn open_gates(at: u32, unit: u32) -> Accum4 {
    let h = params.hidden;
    let open = sigmoid4(Accum4(gate_sum(at, unit), gate_sum(at + h, unit + h), gate_sum(at + 3u * h, unit + 3u * h), 0.0));
    let g = tanh4(Accum4(gate_sum(at + 2u * h, unit + 2u * h))).x;
    gates[at] = Storage(open.x);
    gates[at + h] = Storage(open.y);
    gates[at + 2u * h] = Storage(g);
    gates[at + 3u * h] = Storage(open.z);
    return Accum4(open.x, open.y, g, open.z);
}
#endif

#ifdef ENTRY_recompute_gates
@compute @workgroup_size(64)
fn recompute_gates(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.count {
        return;
    }
    let row = i / params.hidden;
    let unit = i - row * params.hidden;
    open_gates(row * 4u * params.hidden + unit, unit);
}
#endif

#ifdef ENTRY_forward_step
@group(0) @binding(3) var<storage, read_write> hidden: array<Storage>;
@group(0) @binding(4) var<storage, read_write> last_hidden: array<Storage>;
@group(0) @binding(5) var<storage, read_write> cells: array<Storage>;
@group(0) @binding(6) var<storage, read_write> last_cell: array<Storage>;

@compute @workgroup_size(64)
fn forward_step(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.count {
        return;
    }
    let at = gates_at(i);
    let now = at_time(i, params.t);
    let steps = steps_of(i);
    if params.t >= steps {
        for (var gate = 0u; gate < 4u; gate++) {
            gates[at + gate * params.hidden] = Storage(0.0);
        }
        cells[now] = Storage(0.0);
        hidden[now] = Storage(0.0);
        return;
    }
    let open = open_gates(at, i % params.hidden);
    var earlier = last_cell[i];
    if params.t > 0u {
        earlier = cells[at_time(i, params.t - 1u)];
    }
    let cell = open.x * open.z + open.y * Accum(earlier);
    let state = open.w * tanh4(Accum4(cell)).x;
    cells[now] = Storage(cell);
    hidden[now] = Storage(state);
    if params.t + 1u == steps {
        last_hidden[i] = Storage(state);
        last_cell[i] = Storage(cell);
    }
}
#endif

#ifdef ENTRY_backward_step
@group(0) @binding(0) var<storage, read> cells: array<Storage>;
@group(0) @binding(1) var<storage, read_write> grads: array<Storage>;
@group(0) @binding(2) var<storage, read_write> grad_hidden: array<Storage>;
@group(0) @binding(3) var<storage, read_write> grad_cell: array<Storage>;
#ifdef INITIAL
@group(0) @binding(INITIAL) var<storage, read> initial_cell: array<Storage>;
#endif
#ifdef GRAD_OUTPUT
@group(0) @binding(GRAD_OUTPUT) var<storage, read> grad_output: array<Storage>;
#endif
#ifdef GATES
@group(0) @binding(GATES) var<storage, read> gates: array<Storage>;
#endif

fn gate(i: u32, number: u32) -> Accum {
#ifdef GATES
    return Accum(gates[gates_at(i) + number * params.hidden]);
#else
    return Accum(grads[grads_at(i) + number * params.hidden]);
#endif
}

@compute @workgroup_size(64)
fn backward_step(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.count {
        return;
    }
    let h = params.hidden;
    let at = grads_at(i);
    let now = at_time(i, params.t);
    if params.t >= steps_of(i) {
        for (var sum = 0u; sum < 4u; sum++) {
            grads[at + sum * h] = Storage(0.0);
        }
        return;
    }
    let input_gate = gate(i, 0u);
    let forget = gate(i, 1u);
    let g = gate(i, 2u);
    let output_gate = gate(i, 3u);
    var earlier = Accum(0.0);
    if params.t > 0u {
        earlier = Accum(cells[at_time(i, params.t - 1u)]);
    } else {
#ifdef INITIAL
        earlier = Accum(initial_cell[i]);
#endif
    }
    var d_hidden = Accum(grad_hidden[i]);
#ifdef GRAD_OUTPUT
    d_hidden += Accum(grad_output[now]);
#endif
    let squashed = tanh4(Accum4(Accum(cells[now]))).x;
    let d_cell = Accum(grad_cell[i]) + d_hidden * output_gate * (1.0 - squashed * squashed);
    grads[at] = Storage(d_cell * g * input_gate * (1.0 - input_gate));
    grads[at + h] = Storage(d_cell * earlier * forget * (1.0 - forget));
    grads[at + 2u * h] = Storage(d_cell * input_gate * (1.0 - g * g));
    grads[at + 3u * h] = Storage(d_hidden * squashed * output_gate * (1.0 - output_gate));
    grad_hidden[i] = Storage(0.0);
    grad_cell[i] = Storage(d_cell * forget);
}
#endif
