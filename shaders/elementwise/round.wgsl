// output = the nearest value of 16 bits, of two as near the even one
//
// kernel     elementwise.wgsl

fn round_f16(x: Accum4) -> Accum4 {
    return Accum4(unpack2x16float(pack2x16float(x.xy)), unpack2x16float(pack2x16float(x.zw)));
}

// The upper half of an f32. What is not a number stays so.
fn round_bf16(x: Accum4) -> Accum4 {
    let bits = bitcast<vec4<u32>>(x);
    let rounded = bits + vec4<u32>(0x7fffu) + ((bits >> vec4<u32>(16u)) & vec4<u32>(1u));
    let no_number = (bits & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
    let upper = select(rounded, bits | vec4<u32>(0x400000u), no_number);
    return bitcast<Accum4>(upper & vec4<u32>(0xffff0000u));
}
