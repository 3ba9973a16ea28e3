// output = input as a number
//
// bindings   input u32, output. Any shape, both alike.
// in place   no
// dispatch   one invocation per element, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.Tensor.float.html
#import "shared/index.wgsl"

struct Params {
    elements: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> input: array<u32>;
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
    output[i] = Storage(f32(input[i]));
}
