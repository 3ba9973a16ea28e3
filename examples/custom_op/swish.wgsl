// output = x * sigmoid(beta * x); with s = sigmoid(beta * x),
// grad_input = grad_output * s * (1 + beta * x * (1 - s)).
//
// Functions of vectors of four elements, named after the file. tightfit has the kernel around them, and fuses them with what
// comes before.
#import "shared/math.wgsl"

fn swish_forward(x: Accum4, beta: f32) -> Accum4 {
    return x * sigmoid4(beta * x);
}

fn swish_grad_input(saved: Accum4, grad_output: Accum4, beta: f32) -> Accum4 {
    let s = sigmoid4(beta * saved);
    return grad_output * s * (1.0 + beta * saved * (1.0 - s));
}
