// output = ln(input); grad_input = grad_output / input.
//
// kernel     elementwise.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.log.html
#import "shared/nan.wgsl"

fn log_forward(x: Accum4) -> Accum4 {
    // Not every device knows the logarithms of 0 and of negative numbers.
    let y = select(log(x), Accum4(-infinity(runtime_number())), x == Accum4(0.0));
    return select(y, Accum4(not_a_number(runtime_number())), x < Accum4(0.0));
}

fn log_grad_input(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return grad_output / saved;
}
