// output = max(input, 0); grad_input = grad_output where output > 0, else 0.
//
// kernel     elementwise.wgsl; `saved` is the output
// source     https://pytorch.org/docs/stable/generated/torch.nn.ReLU.html

// Not `max`, which may turn NaN into 0.
fn relu_forward(x: Accum4) -> Accum4 {
    return select(x, Accum4(0.0), x < Accum4(0.0));
}

fn relu_grad_input(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return select(Accum4(0.0), grad_output, saved > Accum4(0.0));
}
