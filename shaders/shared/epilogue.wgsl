// What a kernel does to its sums before it stores them: with RELU as relu.wgsl, bit for bit, otherwise nothing.

fn epilogue(x: Accum4) -> Accum4 {
#ifdef RELU
    // Not `max`, which may turn NaN into 0.
    return select(x, Accum4(0.0), x < Accum4(0.0));
#else
    return x;
#endif
}
