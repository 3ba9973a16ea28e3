// d = gradient + weight_decay * parameter
// momentum: buffer = momentum * buffer + d; d = nesterov ? d + momentum * buffer : buffer
// parameter -= lr * d; nothing changes while guard[0] is not finite. lr = hyper[0]. All in f32.
//
// bindings   plain: parameter (changed), gradient, hyper [4], guard [1]
//            with_momentum: parameter (changed), gradient, buffer (changed), hyper [4], guard [1]
// dispatch   one invocation per 4 elements, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.optim.SGD.html
#import "shared/index.wgsl"
#import "shared/math.wgsl"

struct Params {
    // Elements / 4, rounded up.
    vectors: u32,
    momentum: f32,
    nesterov: u32,
    weight_decay: f32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read_write> parameter: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> gradient: array<Storage4>;

@group(0) @binding(2) var<storage, read> plain_hyper: array<f32>;
@group(0) @binding(3) var<storage, read> plain_guard: array<f32>;

@group(0) @binding(2) var<storage, read_write> buffer: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> hyper: array<f32>;
@group(0) @binding(4) var<storage, read> guard: array<f32>;

@compute @workgroup_size(64)
fn plain(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.vectors || !is_finite(plain_guard[0]) {
        return;
    }
    let p = parameter[i];
    parameter[i] = p - plain_hyper[0] * (Accum4(gradient[i]) + params.weight_decay * p);
}

@compute @workgroup_size(64)
fn with_momentum(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.vectors || !is_finite(guard[0]) {
        return;
    }
    let p = parameter[i];
    let d = Accum4(gradient[i]) + params.weight_decay * p;
    let b = params.momentum * buffer[i] + d;
    buffer[i] = b;
    parameter[i] = p - hyper[0] * select(b, d + params.momentum * b, params.nesterov != 0u);
}
