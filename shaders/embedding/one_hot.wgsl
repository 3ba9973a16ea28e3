// output[n, c] = 1 where indices[n] = c, else 0; NaN for all c where there is no such class.
//
// bindings   indices u32 [N], output [N, classes]
// in place   no
// dispatch   one invocation per element written, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.functional.one_hot.html
#import "shared/index.wgsl"
#import "shared/nan.wgsl"

struct Params {
    elements: u32,
    classes: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> indices: array<u32>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage>;

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
    let n = i / params.classes;
    let index = indices[n];
    if index < params.classes {
        output[i] = Storage(f32(index == i - n * params.classes));
    } else {
        output[i] = Storage(not_a_number(params.classes));
    }
}
