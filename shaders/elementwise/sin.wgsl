// output = sin(input); grad_input = grad_output * cos(input).
//
// kernel     elementwise.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.sin.html
#import "shared/math.wgsl"

fn sin_forward(x: Accum4) -> Accum4 {
    return sin4(x);
}

fn sin_grad_input(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return grad_output * cos4(saved);
}
