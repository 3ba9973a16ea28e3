// What a kernel makes of its sums before it stores them at the vector i, or with BY_ELEMENT, all four alike, at the element i:
// with RELU as relu.wgsl, bit for bit, then with FUSED what fused.wgsl says.

fn epilogue(x: Accum4, i: u32) -> Accum4 {
#ifdef RELU
    // Not `max`, which may turn NaN into 0.
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
