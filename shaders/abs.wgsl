// output = |input|; grad_input = sign(input) * grad_output.
//
// bindings, in place, dispatch, workgroup   see shared/activation.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.abs.html
#import "shared/activation.wgsl"

fn activation(x: Accum4) -> Accum4 {
    return abs(x);
}

fn activation_gradient(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return sign(saved) * grad_output;
}
