// What a GRU does between products with weights, which are matmul.forward.
//
// forward_step:    [a b c] = gates + bias_ih, [p q s] = sums + bias_hh (without SUMS: bias_hh)
//                  r = sigmoid(a + p), z = sigmoid(b + q), n = tanh(c + r * s); r, z, n, s are kept in `gates`
//                  hidden = (1 - z) * n + z * earlier hidden
//                  At steps that a sample has not: zeros everywhere, and last_hidden stays as it is. It holds the initial
//                  state before the first step.
// recompute_gates: the first two of these lines alone, for all steps that `grads` holds, from [a b c p q s] before biases
// backward_step:   grad_hidden (+ grad_output of the step) becomes grads of a, b, c, p, q, s and the gradient of the hidden
//                  state before, without what comes through p, q, s: a product adds that. At steps that a sample has not:
//                  grads are 0, and the gradient of the state passes by.
//
// bindings   See shared/recurrent.wgsl for the letters; W = 6H rounded up to a multiple of 4.
//            forward_step: bias_ih [3H], bias_hh [3H], gates [B, C, 4H] (changed), hidden [B, T, H], last_hidden [B, H]
//            (changed), sums [B, 3H], lengths [B]
//            recompute_gates: bias_ih [3H], bias_hh [3H], grads [B, D, W] (changed)
//            backward_step: hidden [B, T, H], grads [B, D, W], grad_hidden [B, H] (both changed), initial hidden [B, H],
//            grad_output [B, T, H], gates [B, C, 4H], lengths [B]; without GATES these are in grads
// dispatch   one invocation per element of [B, H], recompute_gates: of [B, D, H]; 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.GRU.html
#import "shared/recurrent.wgsl"

#ifdef BIASES
@group(0) @binding(0) var<storage, read> bias_ih: array<Storage>;
@group(0) @binding(1) var<storage, read> bias_hh: array<Storage>;
@group(0) @binding(2) var<storage, read_write> gates: array<Storage>;
#ifdef SUMS
@group(0) @binding(SUMS) var<storage, read> sums: array<Storage>;
#endif

fn over_inputs(at: u32, unit: u32, number: u32) -> Accum {
    let h = params.hidden;
    return Accum(gates[at + number * h]) + Accum(bias_ih[unit + number * h]);
}

// Writes r, z, n, s of a unit from its sums; `over_states` is p, q, s.
fn open_gates(at: u32, unit: u32, over_states: Accum4) -> Accum4 {
    let h = params.hidden;
    let inputs = Accum4(over_inputs(at, unit, 0u), over_inputs(at, unit, 1u), over_inputs(at, unit, 2u), 0.0);
    let open = sigmoid4(inputs + over_states);
    // Fused everywhere or nowhere: forward and backward must find the same.
    let n = tanh4(Accum4(fma(open.x, over_states.z, inputs.z))).x;
    gates[at] = Storage(open.x);
    gates[at + h] = Storage(open.y);
    gates[at + 2u * h] = Storage(n);
    gates[at + 3u * h] = Storage(over_states.z);
    return Accum4(open.x, open.y, n, over_states.z);
}

fn biases_hh(unit: u32) -> Accum4 {
    let h = params.hidden;
    return Accum4(Accum(bias_hh[unit]), Accum(bias_hh[unit + h]), Accum(bias_hh[unit + 2u * h]), 0.0);
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
    let row = i / h;
    let unit = i - row * h;
    let at = row * params.grads_width + unit;
    var over_states = biases_hh(unit);
    var is_there = true;
#ifdef INITIAL
#else
    // Before the first of all steps there is no state, and its place holds something else.
    is_there = params.t > 0u || row % params.grads_time > 0u;
#endif
    if is_there {
        let first = at + 3u * h;
        over_states = Accum4(Accum(gates[first]), Accum(gates[first + h]), Accum(gates[first + 2u * h]), 0.0) + over_states;
    }
    open_gates(at, unit, over_states);
}
#endif

#ifdef ENTRY_forward_step
@group(0) @binding(3) var<storage, read_write> hidden: array<Storage>;
@group(0) @binding(4) var<storage, read_write> last_hidden: array<Storage>;

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
    let steps = steps_of(i);
    if params.t >= steps {
        for (var gate = 0u; gate < 4u; gate++) {
            gates[at + gate * h] = Storage(0.0);
        }
        hidden[now] = Storage(0.0);
        return;
    }
    let unit = i % h;
    var over_states = biases_hh(unit);
#ifdef SUMS
    let first = i / h * 3u * h + unit;
    over_states = Accum4(Accum(sums[first]), Accum(sums[first + h]), Accum(sums[first + 2u * h]), 0.0) + over_states;
#endif
    let open = open_gates(at, unit, over_states);
    var earlier = last_hidden[i];
    if params.t > 0u {
        earlier = hidden[at_time(i, params.t - 1u)];
    }
    let state = (1.0 - open.y) * open.z + open.y * Accum(earlier);
    hidden[now] = Storage(state);
    if params.t + 1u == steps {
        last_hidden[i] = Storage(state);
    }
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
    let r = gate(i, 0u);
    let z = gate(i, 1u);
    let n = gate(i, 2u);
    let s = gate(i, 3u);
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
    let d_n = d_hidden * (1.0 - z) * (1.0 - n * n);
    let d_z = d_hidden * (earlier - n) * z * (1.0 - z);
    let d_r = d_n * s * r * (1.0 - r);
    grads[at] = Storage(d_r);
    grads[at + h] = Storage(d_z);
    grads[at + 2u * h] = Storage(d_n);
    grads[at + 3u * h] = Storage(d_r);
    grads[at + 4u * h] = Storage(d_z);
    grads[at + 5u * h] = Storage(d_n * r);
    grad_hidden[i] = Storage(d_hidden * z);
}
#endif
