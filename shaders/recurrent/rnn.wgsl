// What a simple recurrent cell does: hidden = tanh(sums over inputs and states + biases).
//
// entry points, bindings, dispatch: see shared/recurrent_simple.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.nn.RNN.html
#import "shared/recurrent_simple.wgsl"

fn squash(x: Accum4) -> Accum4 {
    return tanh4(x);
}

fn squash_back(y: Accum4, d: Accum4) -> Accum4 {
    return d * (1.0 - y * y);
}
