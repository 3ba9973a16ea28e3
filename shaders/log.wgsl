// output = ln(input); grad_input = grad_output / input.
//
// bindings, in place, dispatch, workgroup   see shared/activation.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.log.html
#import "shared/activation.wgsl"
#import "shared/nan.wgsl"

fn activation(x: Accum4) -> Accum4 {
    // Not every device knows the logarithms of 0 and of negative numbers.
    let y = select(log(x), Accum4(-infinity(params.vectors)), x == Accum4(0.0));
    return select(y, Accum4(not_a_number(params.vectors)), x < Accum4(0.0));
}

fn activation_gradient(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return grad_output / saved;
}
