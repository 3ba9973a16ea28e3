// output = input where input > 0, else slope * input; grad_input = grad_output, or slope * grad_output likewise.
//
// kernel     elementwise.wgsl; `saved` is the output, or with a negative slope the input
// source     https://pytorch.org/docs/stable/generated/torch.nn.LeakyReLU.html

fn leaky_relu_forward(x: Accum4, slope: f32) -> Accum4 {
    return select(slope * x, x, x > Accum4(0.0));
}

fn leaky_relu_grad_input(saved: Accum4, grad_output: Accum4, slope: f32) -> Accum4 {
    return select(slope * grad_output, grad_output, saved > Accum4(0.0));
}
