// The same with one trained beta for each channel; with s = sigmoid(beta * x),
// grad_input = grad_output * s * (1 + beta * x * (1 - s)), beta_terms = grad_output * x^2 * s * (1 - s).
//
// bindings   forward: input [N, C, ...], beta [C], output
//            grad_input, beta_terms: input, beta, grad_output, output
// in place   forward: input; grad_input: grad_output
// dispatch   one invocation per 4 elements, 64 per workgroup, folded
#import "shared/channels.wgsl"
#import "shared/index.wgsl"
#import "shared/math.wgsl"

struct Params {
    // Elements / 4, rounded up.
    vectors: u32,
    channels: u32,
    // Elements of one channel of one sample.
    inner: u32,
}
var<immediate> params: Params;

#ifndef IN_PLACE_0
@group(0) @binding(0) var<storage, read> input: array<Storage4>;
#endif
@group(0) @binding(1) var<storage, read> beta: array<Storage>;

#ifdef ENTRY_forward
@group(0) @binding(2) var<storage, read_write> output: array<Storage4>;
#else
#ifndef IN_PLACE_2
@group(0) @binding(2) var<storage, read> grad_output: array<Storage4>;
#endif
@group(0) @binding(3) var<storage, read_write> output: array<Storage4>;
#endif

fn channel_value(c: u32) -> Accum {
    return Accum(beta[c]);
}

fn input_at(i: u32) -> Accum4 {
#ifdef IN_PLACE_0
    return Accum4(output[i]);
#else
    return Accum4(input[i]);
#endif
}

#ifdef ENTRY_forward
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
    let x = input_at(i);
    output[i] = Storage4(x * sigmoid4(channel_values(i, params.channels, params.inner) * x));
}
#else
fn grad_output_at(i: u32) -> Accum4 {
#ifdef IN_PLACE_2
    return Accum4(output[i]);
#else
    return Accum4(grad_output[i]);
#endif
}

@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.vectors {
        return;
    }
    let z = channel_values(i, params.channels, params.inner) * input_at(i);
    let s = sigmoid4(z);
    output[i] = Storage4(grad_output_at(i) * s * (1.0 + z * (1.0 - s)));
}

@compute @workgroup_size(64)
fn beta_terms(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.vectors {
        return;
    }
    let x = input_at(i);
    let s = sigmoid4(channel_values(i, params.channels, params.inner) * x);
    output[i] = Storage4(grad_output_at(i) * x * x * s * (1.0 - s));
}
#endif
