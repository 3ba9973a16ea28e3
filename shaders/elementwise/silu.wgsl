// output = input * sigmoid(input); with s = sigmoid(input), grad_input = grad_output * s * (1 + input * (1 - s)).
//
// kernel     elementwise.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.nn.SiLU.html
#import "shared/math.wgsl"

fn silu_forward(x: Accum4) -> Accum4 {
    return x * sigmoid4(x);
}

fn silu_grad_input(saved: Accum4, grad_output: Accum4) -> Accum4 {
    let s = sigmoid4(saved);
    return grad_output * s * (1.0 + saved * (1.0 - s));
}
