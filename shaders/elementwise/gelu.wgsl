// output = input * P(input), where P is the normal distribution's cumulative function, exact or, for the functions of
// `tanh`, (1 + tanh(sqrt(2 / pi) * (input + 0.044715 input^3))) / 2.
// grad_input = grad_output * (P(input) + input * P'(input)).
//
// kernel     elementwise.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.nn.GELU.html
#import "shared/math.wgsl"

fn gelu_forward(x: Accum4) -> Accum4 {
    return x * normal_cdf4(x);
}

fn gelu_grad_input(saved: Accum4, grad_output: Accum4) -> Accum4 {
    let x = saved;
    let density = 0.3989422804 * exp(-0.5 * x * x);
    return grad_output * (normal_cdf4(x) + x * density);
}

const GELU_SQRT_2_OVER_PI: f32 = 0.7978845608;
const GELU_CUBIC: f32 = 0.044715;

fn gelu_approximate_tanh(x: Accum4) -> Accum4 {
    return tanh4(GELU_SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x));
}

fn gelu_tanh_forward(x: Accum4) -> Accum4 {
    return 0.5 * x * (1.0 + gelu_approximate_tanh(x));
}

fn gelu_tanh_grad_input(saved: Accum4, grad_output: Accum4) -> Accum4 {
    let x = saved;
    let t = gelu_approximate_tanh(x);
    let inner = GELU_SQRT_2_OVER_PI * (1.0 + 3.0 * GELU_CUBIC * x * x);
    return grad_output * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner);
}
