// output = tanh(input); grad_input = grad_output * (1 - output^2).
//
// bindings, in place, dispatch, workgroup   see shared/activation.wgsl; `saved` is the output
// source     https://pytorch.org/docs/stable/generated/torch.nn.Tanh.html
#import "shared/activation.wgsl"
#import "shared/math.wgsl"

fn activation(x: Accum4) -> Accum4 {
    return tanh4(x);
}

fn activation_gradient(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return grad_output * (1.0 - saved * saved);
}
