// output = input * min(max(input + 3, 0), 6) / 6;
// grad_input = grad_output * slope, where slope = 0 up to -3, 1 from 3 on, and input / 3 + 1/2 between.
//
// kernel     elementwise.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.nn.Hardswish.html, https://arxiv.org/abs/1905.02244

fn hard_swish_forward(x: Accum4) -> Accum4 {
    return x * clamp(x + 3.0, Accum4(0.0), Accum4(6.0)) / 6.0;
}

fn hard_swish_grad_input(saved: Accum4, grad_output: Accum4) -> Accum4 {
    let between = saved / 3.0 + 0.5;
    let slope = select(select(between, Accum4(1.0), saved >= Accum4(3.0)), Accum4(0.0), saved <= Accum4(-3.0));
    return grad_output * slope;
}
