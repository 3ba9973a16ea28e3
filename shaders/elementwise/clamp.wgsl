// output = clamp(input, low, high); grad_input = grad_output where low < output < high, else 0.
//
// kernel     elementwise.wgsl; `saved` is the output
// source     https://pytorch.org/docs/stable/generated/torch.clamp.html, torch.nn.Hardtanh.html
#import "shared/math.wgsl"

fn clamp_forward(x: Accum4, low: f32, high: f32) -> Accum4 {
    return hold4(x, low, high);
}

fn clamp_grad_input(saved: Accum4, grad_output: Accum4, low: f32, high: f32) -> Accum4 {
    let is_inside = (saved > Accum4(low)) & (saved < Accum4(high));
    return select(Accum4(0.0), grad_output, is_inside);
}
