// output = sqrt(input); grad_input = grad_output / (2 * output).
//
// kernel     elementwise.wgsl; `saved` is the output
// source     https://pytorch.org/docs/stable/generated/torch.sqrt.html

fn sqrt_forward(x: Accum4) -> Accum4 {
    return sqrt(x);
}

fn sqrt_grad_input(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return grad_output / (saved + saved);
}
