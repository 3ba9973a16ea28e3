// g = gradient + weight_decay * parameter; sum += g^2
// parameter -= step_size * g / (sqrt(sum + initial) + eps); step_size = hyper[0] = lr / (1 + (t - 1) lr_decay)
//
// bindings (state: sum), dispatch, workgroup   see shared/update.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.optim.Adagrad.html
#import "shared/update.wgsl"

struct Params {
    vectors: u32,
    initial: f32,
    eps: f32,
    weight_decay: f32,
}
var<immediate> params: Params;

@group(0) @binding(4) var<storage, read_write> sum: array<vec4<f32>>;

fn update(i: u32, rates: vec4<f32>) {
    let p = parameter[i];
    let g = Accum4(gradient[i]) + params.weight_decay * p;
    let s = sum[i] + g * g;
    sum[i] = s;
    parameter[i] = p - rates[0] * (g / (sqrt(s + params.initial) + params.eps));
}
