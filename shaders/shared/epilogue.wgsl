// What kernels of sums call before they store: `epilogue` applies the activation that is built in (RELU, which the op chooses and
// has a gradient for), then the fused functions (FUSED, which the graph chooses: `fused` of fused.wgsl). It is called
// with the value at the vector i, or with BY_ELEMENT, all four alike, at the element i.

fn epilogue(x: Accum4, i: u32) -> Accum4 {
#ifdef RELU
    // As relu.wgsl, bit for bit. Not `max`, which may turn NaN into 0.
    let y = select(x, Accum4(0.0), x < Accum4(0.0));
#else
    let y = x;
#endif
#ifdef FUSED
    return fused(y, i);
#else
    return y;
#endif
}
