// What a GRU does. Products with weights are matmul.forward, or part of forward_tile and backward_tile.
//
// forward_step:    [a b c] = gates + bias_ih, [p q s] = sums + bias_hh (without SUMS: bias_hh)
//                  r = sigmoid(a + p), z = sigmoid(b + q), n = tanh(c + r * s); r, z, n, s are kept in `gates`
//                  hidden = (1 - z) * n + z * earlier hidden
//                  At steps that a sample has not: zeros everywhere.
// recompute_gates: the first two of these lines alone, for some of the steps that `gates` holds, from [a b c p q s] before
//                  biases
// backward_step:   grad_hidden (+ grad_output of the step) becomes grads of a, b, c, p, q, s and the gradient of the hidden
//                  state before, without what comes through p, q, s: a product adds that. At steps that a sample has not:
//                  grads are 0, and the gradient of the state passes by.
// forward_tile, backward_tile: a step with its products: shared/recurrent_tile.wgsl
// last_states, grad_biases: shared/recurrent.wgsl
//
// bindings   See shared/recurrent.wgsl for the letters; W = 6H rounded up to a multiple of 4.
//            forward_step: bias_ih [3H], bias_hh [3H], gates [B, C, 4H], hidden [B, T, H] (both changed), initial hidden
//            [B, H], sums [B, 3H], lengths [B]
//            recompute_gates: bias_ih [3H], bias_hh [3H], gates [B, C, W] (changed)
//            backward_step: hidden [B, T, H], grads [B, D, W], grad_hidden [B, H] (both changed), initial hidden [B, H],
//            grad_output [B, T, H], gates [B, C, 4H], lengths [B]; without GATES these are in grads
// dispatch   one invocation per element of [B, H], recompute_gates: of [B, steps, H]; 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.GRU.html
#import "shared/recurrent.wgsl"

// r, z, n, s.
fn open_gates(over_inputs: Kept, over_states: Kept) -> Kept {
    let r = sigmoid4(over_inputs[0] + over_states[0]);
    let s = over_states[2];
    // Fused everywhere or nowhere: forward and backward must find the same.
    let n = tanh4(fma(r, s, over_inputs[2]));
    return Kept(r, sigmoid4(over_inputs[1] + over_states[1]), n, s);
}

fn next_states(kept: Kept, earlier: Accum4) -> States {
    return States((1.0 - kept[1]) * kept[2] + kept[1] * earlier, Accum4());
}

fn step_back(kept: Kept, earlier: Accum4, now: Accum4, d_hidden: Accum4, d_cell: Accum4) -> Back {
    let r = kept[0];
    let z = kept[1];
    let n = kept[2];
    let d_n = d_hidden * (1.0 - z) * (1.0 - n * n);
    let d_z = d_hidden * (earlier - n) * z * (1.0 - z);
    let d_r = d_n * kept[3] * r * (1.0 - r);
    return Back(Kept(d_r, d_z, d_n, Accum4()), Kept(d_r, d_z, d_n * r, Accum4()), d_hidden * z, d_cell);
}
#ifdef SAMPLES
#import "shared/recurrent_tile.wgsl"
#endif

#ifdef BIASES
@group(0) @binding(0) var<storage, read> bias_ih: array<Storage>;
@group(0) @binding(1) var<storage, read> bias_hh: array<Storage>;
@group(0) @binding(2) var<storage, read_write> gates: array<Storage>;
#ifdef SUMS
@group(0) @binding(SUMS) var<storage, read> sums: array<Storage>;
#endif

// Turns the sums of a unit into its gates; those over states are without biases.
fn open_gates_at(at: u32, unit: u32, sums: Accum4) -> Kept {
    let h = params.hidden;
    var over_inputs: Kept;
    var over_states: Kept;
    #for gate in 0..3
    over_inputs[#gate] = Accum4(Accum(gates[at + #gateu * h]) + Accum(bias_ih[unit + #gateu * h]));
    over_states[#gate] = Accum4(sums[#gate] + Accum(bias_hh[unit + #gateu * h]));
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
    let h = params.hidden;
    let at = chunk_at(i);
    var over_states = Accum4();
    // Before the first of all steps there may be no state, and its place holds something else.
#ifdef STATES
    over_states = Accum4(Accum(gates[at + 3u * h]), Accum(gates[at + 4u * h]), Accum(gates[at + 5u * h]), 0.0);
#endif
    open_gates_at(at, i % h, over_states);
}
#endif

#ifdef ENTRY_forward_step
@group(0) @binding(3) var<storage, read_write> hidden: array<Storage>;
#ifdef INITIAL
@group(0) @binding(INITIAL) var<storage, read> initial_hidden: array<Storage>;
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
    let h = params.hidden;
    let at = gates_at(i);
    let now = at_time(i, params.t);
    if params.t >= steps_of(i) {
        for (var gate = 0u; gate < 4u; gate++) {
            gates[at + gate * h] = Storage(0.0);
        }
        hidden[now] = Storage(0.0);
        return;
    }
    let unit = i % h;
    var over_states = Accum4();
#ifdef SUMS
    let first = i / h * 3u * h + unit;
    over_states = Accum4(Accum(sums[first]), Accum(sums[first + h]), Accum(sums[first + 2u * h]), 0.0);
#endif
    let kept = open_gates_at(at, unit, over_states);
    var earlier = Accum(0.0);
    if params.t > 0u {
        earlier = Accum(hidden[at_time(i, params.t - 1u)]);
    } else {
#ifdef INITIAL
        earlier = Accum(initial_hidden[i]);
#endif
    }
    hidden[now] = Storage(next_states(kept, Accum4(earlier))[0].x);
}
#endif

#ifdef ENTRY_backward_step
@group(0) @binding(0) var<storage, read> hidden: array<Storage>;
@group(0) @binding(1) var<storage, read_write> grads: array<Storage>;
@group(0) @binding(2) var<storage, read_write> grad_hidden: array<Storage>;
#ifdef INITIAL
@group(0) @binding(INITIAL) var<storage, read> initial_hidden: array<Storage>;
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
    if params.t >= steps_of(i) {
        for (var sum = 0u; sum < 6u; sum++) {
            grads[at + sum * h] = Storage(0.0);
        }
        return;
    }
    var earlier = Accum(0.0);
    if params.t > 0u {
        earlier = Accum(hidden[at_time(i, params.t - 1u)]);
    } else {
#ifdef INITIAL
        earlier = Accum(initial_hidden[i]);
#endif
    }
    var d_hidden = Accum(grad_hidden[i]);
#ifdef GRAD_OUTPUT
    d_hidden += Accum(grad_output[at_time(i, params.t)]);
#endif
    let kept = Kept(Accum4(gate(i, 0u)), Accum4(gate(i, 1u)), Accum4(gate(i, 2u)), Accum4(gate(i, 3u)));
    let back = step_back(kept, Accum4(earlier), Accum4(), Accum4(d_hidden), Accum4());
    #for sum in 0..3
    grads[at + #sumu * h] = Storage(back.over_inputs[#sum].x);
    grads[at + #(sum + 3)u * h] = Storage(back.over_states[#sum].x);
    #end
    grad_hidden[i] = Storage(back.hidden.x);
}
#endif
