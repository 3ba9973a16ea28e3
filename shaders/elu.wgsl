// output = input where input > 0, else alpha * (exp(input) - 1);
// grad_input = grad_output, or likewise grad_output * alpha * exp(input), which is grad_output * (output + alpha).
//
// bindings, in place, dispatch, workgroup   see shared/activation.wgsl; `saved` is the output
//            (SAVED_OUTPUT), or with a negative alpha the input; `setting` is alpha
// source     https://pytorch.org/docs/stable/generated/torch.nn.ELU.html
#import "shared/activation.wgsl"
#import "shared/math.wgsl"

fn activation(x: Accum4) -> Accum4 {
    return select(params.setting * exp_m1_4(x), x, x > Accum4(0.0));
}

fn activation_gradient(saved: Accum4, grad_output: Accum4) -> Accum4 {
#ifdef SAVED_OUTPUT
    let slope = saved + params.setting;
#else
    // The argument is not positive where the result counts.
    let slope = params.setting * exp(min(saved, Accum4(0.0)));
#endif
    return select(grad_output * slope, grad_output, saved > Accum4(0.0));
}
