// output = input + value
//
// kernel     elementwise.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.add.html

fn add_scalar_forward(x: Accum4, value: f32) -> Accum4 {
    return x + value;
}
