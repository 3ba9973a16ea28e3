// output[n, c, ...] = scale[n, c] * input[n, c, ...]; grad_input = scale * grad_output is a launch of the same kernel
// grad_scale[n, c] = sum of input[n, c, ...] * grad_output[n, c, ...]
//
// bindings   forward: input [N, C, ...], scale [N, C], output; grad_scale: input, grad_output, grad_scale
// in place   input
// dispatch   forward: one invocation per 4 elements; grad_scale: LANES invocations per sum; 64 per workgroup, folded
// workgroup  forward: 0 bytes; grad_scale: 256 bytes
// source     https://pytorch.org/docs/stable/generated/torch.mul.html (broadcast)
#import "shared/channels.wgsl"
#import "shared/index.wgsl"
#ifdef ENTRY_grad_scale
#import "shared/lanes.wgsl"
#endif

struct Params {
    // Elements / 4, rounded up.
    vectors: u32,
    // Samples * channels.
    rows: u32,
    // Elements of one channel of one sample.
    inner: u32,
}
var<immediate> params: Params;

#ifdef IN_PLACE_0
#else
@group(0) @binding(0) var<storage, read> input: array<Storage4>;
#endif
@group(0) @binding(1) var<storage, read> scale: array<Storage>;
@group(0) @binding(2) var<storage, read_write> output: array<Storage4>;

@group(0) @binding(0) var<storage, read> inputs: array<Storage>;
@group(0) @binding(1) var<storage, read> grad_outputs: array<Storage>;
@group(0) @binding(2) var<storage, read_write> grad_scale_: array<Storage>;

fn channel_value(row: u32) -> Accum {
    return Accum(scale[row]);
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
    let s = channel_values(i, params.rows, params.inner);
#ifdef IN_PLACE_0
    let x = Accum4(output[i]);
#else
    let x = Accum4(input[i]);
#endif
    output[i] = Storage4(s * x);
}

#ifdef ENTRY_grad_scale
@compute @workgroup_size(64)
fn grad_scale(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let group = lanes_group(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let place = lanes_place(local_index);
    let at = min(group, params.rows - 1u) * params.inner;
    var sum = Accum(0.0);
    for (var t = place; t < params.inner; t += LANES) {
        sum += Accum(inputs[at + t]) * Accum(grad_outputs[at + t]);
    }
    let total = lanes_sum(local_index, sum);
    if place == 0u && group < params.rows {
        grad_scale_[group] = Storage(total);
    }
}
#endif
