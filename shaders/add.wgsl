// output = a + b
//
// bindings   forward: a, b, output. Any shape, all alike.
// in place   a or b
// dispatch   one invocation per 4 elements, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.add.html
#import "shared/index.wgsl"

struct Params {
    // Elements / 4, rounded up.
    vectors: u32,
    setting: f32,
}
var<immediate> params: Params;

#ifdef IN_PLACE_0
#else
@group(0) @binding(0) var<storage, read> a: array<Storage4>;
#endif
#ifdef IN_PLACE_1
#else
@group(0) @binding(1) var<storage, read> b: array<Storage4>;
#endif
@group(0) @binding(2) var<storage, read_write> output: array<Storage4>;

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
#ifdef IN_PLACE_0
    output[i] = Storage4(Accum4(output[i]) + Accum4(b[i]));
#else
#ifdef IN_PLACE_1
    output[i] = Storage4(Accum4(a[i]) + Accum4(output[i]));
#else
    output[i] = Storage4(Accum4(a[i]) + Accum4(b[i]));
#endif
#endif
}
