// g = gradient + weight_decay * parameter; square_avg = alpha square_avg + (1 - alpha) g^2; d = g / (sqrt(variance) + eps)
// variance = square_avg, or where CENTERED: grad_avg += (1 - alpha) (g - grad_avg); variance = max(square_avg - grad_avg^2, 0)
// MOMENTUM: buffer = momentum * buffer + d; d = buffer
// parameter -= lr * d; lr = hyper[0]
//
// bindings (states: square_avg, grad_avg where CENTERED, momentum buffer where MOMENTUM), dispatch, workgroup   see
//            shared/update.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.optim.RMSprop.html
#import "shared/update.wgsl"

struct Params {
    vectors: u32,
    alpha: f32,
    one_minus_alpha: f32,
    eps: f32,
    weight_decay: f32,
    momentum: f32,
}
var<immediate> params: Params;

@group(0) @binding(4) var<storage, read_write> square_avg: array<vec4<f32>>;
#ifdef CENTERED
@group(0) @binding(5) var<storage, read_write> grad_avg: array<vec4<f32>>;
#ifdef MOMENTUM
@group(0) @binding(6) var<storage, read_write> buffer: array<vec4<f32>>;
#endif
#else
#ifdef MOMENTUM
@group(0) @binding(5) var<storage, read_write> buffer: array<vec4<f32>>;
#endif
#endif

fn update(i: u32, rates: vec4<f32>) {
    let p = parameter[i];
    let g = Accum4(gradient[i]) + params.weight_decay * p;
    let v = params.alpha * square_avg[i] + params.one_minus_alpha * g * g;
    square_avg[i] = v;
    var variance = v;
#ifdef CENTERED
    let a = grad_avg[i] + params.one_minus_alpha * (g - grad_avg[i]);
    grad_avg[i] = a;
    variance = max(v - a * a, vec4<f32>(0.0));
#endif
    var d = g / (sqrt(variance) + params.eps);
#ifdef MOMENTUM
    d += params.momentum * buffer[i];
    buffer[i] = d;
#endif
    parameter[i] = p - rates[0] * d;
}
