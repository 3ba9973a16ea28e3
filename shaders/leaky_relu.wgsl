// output = input where input > 0, else slope * input; grad_input = grad_output, or slope * grad_output likewise.
//
// bindings, in place, dispatch, workgroup   see shared/activation.wgsl; `saved` is the output, or with a negative slope the
//            input; `setting` is the slope
// source     https://pytorch.org/docs/stable/generated/torch.nn.LeakyReLU.html
#import "shared/activation.wgsl"
#import "shared/mask.wgsl"

fn activation(x: Accum4) -> Accum4 {
    return select(params.setting * x, x, x > Accum4(0.0));
}

fn activation_gradient(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return select(params.setting * grad_output, grad_output, saved > Accum4(0.0));
}
