// p = decay * parameter; g = gradient + weight_decay * p
// exp_avg += (1 - beta1) (g - exp_avg); exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) g^2
// parameter = p - step_size * exp_avg / (sqrt(exp_avg_sq) / correction + eps)
// hyper = [step_size = lr / (1 - beta1^t), correction = sqrt(1 - beta2^t), decay = 1 - lr * decoupled decay, unused]
//
// bindings (states: exp_avg, exp_avg_sq), dispatch, workgroup   see shared/update.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.optim.Adam.html, https://arxiv.org/abs/1412.6980
//            https://pytorch.org/docs/stable/generated/torch.optim.AdamW.html, https://arxiv.org/abs/1711.05101
#import "shared/update.wgsl"

struct Params {
    vectors: u32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    eps: f32,
    weight_decay: f32,
}
var<immediate> params: Params;

@group(0) @binding(4) var<storage, read_write> exp_avg: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> exp_avg_sq: array<vec4<f32>>;

fn update(i: u32, rates: vec4<f32>) {
    let p = rates[2] * parameter[i];
    let g = Accum4(gradient[i]) + params.weight_decay * p;
    let m = exp_avg[i] + params.one_minus_beta1 * (g - exp_avg[i]);
    let v = params.beta2 * exp_avg_sq[i] + params.one_minus_beta2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    parameter[i] = p - rates[0] * (m / (sqrt(v) / rates[1] + params.eps));
}
