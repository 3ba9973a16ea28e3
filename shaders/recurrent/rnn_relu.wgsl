// What a simple recurrent cell with a ReLU does: hidden = max(sums over inputs and states + biases, 0); NaN stays NaN.
//
// entry points, bindings, dispatch: see shared/recurrent_simple.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.nn.RNN.html (nonlinearity="relu")
#import "shared/recurrent_simple.wgsl"

fn squash(x: Accum4) -> Accum4 {
    return select(x, Accum4(0.0), x < Accum4(0.0));
}

fn squash_back(y: Accum4, d: Accum4) -> Accum4 {
    return select(Accum4(0.0), d, y > Accum4(0.0));
}
