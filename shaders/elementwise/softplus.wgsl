// output = ln(1 + exp(z)) / beta for z = beta * input, or the input where z > threshold;
// grad_input = grad_output * sigmoid(z), or grad_output likewise.
//
// kernel     elementwise.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.nn.Softplus.html
#import "shared/math.wgsl"

fn softplus_forward(x: Accum4, beta: f32, threshold: f32) -> Accum4 {
    let z = beta * x;
    let y = (max(z, Accum4(0.0)) + ln_1p_4(exp(-abs(z)))) / beta;
    return select(y, x, z > Accum4(threshold));
}

fn softplus_grad_input(saved: Accum4, grad_output: Accum4, beta: f32, threshold: f32) -> Accum4 {
    let z = beta * saved;
    return select(grad_output * sigmoid4(z), grad_output, z > Accum4(threshold));
}
