// A step of a recurrent op with its products, for devices whose subgroups are vectors of a processor. A workgroup is one
// subgroup: each lane owns four rows of weights (forward: of a gate; backward: four units), SAMPLES samples reach all lanes by
// broadcast, and sums stay in registers until they have become gates or gradients. All loads are vectors of four, so H and I
// are multiples of 4.
//
// forward_tile:  input[t] * weight_ihᵀ (without INPUTS: what `gates` holds) and hidden[t - 1] * weight_hhᵀ, and the cell's
//                arithmetic on these. With RECOMPUTE only gates come of it, for `steps` steps from `t` on.
// backward_tile: grad_hidden += grads[t + 1] * weight_hh, and the cell's gradients. `t` is not the last step that `grads` holds.
//                Without GRAD_HIDDEN the gradient of a hidden state is nothing but this sum and that of the output:
//                grad_hidden stays 0.
//
// Without STATES there is no step before: no hidden[t - 1], and the state that is passed on is 0.
// A cell says what it computes, for four units at once:
//   fn open_gates(over_inputs, over_states) -> Kept  what is kept, from sums that hold their biases
//   fn next_states(kept, earlier) -> States          hidden and cell state; `earlier` is the state that is passed on: the
//                                                    cell state, where there is one (CELLS), or the hidden state
//   fn step_back(kept, earlier, now, d_hidden, d_cell) -> Back
//
// constants   CELL_GATES gates of a unit; SAMPLES of a tile, SAMPLE_LOADS for which each lane loads one, SAMPLE_BLOCKS of four;
//             UNIT_GROUPS of four units that make as many rows of each gate as there are lanes; APART where sums over states are
//             kept apart: STATES_SUM is the first of them, SUMS how many there are of both
// bindings    See shared/recurrent.wgsl for the letters. W is the width of a row of `gates`.
//             forward_tile: weight_hh [CELL_GATES*H, H], bias_ih, bias_hh [CELL_GATES*H], gates [B, C, W], hidden [B, T, H]
//             (both changed), input [B, T, I], weight_ih [CELL_GATES*H, I], cells [B, T, H] (changed), lengths [B]
//             backward_tile: weight_hh, states [B, T, H] (those passed on), grads [B, D, W], grad_hidden [B, H],
//             grad_cell [B, H] (all changed), grad_output [B, T, H], gates [B, C, 4H], lengths [B]; without GATES these are
//             in grads
// dispatch    one workgroup per SAMPLES samples, tile of units and step, the samples fastest; folded
// workgroup   0 bytes

#ifdef ENTRY_forward_tile
#ifdef RECOMPUTE
@group(0) @binding(4) var<storage, read> hidden: array<Storage4>;
#else
@group(0) @binding(4) var<storage, read_write> hidden: array<Storage4>;
#ifdef CELLS
@group(0) @binding(CELLS) var<storage, read_write> cells: array<Storage4>;
#endif
#endif
@group(0) @binding(0) var<storage, read> weight_hh: array<Storage4>;
@group(0) @binding(1) var<storage, read> bias_ih: array<Storage4>;
@group(0) @binding(2) var<storage, read> bias_hh: array<Storage4>;
@group(0) @binding(3) var<storage, read_write> gates: array<Storage4>;
#ifdef INPUTS
@group(0) @binding(5) var<storage, read> input: array<Storage4>;
@group(0) @binding(6) var<storage, read> weight_ih: array<Storage4>;
#endif

// Units of a tile; their gates are its rows.
const UNITS = SUBGROUP_SIZE;
#endif

#ifdef ENTRY_backward_tile
@group(0) @binding(0) var<storage, read> weight_hh: array<Storage4>;
@group(0) @binding(1) var<storage, read> states: array<Storage4>;
@group(0) @binding(2) var<storage, read_write> grads: array<Storage4>;
#ifdef GRAD_HIDDEN
@group(0) @binding(GRAD_HIDDEN) var<storage, read_write> grad_hidden: array<Storage4>;
#endif
#ifdef CELLS
@group(0) @binding(CELLS) var<storage, read_write> grad_cell: array<Storage4>;
#endif
#ifdef GRAD_OUTPUT
@group(0) @binding(GRAD_OUTPUT) var<storage, read> grad_output: array<Storage4>;
#endif
#ifdef GATES
@group(0) @binding(GATES) var<storage, read> gates: array<Storage4>;
#endif
#endif

// The sample that a lane loads as number i of its own, from `first` on; those past the end are held to the last.
fn loaded_sample(first: u32, i: u32, lane: u32) -> u32 {
    return min(first + i * SUBGROUP_SIZE + lane, params.batch - 1u);
}

#ifdef ENTRY_forward_tile
// The biases of four units.
struct Biases {
    of_inputs: Kept,
    of_states: Kept,
}

