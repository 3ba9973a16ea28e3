// The kernel of elementwise ops, alone or fused with others: output = f(tensors at the same place), where f is the functions of
// FUSED, each written in the file of its op, one after another.
//
// bindings   output, then each tensor once. Any shape, all alike; of a mask, a bit for each element.
// in place   any tensor that is no mask
// dispatch   one invocation per 4 elements, 64 per workgroup, folded
// workgroup  0 bytes
#import "shared/index.wgsl"

struct Params {
    // Elements / 4, rounded up.
    vectors: u32,
#for k in 0..SETTINGS
    setting_#k: f32,
#end
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read_write> output: array<Storage4>;

fn runtime_number() -> u32 {
    return params.vectors;
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
    output[i] = Storage4(fused(i));
}
