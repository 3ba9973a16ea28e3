// buffer = (1 - momentum) * buffer + momentum * factor * value; nothing changes while guard[0] is not finite. All in f32.
//
// bindings   forward: buffer (changed), value, guard [1]. Any shape, both alike.
// dispatch   one invocation per 4 elements, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html
#import "shared/index.wgsl"
#import "shared/math.wgsl"

struct Params {
    // Elements / 4, rounded up.
    vectors: u32,
    momentum: f32,
    factor: f32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read_write> buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> value: array<Storage4>;
@group(0) @binding(2) var<storage, read> guard: array<f32>;

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.vectors || !is_finite(guard[0]) {
        return;
    }
    var kept = vec4<f32>();
    if params.momentum != 1.0 {
        kept = (1.0 - params.momentum) * buffer[i];
    }
    buffer[i] = kept + params.momentum * (params.factor * Accum4(value[i]));
}
