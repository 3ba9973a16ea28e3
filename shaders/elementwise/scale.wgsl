// output = factor * input
//
// kernel     elementwise.wgsl

fn scale_forward(x: Accum4, factor: f32) -> Accum4 {
    return factor * x;
}
