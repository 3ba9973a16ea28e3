// loss = mean(max(x, 0) - x t + ln(1 + exp(-|x|))); grad_input = setting * grad_loss * (sigmoid(x) - t), setting = 1 / n.
//
// bindings   forward: input x, target t, sums f32 [splits] (the loss where there is one split, else sum.combine adds them); grad_input: input, target, grad_loss [1], grad_input
// in place   grad_input: input or target
// dispatch   forward: one invocation per split, 64 per workgroup, folded; grad_input: one invocation per 4 elements
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html
#import "shared/index.wgsl"
#import "shared/math.wgsl"

struct Params {
    // Elements / 4, rounded up.
    n: u32,
    setting: f32,
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
@group(0) @binding(1) var<storage, read> target_: array<Storage>;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;

#ifdef IN_PLACE_0
#else
@group(0) @binding(0) var<storage, read> input_vectors: array<Storage4>;
#endif
#ifdef IN_PLACE_1
#else
@group(0) @binding(1) var<storage, read> target_vectors: array<Storage4>;
#endif
@group(0) @binding(2) var<storage, read> grad_loss: array<Storage>;
@group(0) @binding(3) var<storage, read_write> grad: array<Storage4>;

// ln(1 + e) for e in 0..1: the log of a number so near to 1 loses what the series keeps.
fn ln_1p(e: f32) -> f32 {
    return select(log(1.0 + e), e * (1.0 - e * (0.5 - e * (1.0 / 3.0))), e < 0.01);
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let split = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if split >= total_params.splits {
        return;
    }
    var sum = 0.0;
    for (var i = split; i < total_params.terms; i += total_params.splits) {
        let x = Accum(input[i]);
        sum += max(x, 0.0) - x * Accum(target_[i]) + ln_1p(exp(-abs(x)));
    }
    sums[split] = sum * total_params.scale;
}

@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.n {
        return;
    }
#ifdef IN_PLACE_0
    let x = Accum4(grad[i]);
#else
    let x = Accum4(input_vectors[i]);
#endif
#ifdef IN_PLACE_1
    let t = Accum4(grad[i]);
#else
    let t = Accum4(target_vectors[i]);
#endif
    grad[i] = Storage4((params.setting * Accum(grad_loss[0])) * (sigmoid4(x) - t));
}
