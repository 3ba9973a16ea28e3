// buffer = keep * buffer + rate * value, where keep is 1 - momentum and rate is momentum * factor. Where keep is 0 the
// buffer's contents take no part, not even NaN; where rate is 1 the value is copied as it is.
// Nothing changes while guard[0] is not finite. All in f32.
//
// bindings   forward: buffer (changed), value, guard [1]. Buffer and value of any shape, both alike.
// dispatch   one invocation per 4 elements, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html
#import "shared/index.wgsl"
#import "shared/math.wgsl"

struct Params {
    // Elements / 4, rounded up.
    vectors: u32,
    keep: f32,
    rate: f32,
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
    // Before any branch, as in shared/update.wgsl.
    let guarded = is_finite(guard[0]);
    if i >= params.vectors || !guarded {
        return;
    }
    var share = Accum4(value[i]);
    if params.rate != 1.0 {
        share = params.rate * share;
    }
    if params.keep != 0.0 {
        share = params.keep * buffer[i] + share;
    }
    buffer[i] = share;
}
