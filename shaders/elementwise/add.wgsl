// output = a + b
//
// kernel     elementwise.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.add.html

fn add_forward(a: Accum4, b: Accum4) -> Accum4 {
    return a + b;
}
