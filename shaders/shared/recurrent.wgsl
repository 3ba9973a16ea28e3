// What the kernels of recurrent ops share: where things lie, how long samples are, and the gradients of biases.
//
// B, T, H are batch, time and hidden size; C and D are the steps that a buffer of gates and one of gradients hold; a row of
// gradients is W numbers wide. Where a binding is left out, the next take its number: INITIAL, SUMS, LENGTHS, CELLS, GRAD_HIDDEN,
// GRAD_OUTPUT and GATES are defined where there is an initial state and so on, as the number of its binding.
//
// grad_biases: grad_bias_ih[j] (+)= sum over rows of sums[row, j], grad_bias_hh[j] (+)= that of sums[row, apart + j]; both add
//              to what is there with ACCUMULATE
// last_states: last[b] = states[b, the last step that sample b has]; of a sample of no steps the initial state, or 0
// bindings     grad_biases: sums [rows, W], grad_bias_ih, grad_bias_hh [columns]
//              last_states: states [B, T, H], last [B, H], initial state [B, H], lengths [B]
// dispatch     one invocation per column, last_states: per element of [B, H]; 64 per workgroup, folded
// workgroup    0 bytes
#import "shared/index.wgsl"
#import "shared/math.wgsl"

// What is kept of four units at a step.
alias Kept = mat4x4<f32>;

// Hidden and cell states of four units.
alias States = mat2x4<f32>;

// Gradients of the sums of four units, and of their states before.
struct Back {
    over_inputs: Kept,
    over_states: Kept,
    hidden: Accum4,
    cell: Accum4,
}

#ifdef ENTRY_grad_biases
struct Params {
    columns: u32,
    width: u32,
    // Where the sums for grad_bias_hh begin.
    apart: u32,
    rows: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> sums: array<Storage>;
@group(0) @binding(1) var<storage, read_write> grad_bias_ih: array<Storage>;
@group(0) @binding(2) var<storage, read_write> grad_bias_hh: array<Storage>;

@compute @workgroup_size(64)
fn grad_biases(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let column = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if column >= params.columns {
        return;
    }
    var ih = Accum(0.0);
    var hh = Accum(0.0);
    for (var row = 0u; row < params.rows; row++) {
        ih += Accum(sums[row * params.width + column]);
        hh += Accum(sums[row * params.width + params.apart + column]);
    }
#ifdef ACCUMULATE
    ih = Accum(grad_bias_ih[column]) + ih;
    hh = Accum(grad_bias_hh[column]) + hh;
#endif
    grad_bias_ih[column] = Storage(ih);
    grad_bias_hh[column] = Storage(hh);
}
#else
struct Params {
    // Invocations.
    count: u32,
    batch: u32,
    hidden: u32,
    // Time steps, and the one at hand, or the first one.
    time: u32,
    t: u32,
    // The step of the whole sequence that step 0 is, where lengths are given.
    start: u32,
    grads_width: u32,
    // Steps that `gates` holds, and at which of them the one at hand is.
    gates_time: u32,
    gates_t: u32,
    // The same for `grads`.
    grads_time: u32,
    grads_t: u32,
    // Width of a row of `gates`.
    gates_width: u32,
    // Steps of the launch.
    steps: u32,
    // Of *_tile: input size, groups of samples, and tiles of units.
    input: u32,
    blocks: u32,
    tiles: u32,
}
var<immediate> params: Params;

// Where element i of [B, H] lies in a tensor [B, time, width] at a step.
fn place(i: u32, time: u32, t: u32, width: u32) -> u32 {
    let b = i / params.hidden;
    return (b * time + t) * width + (i - b * params.hidden);
}

// The same in a tensor [B, T, H].
fn at_time(i: u32, t: u32) -> u32 {
    return place(i, params.time, t, params.hidden);
}

// The first gate; the others follow at distances of H.
fn gates_at(i: u32) -> u32 {
    return place(i, params.gates_time, params.gates_t, 4u * params.hidden);
}

// The first gate for element i of [B, steps, H].
fn chunk_at(i: u32) -> u32 {
    let row = i / params.hidden;
    let b = row / params.steps;
    let t = params.gates_t + row - b * params.steps;
    return (b * params.gates_time + t) * params.gates_width + i - row * params.hidden;
}

// The first gradient; the others follow at distances of H.
fn grads_at(i: u32) -> u32 {
    return place(i, params.grads_time, params.grads_t, params.grads_width);
}

#ifdef LENGTHS
@group(0) @binding(LENGTHS) var<storage, read> lengths: array<u32>;
#endif

// How many of the steps the sample has that element i of [B, H] belongs to.
fn steps_of(i: u32) -> u32 {
#ifdef LENGTHS
    let length = lengths[i / params.hidden];
    return min(max(length, params.start) - params.start, params.time);
#else
    return params.time;
#endif
}

#ifdef ENTRY_last_states
@group(0) @binding(0) var<storage, read> states: array<Storage>;
@group(0) @binding(1) var<storage, read_write> last: array<Storage>;
#ifdef INITIAL
@group(0) @binding(INITIAL) var<storage, read> initial: array<Storage>;
#endif

@compute @workgroup_size(64)
fn last_states(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.count {
        return;
    }
    let steps = steps_of(i);
    var state = Storage(0.0);
    if steps > 0u {
        state = states[at_time(i, steps - 1u)];
    } else {
#ifdef INITIAL
        state = initial[i];
#endif
    }
    last[i] = state;
}
#endif
#endif
