// output = max(input, 0); grad_input = grad_output where output > 0, else 0.
//
// bindings, in place, dispatch, workgroup   see shared/activation.wgsl; `saved` is the output
// source     https://pytorch.org/docs/stable/generated/torch.nn.ReLU.html
#import "shared/activation.wgsl"
#import "shared/mask.wgsl"

// Not `max`, which may turn NaN into 0.
fn activation(x: Accum4) -> Accum4 {
    return select(x, Accum4(0.0), x < Accum4(0.0));
}

fn activation_gradient(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return select(Accum4(0.0), grad_output, saved > Accum4(0.0));
}
