// The kernels of softmax and log_softmax. The importing file defines
//   fn normalized(difference: Accum, sum: Accum) -> Accum
//     an output, from an input less the largest of its row, and the row's sum of exponentials of such differences
//   fn weighted(grad_output: Accum, output: Accum) -> Accum
//     a term of the row's sum that backward needs
//   fn gradient(grad_output: Accum, output: Accum, sum: Accum) -> Accum
//
// A row is the elements along the axis: their number is `extent`, `inner` elements apart. Of a causal row only the first take
// part in the sum, and the output of the others is 0; nothing needs to be known of that in backward.
//
// bindings   forward: input, output; grad_input: output, grad_output, grad_input. Any shape, all alike.
// in place   forward: input; grad_input: grad_output or output
// dispatch   LANES invocations per row, 64 per workgroup, folded
// workgroup  256 bytes (LANES = 64)
#import "shared/index.wgsl"
#import "shared/lanes.wgsl"
#import "shared/sums.wgsl"

alias Term = Accum;

struct Params {
    rows: u32,
    extent: u32,
    inner: u32,
    // Causal: rows of [queries, extent], the last of which takes all elements, each before it one less. Otherwise 0.
    queries: u32,
}
var<immediate> params: Params;

#ifndef IN_PLACE_0
@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(0) var<storage, read> saved_output: array<Storage>;
#endif
@group(0) @binding(1) var<storage, read_write> output: array<Storage>;

#ifndef IN_PLACE_1
@group(0) @binding(1) var<storage, read> grad_output: array<Storage>;
#endif
@group(0) @binding(2) var<storage, read_write> grad_input_: array<Storage>;

// In place, each element is read and written by the same invocation, and read before it is written.
fn load_input(i: u32) -> Accum {
#ifdef IN_PLACE_0
    return Accum(output[i]);
#else
    return Accum(input[i]);
#endif
}

fn load_output(i: u32) -> Accum {
#ifdef IN_PLACE_0
    return Accum(grad_input_[i]);
#else
    return Accum(saved_output[i]);
#endif
}

fn load_grad_output(i: u32) -> Accum {
#ifdef IN_PLACE_1
    return Accum(grad_input_[i]);
#else
    return Accum(grad_output[i]);
#endif
}

fn row_start(row: u32) -> u32 {
    return (row / params.inner) * params.inner * params.extent + row % params.inner;
}

// Elements of a row that take part.
fn visible(row: u32) -> u32 {
    if params.queries == 0u {
        return params.extent;
    }
    return params.extent - params.queries + row % params.queries + 1u;
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let row = lanes_group(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let place = lanes_place(local_index);
    let start = row_start(min(row, params.rows - 1u));
    let end = visible(min(row, params.rows - 1u));
    var largest = load_input(start);
    for (var k = place; k < end; k += LANES) {
        largest = max(largest, load_input(start + k * params.inner));
    }
    largest = lanes_max(local_index, largest);
    var added = LongSum();
    for (var k = place; k < end; k += LANES) {
        add_term(&added, exp(load_input(start + k * params.inner) - largest));
    }
    let sum = lanes_sum(local_index, total_of(added));
    if row >= params.rows {
        return;
    }
    for (var k = place; k < params.extent; k += LANES) {
        let i = start + k * params.inner;
        if k < end {
            output[i] = Storage(normalized(load_input(i) - largest, sum));
        } else {
            output[i] = Storage(0.0);
        }
    }
}

@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let row = lanes_group(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let place = lanes_place(local_index);
    let start = row_start(min(row, params.rows - 1u));
    var added = LongSum();
    for (var k = place; k < params.extent; k += LANES) {
        let i = start + k * params.inner;
        add_term(&added, weighted(load_grad_output(i), load_output(i)));
    }
    let sum = lanes_sum(local_index, total_of(added));
    if row >= params.rows {
        return;
    }
    for (var k = place; k < params.extent; k += LANES) {
        let i = start + k * params.inner;
        grad_input_[i] = Storage(gradient(load_grad_output(i), load_output(i), sum));
    }
}
