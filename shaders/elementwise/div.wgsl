// output = a / b; grad_a = grad_output / b is a launch of the same function, grad_b = -grad_output * a / b^2.
//
// kernel     elementwise.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.div.html

fn div_forward(a: Accum4, b: Accum4) -> Accum4 {
    return a / b;
}

// In this order, b^2 neither overflows nor vanishes where the quotient does not.
fn div_grad_b(a: Accum4, b: Accum4, grad_output: Accum4) -> Accum4 {
    return -grad_output * (a / b / b);
}
