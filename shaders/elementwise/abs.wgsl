// output = |input|; grad_input = sign(input) * grad_output.
//
// kernel     elementwise.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.abs.html

fn abs_forward(x: Accum4) -> Accum4 {
    return abs(x);
}

fn abs_grad_input(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return sign(saved) * grad_output;
}
