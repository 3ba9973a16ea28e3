// output = exp(input); grad_input = grad_output * output.
//
// kernel     elementwise.wgsl; `saved` is the output
// source     https://pytorch.org/docs/stable/generated/torch.exp.html

fn exp_forward(x: Accum4) -> Accum4 {
    return exp(x);
}

fn exp_grad_input(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return grad_output * saved;
}
