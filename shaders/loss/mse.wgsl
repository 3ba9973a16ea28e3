// loss = mean((input - target)^2); grad_input = 2 / n * grad_loss * (input - target), for the target with the sign turned.
//
// bindings, in place, dispatch, workgroup   see shared/elementwise_loss.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.nn.MSELoss.html
#import "shared/elementwise_loss.wgsl"

fn loss(x: Accum4, t: Accum4, weight: Accum4) -> Accum4 {
    return (x - t) * (x - t);
}

fn loss_gradient(x: Accum4, t: Accum4, weight: Accum4) -> Accum4 {
    return 2.0 * (x - t);
}
