// Gradient clipping by global norm: partial sums of squares of each gradient, a common coefficient
// min(1, max_norm / (sqrt(sum) + 1e-6)), and output = coefficient * input.
//
// bindings   squared_norm: input, with SCALED the factor [1] of what is squared, sums f32 [splits]; coefficient: sum [1],
//            output [1]; apply: input, coefficient [1], output
// in place   apply: input
// dispatch   squared_norm: one invocation per split, 64 per workgroup, folded; coefficient: one; apply: one invocation per 4
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
#import "shared/index.wgsl"
#import "shared/sums.wgsl"

alias Term = Accum;

struct Params {
    // Elements / 4, rounded up.
    vectors: u32,
    max_norm: f32,
}
var<immediate> params: Params;

// Parameters of `reduce::total`.
struct TotalParams {
    terms: u32,
    splits: u32,
    scale: f32,
}
var<immediate> total_params: TotalParams;

@group(0) @binding(0) var<storage, read> input: array<Storage>;
#ifdef SCALED
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;
#else
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
#endif

@group(0) @binding(0) var<storage, read> total: array<f32>;
@group(0) @binding(1) var<storage, read_write> coefficient_: array<f32>;

#ifndef IN_PLACE_0
@group(0) @binding(0) var<storage, read> vectors: array<Storage4>;
#endif
@group(0) @binding(1) var<storage, read> factor: array<f32>;
@group(0) @binding(2) var<storage, read_write> output: array<Storage4>;

@compute @workgroup_size(64)
fn squared_norm(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let split = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
#ifdef SCALED
    // Before any branch, as in shared/update.wgsl.
    let scale = factor[0];
#endif
    if split >= total_params.splits {
        return;
    }
    var added = LongSum();
    for (var i = split; i < total_params.terms; i += total_params.splits) {
#ifdef SCALED
        let x = scale * Accum(input[i]);
#else
        let x = Accum(input[i]);
#endif
        add_term(&added, x * x);
    }
    sums[split] = total_of(added) * total_params.scale;
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
    // Before any branch, as in shared/update.wgsl.
    let scale = factor[0];
    if i >= params.vectors {
        return;
    }
#ifdef IN_PLACE_0
    output[i] = Storage4(scale * Accum4(output[i]));
#else
    output[i] = Storage4(scale * Accum4(vectors[i]));
#endif
}
