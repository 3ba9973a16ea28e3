// output = input * g with g = tanh(ln(1 + exp(input))); grad_input = grad_output * (g + input * sigmoid(input) * (1 - g^2)).
//
// kernel     elementwise.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.nn.Mish.html
#import "shared/math.wgsl"

// Of u = exp(-|x|), which never overflows: (1 + 2u) / (1 + 2u + 2u^2) where x is positive, (u^2 + 2u) / (u^2 + 2u + 2) where not.
fn mish_gate(x: Accum4) -> Accum4 {
    let u = exp(-abs(x));
    let positive = (1.0 + 2.0 * u) / (1.0 + 2.0 * u + 2.0 * u * u);
    let negative = (u * u + 2.0 * u) / (u * u + 2.0 * u + 2.0);
    return select(negative, positive, x > Accum4(0.0));
}

fn mish_forward(x: Accum4) -> Accum4 {
    return x * mish_gate(x);
}

fn mish_grad_input(saved: Accum4, grad_output: Accum4) -> Accum4 {
    let gate = mish_gate(saved);
    return grad_output * (gate + saved * sigmoid4(saved) * (1.0 - gate * gate));
}
