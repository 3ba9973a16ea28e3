// output = clamp(input, min, max); grad_input = grad_output where min < output < max, else 0.
//
// bindings, in place, dispatch, workgroup   see shared/activation.wgsl; `saved` is the output, the
//            settings are min and max
// source     https://pytorch.org/docs/stable/generated/torch.clamp.html, torch.nn.Hardtanh.html
#import "shared/activation.wgsl"
#import "shared/math.wgsl"

fn activation(x: Accum4) -> Accum4 {
    return hold4(x, params.setting, params.second_setting);
}

fn activation_gradient(saved: Accum4, grad_output: Accum4) -> Accum4 {
    let is_inside = (saved > Accum4(params.setting)) & (saved < Accum4(params.second_setting));
    return select(Accum4(0.0), grad_output, is_inside);
}
