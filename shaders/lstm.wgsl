// What an LSTM does between products with weights, which are matmul.forward.
//
// forward_step:    [i f g o] = gates + bias_ih + bias_hh, through sigmoid (i, f, o) and tanh (g), kept in `gates`
//                  cell = f * earlier cell + i * g, hidden = o * tanh(cell)
// recompute_gates: the first of these two lines alone, for all steps that `gates` holds
// backward_init:   grad_hidden, grad_cell = those of the last state, or 0
// backward_step:   grad_hidden (+ grad_output of the step) and grad_cell become grad_gates of the sums before sigmoid and
//                  tanh, and grad_cell of the step before
//
// bindings   B, T, H are batch, time and hidden size; C and D are the steps that a buffer of gates holds.
//            forward_step: bias_ih [4H], bias_hh [4H], gates [B, C, 4H] (changed), cells [B, T, H], hidden [B, T, H],
//            last_hidden [B, H], last_cell [B, H], initial cell [B, H]
//            recompute_gates: bias_ih [4H], bias_hh [4H], gates [B, C, 4H] (changed)
//            backward_init: grad_hidden [B, H], grad_cell [B, H], grad_last_hidden [B, H], grad_last_cell [B, H]
//            backward_step: cells [B, T, H], grad_gates [B, D, 4H], grad_hidden [B, H], grad_cell [B, H] (changed), initial
//            cell [B, H], grad_output [B, T, H], gates [B, C, 4H]; without GATES these are in grad_gates, and C = D
//            Where one is left out, the next take its number: INITIAL, GRAD_OUTPUT, GATES, GRAD_HIDDEN and GRAD_CELL are
//            defined where there is an initial cell and so on, as the number of its binding.
// dispatch   one invocation per element of [B, H], recompute_gates: of [B, C, H]; 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.LSTM.html
#import "shared/index.wgsl"
#import "shared/math.wgsl"

struct Params {
    // Invocations.
    count: u32,
    hidden: u32,
    // Time steps, and the one at hand.
    time: u32,
    t: u32,
    // Steps that `gates` holds, and at which of them the one at hand is.
    gates_time: u32,
    gates_t: u32,
    // The same for `grad_gates`.
    grads_time: u32,
    grads_t: u32,
}
var<immediate> params: Params;

// Where element i of [B, H] lies in a tensor [B, T, H] at a time step.
fn at_time(i: u32, t: u32) -> u32 {
    let b = i / params.hidden;
    return (b * params.time + t) * params.hidden + (i - b * params.hidden);
}

// Where its input gate lies in a tensor [B, time, 4H] at a step; f, g, o follow at distances of H.
fn gates_at(i: u32, time: u32, t: u32) -> u32 {
    let b = i / params.hidden;
    return (b * time + t) * 4u * params.hidden + (i - b * params.hidden);
}

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
@group(0) @binding(3) var<storage, read_write> cells: array<Storage>;
@group(0) @binding(4) var<storage, read_write> hidden: array<Storage>;
@group(0) @binding(5) var<storage, read_write> last_hidden: array<Storage>;
@group(0) @binding(6) var<storage, read_write> last_cell: array<Storage>;
#ifdef INITIAL
@group(0) @binding(INITIAL) var<storage, read> initial_cell: array<Storage>;
#endif

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
    let open = open_gates(gates_at(i, params.gates_time, params.gates_t), i % params.hidden);
    var cell = open.x * open.z;
    if params.t > 0u {
        cell += open.y * Accum(cells[at_time(i, params.t - 1u)]);
    } else {
#ifdef INITIAL
        cell += open.y * Accum(initial_cell[i]);
#endif
    }
    let state = open.w * tanh4(Accum4(cell)).x;
    let now = at_time(i, params.t);
    cells[now] = Storage(cell);
    hidden[now] = Storage(state);
    if params.t + 1u == params.time {
        last_hidden[i] = Storage(state);
        last_cell[i] = Storage(cell);
    }
}
#endif

#ifdef ENTRY_backward_init
@group(0) @binding(0) var<storage, read_write> grad_hidden: array<Storage>;
@group(0) @binding(1) var<storage, read_write> grad_cell: array<Storage>;
#ifdef GRAD_HIDDEN
@group(0) @binding(GRAD_HIDDEN) var<storage, read> grad_last_hidden: array<Storage>;
#endif
#ifdef GRAD_CELL
@group(0) @binding(GRAD_CELL) var<storage, read> grad_last_cell: array<Storage>;
#endif

@compute @workgroup_size(64)
fn backward_init(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.count {
        return;
    }
#ifdef GRAD_HIDDEN
    grad_hidden[i] = grad_last_hidden[i];
#else
    grad_hidden[i] = Storage(0.0);
#endif
#ifdef GRAD_CELL
    grad_cell[i] = grad_last_cell[i];
#else
    grad_cell[i] = Storage(0.0);
#endif
}
#endif

#ifdef ENTRY_backward_step
@group(0) @binding(0) var<storage, read> cells: array<Storage>;
@group(0) @binding(1) var<storage, read_write> grad_gates: array<Storage>;
@group(0) @binding(2) var<storage, read> grad_hidden: array<Storage>;
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
    return Accum(gates[gates_at(i, params.gates_time, params.gates_t) + number * params.hidden]);
#else
    return Accum(grad_gates[gates_at(i, params.grads_time, params.grads_t) + number * params.hidden]);
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
    let at = gates_at(i, params.grads_time, params.grads_t);
    let now = at_time(i, params.t);
    let input_gate = gate(i, 0u);
    let forget = gate(i, 1u);
    let g = gate(i, 2u);
    let output_gate = gate(i, 3u);
    var earlier = 0.0;
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
    grad_gates[at] = Storage(d_cell * g * input_gate * (1.0 - input_gate));
    grad_gates[at + h] = Storage(d_cell * earlier * forget * (1.0 - forget));
    grad_gates[at + 2u * h] = Storage(d_cell * input_gate * (1.0 - g * g));
    grad_gates[at + 3u * h] = Storage(d_hidden * squashed * output_gate * (1.0 - output_gate));
    grad_cell[i] = Storage(d_cell * forget);
}
#endif
