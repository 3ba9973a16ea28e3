// output = input at an index along an axis, NaN where there is no such place; grad_input = the sum of grad_output where the
// index names the place, in order.
//
// bindings   forward: input, index u32, output (shaped as index); grad_input: index, grad_output, grad_input
// in place   no
// dispatch   one invocation per element written, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.gather.html
#import "shared/index.wgsl"
#import "shared/nan.wgsl"
#import "shared/sums.wgsl"

alias Term = Accum;

struct Params {
    // Elements that the kernel writes.
    elements: u32,
    // Extents of the axis in the input and in the index.
    extent: u32,
    length: u32,
    // Elements of one index of the axes up to this one.
    inner: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(1) var<storage, read> index: array<u32>;
@group(0) @binding(2) var<storage, read_write> output: array<Storage>;

@group(0) @binding(0) var<storage, read> grad_index: array<u32>;
@group(0) @binding(1) var<storage, read> grad_output: array<Storage>;
@group(0) @binding(2) var<storage, read_write> grad_input_: array<Storage>;

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.elements {
        return;
    }
    let outer = i / (params.length * params.inner);
    let place = index[i];
    if place < params.extent {
        output[i] = input[(outer * params.extent + place) * params.inner + i % params.inner];
    } else {
        output[i] = Storage(not_a_number(params.extent));
    }
}

@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.elements {
        return;
    }
    let outer = i / (params.extent * params.inner);
    let place = (i / params.inner) % params.extent;
    let start = outer * params.length * params.inner + i % params.inner;
    var added = LongSum();
    for (var k = 0u; k < params.length; k++) {
        let at = start + k * params.inner;
        if grad_index[at] == place {
            add_term(&added, Term(grad_output[at]));
        }
    }
    grad_input_[i] = Storage(total_of(added));
}
