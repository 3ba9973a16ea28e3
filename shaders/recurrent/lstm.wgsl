// What an LSTM does. Products with weights are matmul.forward, or part of forward_tile and backward_tile.
//
// forward_step:    [i f g o] = gates + bias_ih + bias_hh, through sigmoid (i, f, o) and tanh (g), kept in `gates`
//                  cell = f * earlier cell + i * g, hidden = o * tanh(cell)
//                  At steps that a sample has not: zeros everywhere.
// recompute_gates: the first of these lines alone, for some of the steps that `gates` holds
// backward_step:   grad_hidden (+ grad_output of the step) and grad_cell become grads of the sums before sigmoid and tanh,
//                  and the gradients of the step before; that of its hidden state is 0, to which a product is added. At steps
//                  that a sample has not: grads are 0, and the gradients of states pass by.
// forward_tile, backward_tile: a step with its products: shared/recurrent_tile.wgsl
// last_states, grad_biases: shared/recurrent.wgsl
//
// bindings   See shared/recurrent.wgsl for the letters; W = 4H.
//            forward_step: bias_ih [4H], bias_hh [4H], gates [B, C, 4H], hidden [B, T, H], cells [B, T, H] (changed from
//            the third on), initial cell [B, H], lengths [B]
//            recompute_gates: bias_ih [4H], bias_hh [4H], gates [B, C, 4H] (changed)
//            backward_step: cells [B, T, H], grads [B, D, 4H], grad_hidden [B, H], grad_cell [B, H] (all changed but the
//            first), initial cell [B, H], grad_output [B, T, H], gates [B, C, 4H], lengths [B]; without GATES these are in
//            grads, and C = D
// dispatch   one invocation per element of [B, H], recompute_gates: of [B, steps, H]; 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.LSTM.html
#import "shared/recurrent.wgsl"

// i, f, g, o.
fn open_gates(over_inputs: Kept, over_states: Kept) -> Kept {
    let sums = over_inputs + over_states;
    return Kept(sigmoid4(sums[0]), sigmoid4(sums[1]), tanh4(sums[2]), sigmoid4(sums[3]));
}

fn next_states(kept: Kept, earlier: Accum4) -> States {
    let cell = kept[0] * kept[2] + kept[1] * earlier;
    return States(kept[3] * tanh4(cell), cell);
}

fn step_back(kept: Kept, earlier: Accum4, now: Accum4, d_hidden: Accum4, d_cell_now: Accum4) -> Back {
    let input_gate = kept[0];
    let forget = kept[1];
    let g = kept[2];
    let output_gate = kept[3];
    let squashed = tanh4(now);
    let d_cell = d_cell_now + d_hidden * output_gate * (1.0 - squashed * squashed);
    let grads = Kept(
        d_cell * g * input_gate * (1.0 - input_gate),
        d_cell * earlier * forget * (1.0 - forget),
        d_cell * input_gate * (1.0 - g * g),
        d_hidden * squashed * output_gate * (1.0 - output_gate),
    );
    return Back(grads, grads, Accum4(), d_cell * forget);
}
#ifdef SAMPLES
#import "shared/recurrent_tile.wgsl"
#endif

#ifdef BIASES
@group(0) @binding(0) var<storage, read> bias_ih: array<Storage>;
@group(0) @binding(1) var<storage, read> bias_hh: array<Storage>;
@group(0) @binding(2) var<storage, read_write> gates: array<Storage>;

// Turns the sums of a unit into its gates.
fn open_gates_at(at: u32, unit: u32) -> Kept {
    let h = params.hidden;
    var over_inputs: Kept;
    var over_states: Kept;
    #for gate in 0..4
    over_inputs[#gate] = Accum4(Accum(gates[at + #gateu * h]) + Accum(bias_ih[unit + #gateu * h]));
    over_states[#gate] = Accum4(Accum(bias_hh[unit + #gateu * h]));
    #end
    let kept = open_gates(over_inputs, over_states);
    #for gate in 0..4
    gates[at + #gateu * h] = Storage(kept[#gate].x);
    #end
    return kept;
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
    open_gates_at(chunk_at(i), i % params.hidden);
}
#endif

#ifdef ENTRY_forward_step
@group(0) @binding(3) var<storage, read_write> hidden: array<Storage>;
@group(0) @binding(4) var<storage, read_write> cells: array<Storage>;
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
    let at = gates_at(i);
    let now = at_time(i, params.t);
    if params.t >= steps_of(i) {
        for (var gate = 0u; gate < 4u; gate++) {
            gates[at + gate * params.hidden] = Storage(0.0);
        }
        cells[now] = Storage(0.0);
        hidden[now] = Storage(0.0);
        return;
    }
    let kept = open_gates_at(at, i % params.hidden);
    var earlier = Accum(0.0);
    if params.t > 0u {
        earlier = Accum(cells[at_time(i, params.t - 1u)]);
    } else {
#ifdef INITIAL
        earlier = Accum(initial_cell[i]);
#endif
    }
    let states = next_states(kept, Accum4(earlier));
    hidden[now] = Storage(states[0].x);
    cells[now] = Storage(states[1].x);
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
    let kept = Kept(Accum4(gate(i, 0u)), Accum4(gate(i, 1u)), Accum4(gate(i, 2u)), Accum4(gate(i, 3u)));
    let cell = Accum4(Accum(cells[now]));
    let back = step_back(kept, Accum4(earlier), cell, Accum4(d_hidden), Accum4(Accum(grad_cell[i])));
    #for sum in 0..4
    grads[at + #sumu * h] = Storage(back.over_inputs[#sum].x);
    #end
    grad_hidden[i] = Storage(back.hidden.x);
    grad_cell[i] = Storage(back.cell.x);
}
#endif
