// output = ln(input); grad_input = grad_output / input.
//
// bindings, in place, dispatch, workgroup   see shared/activation.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.log.html
#import "shared/activation.wgsl"

fn activation(x: Accum4) -> Accum4 {
    return log(x);
}

fn activation_gradient(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return grad_output / saved;
}
