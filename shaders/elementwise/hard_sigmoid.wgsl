// output = clamp(input + 3, 0, 6) / 6; grad_input = grad_output / 6 where |input| < 3, else 0.
//
// kernel     elementwise.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.nn.Hardsigmoid.html
#import "shared/math.wgsl"

fn hard_sigmoid_forward(x: Accum4) -> Accum4 {
    return hold4(x + 3.0, 0.0, 6.0) / 6.0;
}

fn hard_sigmoid_grad_input(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return select(Accum4(0.0), grad_output / 6.0, abs(saved) < Accum4(3.0));
}
