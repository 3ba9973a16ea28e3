// output[n, c, ...] = input[n, c, ...] + bias[c]. (grad_input is grad_output; grad_bias runs the kernels of sum.wgsl.)
//
// bindings   input [N, C, ...], bias [C], output
// in place   input
// dispatch   one invocation per 4 elements, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.Linear.html (the addition)
#import "shared/channels.wgsl"
#import "shared/index.wgsl"

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
#ifdef CHANNEL_VECTORS
@group(0) @binding(1) var<storage, read> bias: array<Storage4>;

fn channel_vector(v: u32) -> Accum4 {
    return Accum4(bias[v]);
}
#else
@group(0) @binding(1) var<storage, read> bias: array<Storage>;

fn channel_value(c: u32) -> Accum {
    return Accum(bias[c]);
}
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
    let b = channel_values(i, params.channels, params.inner);
#ifdef IN_PLACE_0
    let x = Accum4(output[i]);
#else
    let x = Accum4(input[i]);
#endif
    output[i] = Storage4(x + b);
}
