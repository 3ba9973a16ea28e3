// output = the smallest element of input over some of its axes; grad_input = grad_output / ties where the element is the smallest, else 0.
//
// bindings, in place, dispatch, workgroup   see shared/extremum.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.amin.html
#import "shared/extremum.wgsl"

fn is_beyond(x: Accum, extremum: Accum) -> bool {
    return x < extremum;
}
