// output = min(a, b), NaN where either is; grad_input = grad_output where the own input is the output, half of it where both are
// equal, else 0.
//
// kernel     elementwise.wgsl; the gradient of b takes the inputs in the other order
// source     https://pytorch.org/docs/stable/generated/torch.minimum.html
#import "shared/math.wgsl"

// (The built-in min may lose NaN.)
fn minimum_forward(a: Accum4, b: Accum4) -> Accum4 {
    return select(select(a, b, b < a), b, is_nan4(b));
}

fn minimum_grad_input(own: Accum4, other: Accum4, grad_output: Accum4) -> Accum4 {
    return select(select(grad_output, 0.5 * grad_output, own == other), Accum4(0.0), own > other);
}
