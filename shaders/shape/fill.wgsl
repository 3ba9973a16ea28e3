// output = setting, everywhere
//
// bindings   forward: output. Any shape.
// dispatch   one invocation per 4 elements, 64 per workgroup, folded
// workgroup  0 bytes
#import "shared/index.wgsl"

struct Params {
    // Elements / 4, rounded up.
    vectors: u32,
    setting: f32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read_write> output: array<Storage4>;

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
    output[i] = Storage4(Accum4(params.setting));
}
