// output = input where input > 0, else alpha * (exp(input) - 1);
// grad_input = grad_output, or likewise grad_output * alpha * exp(input), which is grad_output * (output + alpha).
//
// kernel     elementwise.wgsl; `saved` is the output (grad_input_from_output), or with a negative alpha the input
// source     https://pytorch.org/docs/stable/generated/torch.nn.ELU.html
#import "shared/math.wgsl"

fn elu_forward(x: Accum4, alpha: f32) -> Accum4 {
    return select(alpha * exp_m1_4(x), x, x > Accum4(0.0));
}

fn elu_grad_input_from_output(saved: Accum4, grad_output: Accum4, alpha: f32) -> Accum4 {
    return select(grad_output * (saved + alpha), grad_output, saved > Accum4(0.0));
}

fn elu_grad_input(saved: Accum4, grad_output: Accum4, alpha: f32) -> Accum4 {
    // The argument is not positive where the result counts.
    let slope = alpha * exp(min(saved, Accum4(0.0)));
    return select(grad_output * slope, grad_output, saved > Accum4(0.0));
}
