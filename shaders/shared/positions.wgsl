// Inputs [N, C, ...inner] as positions (samples, pixels, time steps) with a number for every class. The importing file's
// `params` have positions, classes, inner, splits and steps: split number s adds up positions s, s + splits, ..., of which
// there are at most `steps`. Every split has LANES invocations.

// Number of the first class's element; the others follow at a distance of params.inner.
fn first_element(position: u32) -> u32 {
    return position / params.inner * params.classes * params.inner + position % params.inner;
}
