// output = exp(input); grad_input = grad_output * output.
//
// bindings, in place, dispatch, workgroup   see shared/activation.wgsl; `saved` is the output
// source     https://pytorch.org/docs/stable/generated/torch.exp.html
#import "shared/activation.wgsl"

fn activation(x: Accum4) -> Accum4 {
    return exp(x);
}

fn activation_gradient(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return grad_output * saved;
}
