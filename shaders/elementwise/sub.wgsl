// output = a - b; grad_a = grad_output, grad_b = -grad_output is scale.wgsl
//
// kernel     elementwise.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.sub.html

fn sub_forward(a: Accum4, b: Accum4) -> Accum4 {
    return a - b;
}
