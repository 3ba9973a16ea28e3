// p = clamp(input, low, high); output = ln(p / (1 - p)); grad_input = grad_output / (p (1 - p)) where the input is p, else 0.
//
// kernel     elementwise.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.logit.html
#import "shared/math.wgsl"

fn logit_forward(x: Accum4, low: f32, high: f32) -> Accum4 {
    let p = hold4(x, low, high);
    return log(p) - log(Accum4(1.0) - p);
}

fn logit_grad_input(saved: Accum4, grad_output: Accum4, low: f32, high: f32) -> Accum4 {
    let is_outside = (saved < Accum4(low)) | (saved > Accum4(high));
    return select(grad_output / (saved * (Accum4(1.0) - saved)), Accum4(0.0), is_outside);
}
