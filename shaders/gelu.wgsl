// output = input * P(input), where P is the normal distribution's cumulative function, exact (APPROXIMATE = 0) or
// (1 + tanh(sqrt(2 / pi) * (input + 0.044715 input^3))) / 2 (APPROXIMATE = 1).
// grad_input = grad_output * (P(input) + input * P'(input)).
//
// bindings, in place, dispatch, workgroup   see shared/activation.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.nn.GELU.html
#import "shared/activation.wgsl"
#import "shared/math.wgsl"

const SQRT_2_OVER_PI: f32 = 0.7978845608;
const CUBIC: f32 = 0.044715;

fn approximate_tanh(x: Accum4) -> Accum4 {
    return tanh4(SQRT_2_OVER_PI * (x + CUBIC * x * x * x));
}

fn activation(x: Accum4) -> Accum4 {
    if APPROXIMATE == 1u {
        return 0.5 * x * (1.0 + approximate_tanh(x));
    }
    return x * normal_cdf4(x);
}

fn activation_gradient(saved: Accum4, grad_output: Accum4) -> Accum4 {
    let x = saved;
    if APPROXIMATE == 1u {
        let t = approximate_tanh(x);
        let inner = SQRT_2_OVER_PI * (1.0 + 3.0 * CUBIC * x * x);
        return grad_output * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner);
    }
    let density = 0.3989422804 * exp(-0.5 * x * x);
    return grad_output * (normal_cdf4(x) + x * density);
}
