// output = ln(1 + exp(z)) / beta for z = beta * input, or the input where z > threshold;
// grad_input = grad_output * sigmoid(z), or grad_output likewise.
//
// bindings, in place, dispatch, workgroup   see shared/activation.wgsl; `saved` is the input, the
//            settings are beta and threshold
// source     https://pytorch.org/docs/stable/generated/torch.nn.Softplus.html
#import "shared/activation.wgsl"
#import "shared/math.wgsl"

fn activation(x: Accum4) -> Accum4 {
    let z = params.setting * x;
    let y = (max(z, Accum4(0.0)) + ln_1p_4(exp(-abs(z)))) / params.setting;
    return select(y, x, z > Accum4(params.second_setting));
}

fn activation_gradient(saved: Accum4, grad_output: Accum4) -> Accum4 {
    let z = params.setting * saved;
    return select(grad_output * sigmoid4(z), grad_output, z > Accum4(params.second_setting));
}
