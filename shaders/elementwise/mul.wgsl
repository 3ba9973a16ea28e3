// output = a * b; grad_a = grad_output * b and grad_b = grad_output * a are launches of the same function
//
// kernel     elementwise.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.mul.html

fn mul_forward(a: Accum4, b: Accum4) -> Accum4 {
    return a * b;
}
