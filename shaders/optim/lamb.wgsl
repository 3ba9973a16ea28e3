// exp_avg += (1 - beta1) (g - exp_avg); exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) g^2
// r = exp_avg / correction1 / (sqrt(exp_avg_sq) / correction2 + eps) + weight_decay * parameter
// parameter -= lr * ratio * r; ratio = |parameter| / |r|, or 1 where either norm is 0
// hyper = [lr, correction1 = 1 - beta1^t, correction2 = sqrt(1 - beta2^t), unused]
//
// `moments` changes the states and makes partial sums of the two squared norms, which sum.combine adds up; `apply` changes the
// parameter. Nothing changes while guard[0] is not finite. All in f32.
//
// bindings   moments: parameter, gradient, hyper [4], guard [1], exp_avg (changed), exp_avg_sq (changed), partials [2, splits];
//            apply: parameter (changed), hyper, guard, exp_avg, exp_avg_sq, squared norms [2] of parameter and r
// dispatch   moments: one invocation per split; apply: one per 4 elements; 64 per workgroup, folded
// workgroup  0 bytes
// source     https://arxiv.org/abs/1904.00962
#import "shared/index.wgsl"
#import "shared/math.wgsl"
#import "shared/sums.wgsl"

alias Term = vec4<f32>;

struct Params {
    elements: u32,
    splits: u32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    eps: f32,
    weight_decay: f32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read_write> parameter: array<vec4<f32>>;
#ifdef ENTRY_moments
@group(0) @binding(1) var<storage, read> gradient: array<Storage4>;
@group(0) @binding(2) var<storage, read> hyper: array<f32>;
@group(0) @binding(3) var<storage, read> guard: array<f32>;
@group(0) @binding(4) var<storage, read_write> exp_avg: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> exp_avg_sq: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> partials: array<f32>;
#else
@group(0) @binding(1) var<storage, read> hyper: array<f32>;
@group(0) @binding(2) var<storage, read> guard: array<f32>;
@group(0) @binding(3) var<storage, read_write> exp_avg: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> exp_avg_sq: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> squared_norms: array<f32>;
#endif

fn direction(rates: vec3<f32>, p: vec4<f32>, m: vec4<f32>, v: vec4<f32>) -> vec4<f32> {
    return m / rates.y / (sqrt(v) / rates.z + params.eps) + params.weight_decay * p;
}

#ifdef ENTRY_moments
@compute @workgroup_size(64)
fn moments(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let split = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    // Before any branch, as in shared/update.wgsl.
    let rates = vec3<f32>(hyper[0], hyper[1], hyper[2]);
    let guarded = is_finite(guard[0]);
    if split >= params.splits || !guarded {
        return;
    }
    var parameter_squares = LongSum();
    var direction_squares = LongSum();
    for (var i = split; i < (params.elements + 3u) / 4u; i += params.splits) {
        let p = parameter[i];
        let g = Accum4(gradient[i]);
        let m = exp_avg[i] + params.one_minus_beta1 * (g - exp_avg[i]);
        let v = params.beta2 * exp_avg_sq[i] + params.one_minus_beta2 * g * g;
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
        let r = direction(rates, p, m, v);
        // What lies behind the last element may be anything.
        let is_inside = 4u * i + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(params.elements);
        add_term(&parameter_squares, select(Term(), p * p, is_inside));
        add_term(&direction_squares, select(Term(), r * r, is_inside));
    }
    let a = total_of(parameter_squares);
    let b = total_of(direction_squares);
    partials[split] = a.x + a.y + a.z + a.w;
    partials[params.splits + split] = b.x + b.y + b.z + b.w;
}
#else
@compute @workgroup_size(64)
fn apply(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    // Before any branch, as in shared/update.wgsl.
    let rates = vec3<f32>(hyper[0], hyper[1], hyper[2]);
    let guarded = is_finite(guard[0]);
    let norms = sqrt(vec2<f32>(squared_norms[0], squared_norms[1]));
    if i >= (params.elements + 3u) / 4u || !guarded {
        return;
    }
    var ratio = 1.0;
    if norms.x > 0.0 && norms.y > 0.0 {
        ratio = norms.x / norms.y;
    }
    let p = parameter[i];
    parameter[i] = p - (rates.x * ratio) * direction(rates, p, exp_avg[i], exp_avg_sq[i]);
}
#endif
