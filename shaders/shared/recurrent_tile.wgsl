// A step of a recurrent op with its products, for devices whose subgroups are vectors of a processor. A workgroup is one
// subgroup: each lane owns four samples, weights reach all lanes by broadcast, and sums stay in registers until they have
// become gates or gradients. All loads are vectors of four, so H and I are multiples of 4.
//
// forward_tile:  input[t] * weight_ihᵀ (without INPUTS: what `gates` holds) and hidden[t - 1] * weight_hhᵀ, and the cell's
//                arithmetic on these. With RECOMPUTE only gates come of it, for `steps` steps from `t` on.
// backward_tile: grad_hidden += grads[t + 1] * weight_hh, and the cell's gradients. `t` is not the last step that `grads` holds.
//
// Without STATES there is no step before: no hidden[t - 1], and the state that is passed on is 0.
// A cell says what it computes, for four units at once:
//   fn open_gates(over_inputs, over_states) -> Kept  what is kept, from sums that hold their biases
//   fn next_states(kept, earlier) -> States          hidden and cell state; `earlier` is the state that is passed on: the
//                                                    cell state, where there is one (CELLS), or the hidden state
//   fn step_back(kept, earlier, now, d_hidden, d_cell) -> Back
//
// constants   CELL_GATES gates of a unit; TILE_ROWS rows of weights that a tile multiplies; UNIT_GROUPS groups of four units in
//             it; APART where sums over states are kept apart
// bindings    See shared/recurrent.wgsl for the letters. W is the width of a row of `gates`.
//             forward_tile: weight_hh [CELL_GATES*H, H], bias_ih, bias_hh [CELL_GATES*H], gates [B, C, W], hidden [B, T, H]
//             (both changed), input [B, T, I], weight_ih [CELL_GATES*H, I], cells [B, T, H] (changed), lengths [B]
//             backward_tile: weight_hh, states [B, T, H] (those passed on), grads [B, D, W], grad_hidden [B, H],
//             grad_cell [B, H] (all changed), grad_output [B, T, H], gates [B, C, 4H], lengths [B]; without GATES these are
//             in grads
// dispatch    one workgroup per 4 * SUBGROUP_SIZE samples, tile of units and step, the samples fastest; folded
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
@group(0) @binding(3) var<storage, read_write> grad_hidden: array<Storage4>;
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

// Four samples of a lane, from `first` on; those past the end are held to the last.
fn samples(first: u32) -> vec4<u32> {
    return min(first + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.batch - 1u));
}

#ifdef ENTRY_forward_tile
@compute @workgroup_size(SUBGROUP_SIZE)
fn forward_tile(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let workgroup = linear_workgroup(workgroup_id, num_workgroups);
    let next = workgroup / params.blocks;
    let first = ((workgroup - next * params.blocks) * SUBGROUP_SIZE + lane) * 4u;
    let step = next / params.tiles;
    if step >= params.steps {
        return;
    }
    let unit = (next - step * params.tiles) * UNITS;
    let t = params.t + step;
    let row_samples = samples(first);
    let h4 = params.hidden / 4u;
    // Four rows of weights for each lane.
    let gate = min(lane * 4u / UNITS, CELL_GATES - 1u) * params.hidden;
    let rows = gate + min(unit + lane * 4u % UNITS + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.hidden - 1u));
    // Indexed by constants only, so these are registers.
    var c: array<Accum4, SUM_ROWS>;
