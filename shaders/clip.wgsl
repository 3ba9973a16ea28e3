// Gradient clipping by global norm: partial sums of squares of each gradient, a common coefficient
// min(1, max_norm / (sqrt(sum) + 1e-6)), and output = coefficient * input.
//
// bindings   squared_norm: input, partial f32[ceil(n / 4096)]; coefficient: sum [1], output [1]; apply: input,
//            coefficient [1], output
// in place   apply: input
// dispatch   squared_norm: one workgroup of 256 per 4096 elements, folded; coefficient: one; apply: one invocation per 4
// workgroup  squared_norm: 1024 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
#import "shared/index.wgsl"
#import "shared/reduce.wgsl"

struct Params {
    // squared_norm: elements; apply: elements / 4, rounded up.
    n: u32,
    max_norm: f32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(1) var<storage, read_write> partial: array<f32>;

@group(0) @binding(0) var<storage, read> total: array<f32>;
@group(0) @binding(1) var<storage, read_write> coefficient_: array<f32>;

#ifdef IN_PLACE_0
#else
@group(0) @binding(0) var<storage, read> vectors: array<Storage4>;
#endif
@group(0) @binding(1) var<storage, read> factor: array<f32>;
@group(0) @binding(2) var<storage, read_write> output: array<Storage4>;

@compute @workgroup_size(256)
fn squared_norm(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let chunk = linear_workgroup(workgroup_id, num_workgroups);
    let end = min(params.n, (chunk + 1u) * 4096u);
    var sum = 0.0;
    for (var i = chunk * 4096u + local_index; i < end; i += 256u) {
        let x = Accum(input[i]);
        sum += x * x;
    }
    let chunk_sum = sum_workgroup(sum, local_index);
    if local_index == 0u && chunk * 4096u < params.n {
        partial[chunk] = chunk_sum;
    }
}

@compute @workgroup_size(1)
fn coefficient() {
    coefficient_[0] = min(1.0, params.max_norm / (sqrt(total[0]) + 1e-6));
}

@compute @workgroup_size(64)
fn apply(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.n {
        return;
    }
#ifdef IN_PLACE_0
    output[i] = Storage4(factor[0] * Accum4(output[i]));
#else
    output[i] = Storage4(factor[0] * Accum4(vectors[i]));
#endif
}
