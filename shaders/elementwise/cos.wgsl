// output = cos(input); grad_input = -grad_output * sin(input).
//
// kernel     elementwise.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.cos.html
#import "shared/math.wgsl"

fn cos_forward(x: Accum4) -> Accum4 {
    return cos4(x);
}

fn cos_grad_input(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return -grad_output * sin4(saved);
}
