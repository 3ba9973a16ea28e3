// output = input - m - ln(s) along an axis, where m is the largest input there and s the sum of exp(input - m);
// grad_input = grad_output - exp(output) * sum of grad_output along the axis.
//
// bindings, in place, dispatch, workgroup   see shared/softmax.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.nn.LogSoftmax.html
#import "shared/softmax.wgsl"

fn normalized(difference: Accum, sum: Accum) -> Accum {
    return difference - log(sum);
}

fn weighted(grad_output: Accum, output: Accum) -> Accum {
    return grad_output;
}

fn gradient(grad_output: Accum, output: Accum, sum: Accum) -> Accum {
    return grad_output - exp(output) * sum;
}
