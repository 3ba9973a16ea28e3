// loss = sum of input / elements; grad_input = grad_loss / elements. Both are multiplied by the weight of the element's sample, where
// SAMPLE_WEIGHTS.
//
// bindings   forward: input, sums f32 [splits] (the loss where there is one split, else sum.combine adds them); grad_input: grad_loss [1],
//            grad_input. Behind these sample_weights, where SAMPLE_WEIGHTS.
// in place   no
// dispatch   forward: one invocation per split, 64 per workgroup, folded; grad_input: one invocation per 4 elements
// workgroup  0 bytes
// source     https://keras.io/api/losses/
#import "shared/index.wgsl"
#import "shared/sums.wgsl"

alias Term = Accum4;

struct Params {
    elements: u32,
    // forward: partial sums; grad_input: elements / 4, rounded up.
    splits: u32,
    // 1 / elements; forward: 1 where the sum is not complete.
    scale: f32,
#ifdef SAMPLE_WEIGHTS
    per_weight: u32,
#endif
}
var<immediate> params: Params;

#ifdef SAMPLE_WEIGHTS
#import "shared/sample_weights.wgsl"

fn weights_of(vector: u32) -> Accum4 {
    return sample_weights4(vector, params.elements);
}
#else
fn weights_of(vector: u32) -> Accum4 {
    return Accum4(1.0);
}
#endif

#ifdef ENTRY_forward
@group(0) @binding(0) var<storage, read> input: array<Storage4>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;

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
        let terms = weights_of(i) * Accum4(input[i]);
        // What lies behind the last element may be anything.
        add_term(&added, select(Accum4(0.0), terms, 4u * i + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(params.elements)));
    }
    let sum = total_of(added);
    sums[split] = (sum.x + sum.y + sum.z + sum.w) * params.scale;
}
#else
@group(0) @binding(0) var<storage, read> grad_loss: array<Storage>;
@group(0) @binding(1) var<storage, read_write> grad: array<Storage4>;

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
    grad[i] = Storage4(params.scale * Accum(grad_loss[0]) * weights_of(i));
}
#endif
