// What simple recurrent cells do, whatever their activation. The importing file defines
//   fn squash(x: Accum4) -> Accum4                   the activation
//   fn squash_back(y: Accum4) -> Accum4        its derivative where it is y
// Products with weights are matmul.forward, or part of forward_tile and backward_tile.
//
// forward_step:    hidden = squash(gates + bias_ih + bias_hh), kept in `gates` as the first of four numbers of a unit, the
//                  others of which are 0. At steps that a sample has not: zeros everywhere.
// recompute_gates: the same without `hidden`, for some of the steps that `gates` holds
// backward_step:   grad_hidden (+ grad_output of the step) becomes grads of the sums, and the gradient of the step before, which
//                  is 0: a product is added to it. At steps that a sample has not: grads are 0, and the gradient passes by.
// forward_tile, backward_tile: a step with its products: shared/recurrent_tile.wgsl
// last_states, grad_biases: shared/recurrent.wgsl
//
// bindings   See shared/recurrent.wgsl for the letters; W = 4H, of which gradients take the first H.
//            forward_step: bias_ih [H], bias_hh [H], gates [B, C, 4H], hidden [B, T, H] (both changed), initial hidden [B, H],
//            lengths [B]
//            recompute_gates: bias_ih [H], bias_hh [H], gates [B, C, W] (changed)
//            backward_step: hidden [B, T, H], grads [B, D, W], grad_hidden [B, H] (both changed), initial hidden [B, H],
//            grad_output [B, T, H], gates [B, C, 4H], lengths [B]; without GATES these are in grads
// The cell does not need the state before a step but for the product; it is handed on as with other cells, so that all launches bind
// the same.
// dispatch   one invocation per element of [B, H], recompute_gates: of [B, steps, H]; 64 per workgroup, folded
// workgroup  0 bytes
#import "shared/recurrent.wgsl"

fn open_gates(over_inputs: Kept, over_states: Kept) -> Kept {
    return Kept(squash(over_inputs[0] + over_states[0]), Accum4(), Accum4(), Accum4());
}

fn next_states(kept: Kept, earlier: Accum4) -> States {
    return States(kept[0], Accum4());
}

fn step_back(kept: Kept, earlier: Accum4, now: Accum4, d_hidden: Accum4, d_cell: Accum4) -> Back {
    let grads = Kept(squash_back(kept[0], d_hidden), Accum4(), Accum4(), Accum4());
    return Back(grads, grads, Accum4(), d_cell);
}
#ifdef SAMPLES
#import "shared/recurrent_tile.wgsl"
#endif

#ifdef BIASES
@group(0) @binding(0) var<storage, read> bias_ih: array<Storage>;
@group(0) @binding(1) var<storage, read> bias_hh: array<Storage>;
@group(0) @binding(2) var<storage, read_write> gates: array<Storage>;

// Turns the sum of a unit into what is kept of it.
fn open_gates_at(at: u32, unit: u32) -> Kept {
    let h = params.hidden;
    var over_inputs: Kept;
    var over_states: Kept;
    over_inputs[0] = Accum4(Accum(gates[at]) + Accum(bias_ih[unit]));
    over_states[0] = Accum4(Accum(bias_hh[unit]));
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
    let at = gates_at(i);
    let now = at_time(i, params.t);
    if params.t >= steps_of(i) {
        for (var gate = 0u; gate < 4u; gate++) {
            gates[at + gate * params.hidden] = Storage(0.0);
        }
        hidden[now] = Storage(0.0);
        return;
    }
    let kept = open_gates_at(at, i % params.hidden);
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
    let at = grads_at(i);
    if params.t >= steps_of(i) {
        grads[at] = Storage(0.0);
        return;
    }
#ifdef GATES
    let kept = Accum(gates[gates_at(i)]);
#else
    let kept = Accum(grads[at]);
#endif
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
    let of_unit = Kept(Accum4(kept), Accum4(), Accum4(), Accum4());
    let back = step_back(of_unit, Accum4(earlier), Accum4(), Accum4(d_hidden), Accum4());
    grads[at] = Storage(back.over_inputs[0].x);
    grad_hidden[i] = Storage(back.hidden.x);
}
#endif
