// loss = mean((1 - t) x + f (ln(1 + exp(-|x|)) + max(-x, 0))), f = 1 + (weight - 1) t
// grad_input = grad_loss / n * (f sigmoid(x) - weight t)
//
// bindings, in place, dispatch, workgroup   see shared/elementwise_loss.wgsl (weights: pos_weight)
// source     https://pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html
#import "shared/elementwise_loss.wgsl"
#import "shared/math.wgsl"

// ln(1 + e) for e in 0..1: the log of a number so near to 1 loses what the series keeps.
fn ln_1p(e: Accum4) -> Accum4 {
    return select(log(1.0 + e), e * (1.0 - e * (0.5 - e * (1.0 / 3.0))), e < Accum4(0.01));
}

fn factor(t: Accum4, weight: Accum4) -> Accum4 {
    return 1.0 + (weight - 1.0) * t;
}

fn loss(x: Accum4, t: Accum4, weight: Accum4) -> Accum4 {
    return (1.0 - t) * x + factor(t, weight) * (ln_1p(exp(-abs(x))) + max(-x, Accum4(0.0)));
}

fn loss_gradient(x: Accum4, t: Accum4, weight: Accum4) -> Accum4 {
    return factor(t, weight) * sigmoid4(x) - weight * t;
}