fn biases_at(unit4: u32) -> Biases {
    let h4 = params.hidden / 4u;
    let at = min(unit4, h4 - 1u);
    var biases: Biases;
    #for gate in 0..CELL_GATES
    biases.of_inputs[#gate] = Accum4(bias_ih[#gateu * h4 + at]);
    biases.of_states[#gate] = Accum4(bias_hh[#gateu * h4 + at]);
    #end
    return biases;
}

// Four units of a sample, from their biases and their sums over inputs and over states.
fn finish(sample: u32, unit4: u32, step: u32, biases: Biases, sums_over_inputs: Kept, sums_over_states: Kept) {
    let h4 = params.hidden / 4u;
    let t = params.t + step;
    let at = (sample * params.gates_time + params.gates_t + step) * (params.gates_width / 4u) + unit4;
    var over_inputs = biases.of_inputs + sums_over_inputs;
    let over_states = biases.of_states + sums_over_states;
#ifndef INPUTS
    #for gate in 0..CELL_GATES
    over_inputs[#gate] += Accum4(gates[at + #gateu * h4]);
    #end
#endif
    var kept = open_gates(over_inputs, over_states);
#ifndef RECOMPUTE
    let now = (sample * params.time + t) * h4 + unit4;
    var earlier = Accum4();
    if t > 0u {
#ifdef CELLS
        earlier = Accum4(cells[now - h4]);
#else
        earlier = Accum4(hidden[now - h4]);
#endif
    }
    var state = next_states(kept, earlier);
    if t >= steps_of(sample * params.hidden) {
        kept = Kept();
        state = States();
    }
    hidden[now] = Storage4(state[0]);
#ifdef CELLS
    cells[now] = Storage4(state[1]);
#endif
#endif
    #for number in 0..4
    gates[at + #numberu * h4] = Storage4(kept[#number]);
    #end
}

@compute @workgroup_size(SUBGROUP_SIZE)
fn forward_tile(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let workgroup = linear_workgroup(workgroup_id, num_workgroups);
    let next = workgroup / params.blocks;
    let first = (workgroup - next * params.blocks) * SAMPLES;
    let step = next / params.tiles;
    if step >= params.steps {
        return;
    }
    let unit = (next - step * params.tiles) * UNITS;
    let t = params.t + step;
    let h4 = params.hidden / 4u;
    // The gates' rows, one gate after the other.
    let gate = min(lane / UNIT_GROUPS, CELL_GATES - 1u) * params.hidden;
    let rows = gate + min(unit + lane % UNIT_GROUPS * 4u + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.hidden - 1u));
    // Indexed by constants only, so these are registers.
    var c: array<Accum4, SUMS>;
#ifdef INPUTS
    let i4 = params.input / 4u;
    #for i in 0..SAMPLE_LOADS
    let input_at#i = (loaded_sample(first, #iu, lane) * params.time + t) * i4;
    #end
    let input_weights_at = rows * i4;
    for (var k = 0u; k < i4; k++) {
        let weights = transpose(mat4x4<f32>(
            Accum4(weight_ih[input_weights_at.x + k]),
            Accum4(weight_ih[input_weights_at.y + k]),
            Accum4(weight_ih[input_weights_at.z + k]),
            Accum4(weight_ih[input_weights_at.w + k]),
        ));
        #for i in 0..SAMPLE_LOADS
        let terms#i = Accum4(input[input_at#i + k]);
        #end
        #for s in 0..SAMPLES
        {
            let term = subgroupBroadcast(terms#(s / SUBGROUP_SIZE), #(s % SUBGROUP_SIZE)u);
            c[#s] += term.x * weights[0];
            c[#s] += term.y * weights[1];
            c[#s] += term.z * weights[2];
            c[#s] += term.w * weights[3];
        }
        #end
    }
#endif
    #for i in 0..SAMPLE_LOADS
    let states_at#i = (loaded_sample(first, #iu, lane) * params.time + t - 1u) * h4;
    #end
    let weights_at = rows * h4;
    // Before the first step all states are 0.
    let states_end = select(0u, h4, t > 0u);
    for (var k = 0u; k < states_end; k++) {
        let weights = transpose(mat4x4<f32>(
            Accum4(weight_hh[weights_at.x + k]),
            Accum4(weight_hh[weights_at.y + k]),
            Accum4(weight_hh[weights_at.z + k]),
            Accum4(weight_hh[weights_at.w + k]),
        ));
        #for i in 0..SAMPLE_LOADS
        let terms#i = Accum4(hidden[states_at#i + k]);
        #end
        #for s in 0..SAMPLES
        {
            let term = subgroupBroadcast(terms#(s / SUBGROUP_SIZE), #(s % SUBGROUP_SIZE)u);
            c[#(STATES_SUM + s)] += term.x * weights[0];
            c[#(STATES_SUM + s)] += term.y * weights[1];
            c[#(STATES_SUM + s)] += term.z * weights[2];
            c[#(STATES_SUM + s)] += term.w * weights[3];
        }
        #end
    }
    // Of four samples at a time, each lane takes four units of one and collects their gates. What is indexed by a variable
    // would be in memory, so it is chosen.
    let unit4 = unit / 4u + lane % UNIT_GROUPS;
    let biases = biases_at(unit4);
    for (var block = 0u; block < SAMPLE_BLOCKS; block++) {
        var over_inputs: Kept;
        var over_states: Kept;
        #for s in 0..4
        {
            var inputs = c[#s];
            #for b in 1..SAMPLE_BLOCKS
            inputs = select(inputs, c[#(4 * b + s)], block == #bu);
            #end
#ifdef APART
            var states = c[#(STATES_SUM + s)];
            #for b in 1..SAMPLE_BLOCKS
            states = select(states, c[#(STATES_SUM + 4 * b + s)], block == #bu);
            #end
#endif
            #for gate in 0..CELL_GATES
            #for group in 0..UNIT_GROUPS
            {
                let is_own = lane == #(s * UNIT_GROUPS + group)u;
                let of_inputs = subgroupBroadcast(inputs, #(gate * UNIT_GROUPS + group)u);
                over_inputs[#gate] = select(over_inputs[#gate], of_inputs, is_own);
#ifdef APART
                let of_states = subgroupBroadcast(states, #(gate * UNIT_GROUPS + group)u);
                over_states[#gate] = select(over_states[#gate], of_states, is_own);
#endif
            }
            #end
            #end
        }
        #end
        let sample = first + block * 4u + lane / UNIT_GROUPS;
        if sample < params.batch && unit4 < h4 {
            finish(sample, unit4, step, biases, over_inputs, over_states);
        }
    }
}
#endif

#ifdef ENTRY_backward_tile
@compute @workgroup_size(SUBGROUP_SIZE)
fn backward_tile(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let workgroup = linear_workgroup(workgroup_id, num_workgroups);
    let tile = workgroup / params.blocks;
    let first = (workgroup - tile * params.blocks) * SAMPLES;
    // Four units of each lane.
    let unit4 = tile * SUBGROUP_SIZE + lane;
    if tile >= params.tiles {
        return;
    }
    let h4 = params.hidden / 4u;
    let width = params.grads_width / 4u;
    let sums = CELL_GATES * h4;
#ifdef APART
    let apart = sums;
#else
    let apart = 0u;
#endif
    let t = params.t;
    #for i in 0..SAMPLE_LOADS
    let later_at#i = (loaded_sample(first, #iu, lane) * params.grads_time + params.grads_t + 1u) * width + apart;
    #end
    let column = min(unit4, h4 - 1u);
    // Indexed by constants only, so these are registers.
    var c: array<Accum4, SAMPLES>;
    for (var k = 0u; k < sums; k++) {
        let weight_at = k * params.hidden + column;
        #for j in 0..4
        let weights#j = Accum4(weight_hh[weight_at + #ju * h4]);
        #end
        #for i in 0..SAMPLE_LOADS
        let terms#i = Accum4(grads[later_at#i + k]);
        #end
        #for s in 0..SAMPLES
        {
            let term = subgroupBroadcast(terms#(s / SUBGROUP_SIZE), #(s % SUBGROUP_SIZE)u);
            c[#s] += term.x * weights0;
            c[#s] += term.y * weights1;
            c[#s] += term.z * weights2;
            c[#s] += term.w * weights3;
        }
        #end
    }
    for (var s = 0u; s < SAMPLES; s++) {
        let sample = first + s;
        var sum = c[0];
        #for other in 1..SAMPLES
        sum = select(sum, c[#other], s == #otheru);
        #end
        if sample >= params.batch || unit4 >= h4 {
            continue;
        }
        let i = sample * h4 + unit4;
        let now = (sample * params.time + t) * h4 + unit4;
        let at = (sample * params.grads_time + params.grads_t) * width + unit4;
        var d_hidden = sum;
#ifdef GRAD_HIDDEN
        d_hidden = Accum4(grad_hidden[i]) + sum;
#endif
        var back: Back;
        if t < steps_of(sample * params.hidden) {
#ifdef GRAD_OUTPUT
            d_hidden += Accum4(grad_output[now]);
#endif
            var kept: Kept;
#ifdef GATES
            let kept_at = (sample * params.gates_time + params.gates_t) * 4u * h4 + unit4;
            #for number in 0..4
            kept[#number] = Accum4(gates[kept_at + #numberu * h4]);
            #end
#else
            #for number in 0..4
            kept[#number] = Accum4(grads[at + #numberu * h4]);
            #end
#endif
            var earlier = Accum4();
            if t > 0u {
                earlier = Accum4(states[now - h4]);
            }
#ifdef CELLS
            let d_cell = Accum4(grad_cell[i]);
            back = step_back(kept, earlier, Accum4(states[now]), d_hidden, d_cell);
            grad_cell[i] = Storage4(back.cell);
#else
            back = step_back(kept, earlier, Accum4(), d_hidden, Accum4());
#endif
        } else {
            back.hidden = d_hidden;
        }
#ifdef GRAD_HIDDEN
        grad_hidden[i] = Storage4(back.hidden);
#endif
        #for gate in 0..CELL_GATES
        grads[at + #gateu * h4] = Storage4(back.over_inputs[#gate]);
#ifdef APART
        grads[at + apart + #gateu * h4] = Storage4(back.over_states[#gate]);
#endif
        #end
    }
}
#endif
