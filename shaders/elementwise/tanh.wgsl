// output = tanh(input); grad_input = grad_output * (1 - output^2).
//
// kernel     elementwise.wgsl; `saved` is the output
// source     https://pytorch.org/docs/stable/generated/torch.nn.Tanh.html
#import "shared/math.wgsl"

fn tanh_forward(x: Accum4) -> Accum4 {
    return tanh4(x);
}

fn tanh_grad_input(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return grad_output * (1.0 - saved * saved);
}
