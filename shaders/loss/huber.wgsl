// loss = mean(h(input - target)), h(d) = d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2); delta is the setting.
// grad_input = grad_loss / n * clamp(input - target, -delta, delta), for the target with the sign turned.
//
// bindings, in place, dispatch, workgroup   see shared/elementwise_loss.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.nn.HuberLoss.html
#import "shared/elementwise_loss.wgsl"

fn loss(x: Accum4, t: Accum4, weight: Accum4) -> Accum4 {
    let distance = abs(x - t);
    let straight = params.setting * (distance - 0.5 * params.setting);
    return select(straight, 0.5 * distance * distance, distance <= Accum4(params.setting));
}

fn loss_gradient(x: Accum4, t: Accum4, weight: Accum4) -> Accum4 {
    return clamp(x - t, Accum4(-params.setting), Accum4(params.setting));
}
