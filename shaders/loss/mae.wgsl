// loss = mean(|input - target|); grad_input = grad_loss / n * sign(input - target), for the target with the sign turned.
//
// bindings, in place, dispatch, workgroup   see shared/elementwise_loss.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.nn.L1Loss.html
#import "shared/elementwise_loss.wgsl"

fn loss(x: Accum4, t: Accum4, weight: Accum4) -> Accum4 {
    return abs(x - t);
}

fn loss_gradient(x: Accum4, t: Accum4, weight: Accum4) -> Accum4 {
    return sign(x - t);
}
