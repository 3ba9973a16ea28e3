// output = 1 / (1 + exp(-input)); grad_input = grad_output * output * (1 - output).
//
// kernel     elementwise.wgsl; `saved` is the output
// source     https://pytorch.org/docs/stable/generated/torch.nn.Sigmoid.html
#import "shared/math.wgsl"

fn sigmoid_forward(x: Accum4) -> Accum4 {
    return sigmoid4(x);
}

fn sigmoid_grad_input(saved: Accum4, grad_output: Accum4) -> Accum4 {
    return grad_output * saved * (1.0 - saved);
}
