// output = input where input > 0, else weight * input, with one weight per channel or one for all;
// grad_input = grad_output, or weight * grad_output likewise; grad_weight[c] = the sum of input * grad_output over the elements
// of channel c that are not above 0.
//
// A sum of many terms is made by several invocations (splits), whose partial sums sum.combine adds.
//
// bindings   forward: input [N, C, ...], weight [C], output; grad_input: input, weight, grad_output, grad_input;
//            grad_weight: input, grad_output, grad_weight [C] (one split) or workspace [C, splits]
// in place   forward: input; grad_input: grad_output or input
// dispatch   forward, grad_input: one invocation per 4 elements; grad_weight: one per channel and split; 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.PReLU.html
#import "shared/channels.wgsl"
#import "shared/index.wgsl"
#import "shared/sums.wgsl"

alias Term = Accum;

struct Params {
    // Elements / 4, rounded up.
    vectors: u32,
    channels: u32,
    // Elements of one channel of one sample.
    inner: u32,
}
var<immediate> params: Params;

struct SumParams {
    channels: u32,
    inner: u32,
    // Elements of a channel.
    terms: u32,
    splits: u32,
}
var<immediate> sum_params: SumParams;

#ifndef IN_PLACE_0
@group(0) @binding(0) var<storage, read> input: array<Storage4>;
#endif
@group(0) @binding(1) var<storage, read> weight: array<Storage>;
@group(0) @binding(2) var<storage, read_write> output: array<Storage4>;

#ifndef IN_PLACE_2
@group(0) @binding(2) var<storage, read> grad_output: array<Storage4>;
#endif
@group(0) @binding(3) var<storage, read_write> grad_input_: array<Storage4>;

@group(0) @binding(0) var<storage, read> inputs: array<Storage>;
@group(0) @binding(1) var<storage, read> grad_outputs: array<Storage>;
@group(0) @binding(2) var<storage, read_write> sums: array<Accum>;

fn channel_value(c: u32) -> Accum {
    return Accum(weight[c]);
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
#ifdef IN_PLACE_0
    let x = Accum4(output[i]);
#else
    let x = Accum4(input[i]);
#endif
    let w = channel_values(i, params.channels, params.inner);
    output[i] = Storage4(select(w * x, x, x > Accum4(0.0)));
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
#ifdef IN_PLACE_0
    let x = Accum4(grad_input_[i]);
#else
    let x = Accum4(input[i]);
#endif
#ifdef IN_PLACE_2
    let g = Accum4(grad_input_[i]);
#else
    let g = Accum4(grad_output[i]);
#endif
    let w = channel_values(i, params.channels, params.inner);
    grad_input_[i] = Storage4(select(w * g, g, x > Accum4(0.0)));
}

@compute @workgroup_size(64)
fn grad_weight(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= sum_params.channels * sum_params.splits {
        return;
    }
    // Neighbours read neighbours: of a channel, or where those lie apart, of a sample.
    var c = i / sum_params.splits;
    var split = i % sum_params.splits;
    if sum_params.inner == 1u {
        c = i % sum_params.channels;
        split = i / sum_params.channels;
    }
    var added = LongSum();
    for (var t = split; t < sum_params.terms; t += sum_params.splits) {
        let n = t / sum_params.inner;
        let at = (n * sum_params.channels + c) * sum_params.inner + (t - n * sum_params.inner);
        let x = Accum(inputs[at]);
        if !(x > 0.0) {
            add_term(&added, x * Accum(grad_outputs[at]));
        }
    }
    sums[c * sum_params.splits + split] = total_of(added);
}
