// The kernels of losses that are means over single elements. The importing file defines the function and its derivative:
//   fn loss(x: Accum4, t: Accum4, weight: Accum4) -> Accum4
//   fn loss_gradient(x: Accum4, t: Accum4, weight: Accum4) -> Accum4
// of an input, a target and, where WEIGHTED, the weight of the element's channel (else 1). Both are multiplied by the weight of the
// element's sample, where SAMPLE_WEIGHTS.
//
// bindings   forward: input, target, sums f32 [splits] (the loss where there is one split, else sum.combine adds them),
//            weights [channels]; grad_input: input, target, grad_loss [1], grad_input, weights [channels]. Weights only
//            where WEIGHTED. Behind these sample_weights, where SAMPLE_WEIGHTS.
// in place   grad_input: input or target
// dispatch   forward: one invocation per split, 64 per workgroup, folded; grad_input: one invocation per 4 elements
// workgroup  0 bytes
#import "shared/index.wgsl"
#import "shared/sums.wgsl"

alias Term = Accum4;

struct Params {
    elements: u32,
    // forward: partial sums; grad_input: elements / 4, rounded up.
    splits: u32,
    // forward: 1 / elements where the sum is complete, else 1; grad_input: 1 / elements, or that with the sign turned.
    scale: f32,
    // A number of the loss's own (huber: delta).
    setting: f32,
    // Elements behind one channel, and channels.
    inner: u32,
    channels: u32,
#ifdef SAMPLE_WEIGHTS
    per_weight: u32,
#endif
}
var<immediate> params: Params;
#ifdef SAMPLE_WEIGHTS
#import "shared/sample_weights.wgsl"
#endif

#ifndef IN_PLACE_0
@group(0) @binding(0) var<storage, read> input: array<Storage4>;
#endif
#ifndef IN_PLACE_1
@group(0) @binding(1) var<storage, read> target_: array<Storage4>;
#endif
#ifdef ENTRY_forward
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;
#else
@group(0) @binding(2) var<storage, read> grad_loss: array<Storage>;
@group(0) @binding(3) var<storage, read_write> grad: array<Storage4>;
#endif

#ifdef WEIGHTED
#ifdef ENTRY_forward
@group(0) @binding(3) var<storage, read> weights: array<Storage>;
#else
@group(0) @binding(4) var<storage, read> weights: array<Storage>;
#endif

fn weight_of(element: u32) -> Accum {
    return Accum(weights[element / params.inner % params.channels]);
}

fn weights_of(vector: u32) -> Accum4 {
    let first = 4u * vector;
    return Accum4(weight_of(first), weight_of(first + 1u), weight_of(first + 2u), weight_of(first + 3u));
}
#else
fn weights_of(vector: u32) -> Accum4 {
    return Accum4(1.0);
}
#endif

#ifdef ENTRY_forward
@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let split = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if split >= params.splits {
        return;
    }
    var added = LongSum();
    for (var i = split; i < (params.elements + 3u) / 4u; i += params.splits) {
#ifdef SAMPLE_WEIGHTS
        let terms = sample_weights4(i, params.elements) * loss(Accum4(input[i]), Accum4(target_[i]), weights_of(i));
#else
        let terms = loss(Accum4(input[i]), Accum4(target_[i]), weights_of(i));
#endif
        // What lies behind the last element may be anything.
        add_term(&added, select(Accum4(0.0), terms, 4u * i + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(params.elements)));
    }
    let sum = total_of(added);
    sums[split] = (sum.x + sum.y + sum.z + sum.w) * params.scale;
}
#else
@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.splits {
        return;
    }
#ifdef IN_PLACE_0
    let x = Accum4(grad[i]);
#else
    let x = Accum4(input[i]);
#endif
#ifdef IN_PLACE_1
    let t = Accum4(grad[i]);
#else
    let t = Accum4(target_[i]);
#endif
#ifdef SAMPLE_WEIGHTS
    let factor = params.scale * Accum(grad_loss[0]) * sample_weights4(i, params.elements);
    grad[i] = Storage4(factor * loss_gradient(x, t, weights_of(i)));
#else
    grad[i] = Storage4((params.scale * Accum(grad_loss[0])) * loss_gradient(x, t, weights_of(i)));
#endif
}
#endif
