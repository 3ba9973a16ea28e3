// output = exp(input - m) / s along an axis, where m is the largest input there and s the sum of exp(input - m);
// grad_input = output * (grad_output - sum of grad_output * output along the axis).
//
// bindings, in place, dispatch, workgroup   see shared/softmax.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.nn.Softmax.html
#import "shared/softmax.wgsl"

fn normalized(difference: Accum, sum: Accum) -> Accum {
    return exp(difference) / sum;
}

fn weighted(grad_output: Accum, output: Accum) -> Accum {
    return grad_output * output;
}

fn gradient(grad_output: Accum, output: Accum, sum: Accum) -> Accum {
    return output * (grad_output - sum);
}
