// output[n, c, ...] = input[n, c, ...] * scale[n, c]; grad_scale[n, c] = sum of grad_output[n, c, ...] * input[n, c, ...].
// (grad_input is a launch of `forward`.) Rows are the elements of one channel of one sample.
//
// bindings   forward: input [N, C, ...], scale [N, C], output
//            grad_scale: input, grad_output, grad_scale [N, C] (one split) or workspace [N, C, splits], whose parts
//            sum.combine adds
// in place   input
// dispatch   forward: one invocation per 4 elements; grad_scale: one invocation per row and split; 64 per workgroup, folded
// workgroup  0 bytes
// source     https://arxiv.org/abs/1709.01507, section 3
#import "shared/index.wgsl"
#import "shared/sums.wgsl"

alias Term = Accum;

#ifdef ENTRY_forward
struct Params {
    // Elements / 4, rounded up.
    vectors: u32,
    // Elements of a row.
    inner: u32,
}
var<immediate> params: Params;

#ifndef IN_PLACE_0
@group(0) @binding(0) var<storage, read> input: array<Storage4>;
#endif
@group(0) @binding(1) var<storage, read> scale: array<Storage>;
@group(0) @binding(2) var<storage, read_write> output: array<Storage4>;

fn scale_of(element: u32) -> Accum {
    return Accum(scale[element / params.inner]);
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.vectors {
        return;
    }
    var s: Accum4;
    if params.inner % 4u == 0u {
        s = Accum4(scale_of(4u * i));
    } else {
        s = Accum4(scale_of(4u * i), scale_of(4u * i + 1u), scale_of(4u * i + 2u), scale_of(4u * i + 3u));
    }
#ifdef IN_PLACE_0
    output[i] = Storage4(Accum4(output[i]) * s);
#else
    output[i] = Storage4(Accum4(input[i]) * s);
#endif
}
#else
struct Params {
    rows: u32,
    // Elements of a row.
    terms: u32,
    splits: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(1) var<storage, read> grad_output: array<Storage>;
@group(0) @binding(2) var<storage, read_write> sums: array<Accum>;

@compute @workgroup_size(64)
fn grad_scale(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.rows * params.splits {
        return;
    }
    let row = i / params.splits;
    var added = LongSum();
    for (var t = i - row * params.splits; t < params.terms; t += params.splits) {
        add_term(&added, Accum(input[row * params.terms + t]) * Accum(grad_output[row * params.terms + t]));
    }
    sums[i] = total_of(added);
}
#endif
