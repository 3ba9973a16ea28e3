// c = exp_avg + (1 - beta1) (gradient - exp_avg); exp_avg += (1 - beta2) (gradient - exp_avg)
// parameter = decay * parameter - lr * sign(c); hyper = [lr, decay = 1 - lr * weight decay, unused, unused]
//
// bindings (state: exp_avg), dispatch, workgroup   see shared/update.wgsl
// source     https://arxiv.org/abs/2302.06675
#import "shared/update.wgsl"

struct Params {
    vectors: u32,
    one_minus_beta1: f32,
    one_minus_beta2: f32,
}
var<immediate> params: Params;

@group(0) @binding(4) var<storage, read_write> exp_avg: array<vec4<f32>>;

fn update(i: u32, rates: vec4<f32>) {
    let m = exp_avg[i];
    let toward = Accum4(gradient[i]) - m;
    exp_avg[i] = m + params.one_minus_beta2 * toward;
    parameter[i] = rates[1] * parameter[i] - rates[0] * sign(m + params.one_minus_beta1 * toward);
}
