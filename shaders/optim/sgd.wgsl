// d = gradient + weight_decay * parameter
// MOMENTUM: buffer = momentum * buffer + d; d = NESTEROV ? d + momentum * buffer : buffer
// parameter -= lr * d; lr = hyper[0]
//
// bindings (state: momentum buffer, where MOMENTUM), dispatch, workgroup   see shared/update.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.optim.SGD.html
#import "shared/update.wgsl"

struct Params {
    vectors: u32,
    momentum: f32,
    weight_decay: f32,
}
var<immediate> params: Params;

#ifdef MOMENTUM
@group(0) @binding(4) var<storage, read_write> buffer: array<vec4<f32>>;
#endif

fn update(i: u32, rates: vec4<f32>) {
    let p = parameter[i];
    var d = Accum4(gradient[i]) + params.weight_decay * p;
#ifdef MOMENTUM
    let b = params.momentum * buffer[i] + d;
    buffer[i] = b;
    d = select(b, d + params.momentum * b, NESTEROV != 0u);
#endif
    parameter[i] = p - rates[0] * d;
}
