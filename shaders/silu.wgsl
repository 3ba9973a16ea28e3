// output = input * sigmoid(input); with s = sigmoid(input), grad_input = grad_output * s * (1 + input * (1 - s)).
//
// bindings, in place, dispatch, workgroup   see shared/activation.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.nn.SiLU.html
#import "shared/activation.wgsl"
#import "shared/math.wgsl"

fn activation(x: Accum4) -> Accum4 {
    return x * sigmoid4(x);
}

fn activation_gradient(saved: Accum4, grad_output: Accum4) -> Accum4 {
    let s = sigmoid4(saved);
    return grad_output * s * (1.0 + saved * (1.0 - s));
}