#ifdef INPUTS
    let i4 = params.input / 4u;
    let input_at = (row_samples * params.time + t) * i4;
    let input_weights_at = rows * i4;
    for (var k = 0u; k < i4; k++) {
        let terms = transpose(mat4x4<f32>(
            Accum4(input[input_at.x + k]),
            Accum4(input[input_at.y + k]),
            Accum4(input[input_at.z + k]),
            Accum4(input[input_at.w + k]),
        ));
        let weights = mat4x4<f32>(
            Accum4(weight_ih[input_weights_at.x + k]),
            Accum4(weight_ih[input_weights_at.y + k]),
            Accum4(weight_ih[input_weights_at.z + k]),
            Accum4(weight_ih[input_weights_at.w + k]),
        );
        #for row in 0..TILE_ROWS
        {
            let weight = subgroupBroadcast(weights[#(row % 4)], #(row / 4)u);
            c[#row] += weight.x * terms[0];
            c[#row] += weight.y * terms[1];
            c[#row] += weight.z * terms[2];
            c[#row] += weight.w * terms[3];
        }
        #end
    }
#endif
    let states_at = (row_samples * params.time + t - 1u) * h4;
    let weights_at = rows * h4;
    // Before the first step all states are 0.
    let states_end = select(0u, h4, t > 0u);
    for (var k = 0u; k < states_end; k++) {
        let terms = transpose(mat4x4<f32>(
            Accum4(hidden[states_at.x + k]),
            Accum4(hidden[states_at.y + k]),
            Accum4(hidden[states_at.z + k]),
            Accum4(hidden[states_at.w + k]),
        ));
        let weights = mat4x4<f32>(
            Accum4(weight_hh[weights_at.x + k]),
            Accum4(weight_hh[weights_at.y + k]),
            Accum4(weight_hh[weights_at.z + k]),
            Accum4(weight_hh[weights_at.w + k]),
        );
        #for row in 0..TILE_ROWS
        {
            let weight = subgroupBroadcast(weights[#(row % 4)], #(row / 4)u);
            c[#(STATES_ROW + row)] += weight.x * terms[0];
            c[#(STATES_ROW + row)] += weight.y * terms[1];
            c[#(STATES_ROW + row)] += weight.z * terms[2];
            c[#(STATES_ROW + row)] += weight.w * terms[3];
        }
        #end
    }
    for (var r = 0u; r < 4u; r++) {
        let sample = first + r;
        #for group in 0..UNIT_GROUPS
        if sample < params.batch && unit + #(group * 4)u < params.hidden {
            let at = ((sample * params.gates_time + params.gates_t + step) * params.gates_width + unit) / 4u + #groupu;
            var over_inputs: Kept;
            var over_states: Kept;
            #for gate in 0..CELL_GATES
            {
                let bias_at = #gateu * h4 + unit / 4u + #groupu;
                over_inputs[#gate] = Accum4(bias_ih[bias_at]) + Accum4(
                    c[#(gate * SUBGROUP_SIZE + group * 4)][r],
                    c[#(gate * SUBGROUP_SIZE + group * 4 + 1)][r],
                    c[#(gate * SUBGROUP_SIZE + group * 4 + 2)][r],
                    c[#(gate * SUBGROUP_SIZE + group * 4 + 3)][r],
                );
                over_states[#gate] = Accum4(bias_hh[bias_at]);
#ifdef INPUTS
#else
                over_inputs[#gate] += Accum4(gates[at + #gateu * h4]);
#endif
#ifdef APART
                over_states[#gate] += Accum4(
                    c[#(STATES_ROW + gate * SUBGROUP_SIZE + group * 4)][r],
                    c[#(STATES_ROW + gate * SUBGROUP_SIZE + group * 4 + 1)][r],
                    c[#(STATES_ROW + gate * SUBGROUP_SIZE + group * 4 + 2)][r],
                    c[#(STATES_ROW + gate * SUBGROUP_SIZE + group * 4 + 3)][r],
                );
#endif
            }
            #end
            var kept = open_gates(over_inputs, over_states);
#ifdef RECOMPUTE
#else
            let now = (sample * params.time + t) * h4 + unit / 4u + #groupu;
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
        #end
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
    let first = ((workgroup - tile * params.blocks) * SUBGROUP_SIZE + lane) * 4u;
    let unit = tile * TILE_ROWS;
    if unit >= params.hidden {
        return;
    }
    let row_samples = samples(first);
    let h4 = params.hidden / 4u;
    let width = params.grads_width / 4u;
    let sums = CELL_GATES * h4;
#ifdef APART
    let apart = sums;
#else
    let apart = 0u;
#endif
    let t = params.t;
    let later_at = (row_samples * params.grads_time + params.grads_t + 1u) * width + apart;
    let column = min(unit / 4u + lane, h4 - 1u);
    var c: array<Accum4, TILE_ROWS>;
    for (var k = 0u; k < sums; k++) {
        let terms = transpose(mat4x4<f32>(
            Accum4(grads[later_at.x + k]),
            Accum4(grads[later_at.y + k]),
            Accum4(grads[later_at.z + k]),
            Accum4(grads[later_at.w + k]),
        ));
        let weight_at = k * params.hidden + column;
        let weights = transpose(mat4x4<f32>(
            Accum4(weight_hh[weight_at]),
            Accum4(weight_hh[weight_at + h4]),
            Accum4(weight_hh[weight_at + 2u * h4]),
            Accum4(weight_hh[weight_at + 3u * h4]),
        ));
        #for row in 0..TILE_ROWS
        {
            let weight = subgroupBroadcast(weights[#(row % 4)], #(row / 4)u);
            c[#row] += weight.x * terms[0];
            c[#row] += weight.y * terms[1];
            c[#row] += weight.z * terms[2];
            c[#row] += weight.w * terms[3];
        }
        #end
    }
    for (var r = 0u; r < 4u; r++) {
        let sample = first + r;
        #for group in 0..UNIT_GROUPS
        if sample < params.batch && unit + #(group * 4)u < params.hidden {
            let i = sample * h4 + unit / 4u + #groupu;
            let now = (sample * params.time + t) * h4 + unit / 4u + #groupu;
            let at = (sample * params.grads_time + params.grads_t) * width + unit / 4u + #groupu;
            var d_hidden = Accum4(grad_hidden[i]) + Accum4(
                c[#(group * 4)][r],
                c[#(group * 4 + 1)][r],
                c[#(group * 4 + 2)][r],
                c[#(group * 4 + 3)][r],
            );
            var back: Back;
            if t < steps_of(sample * params.hidden) {
#ifdef GRAD_OUTPUT
                d_hidden += Accum4(grad_output[now]);
#endif
                var kept: Kept;
#ifdef GATES
                let kept_at = (sample * params.gates_time + params.gates_t) * 4u * h4 + unit / 4u + #groupu;
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
            grad_hidden[i] = Storage4(back.hidden);
            #for gate in 0..CELL_GATES
            grads[at + #gateu * h4] = Storage4(back.over_inputs[#gate]);
#ifdef APART
            grads[at + apart + #gateu * h4] = Storage4(back.over_states[#gate]);
#endif
            #end
        }
        #end
    }
}
#endif
