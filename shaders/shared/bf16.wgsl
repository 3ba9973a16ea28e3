// The upper halves of f32, two in a word: the first in the lower half. They are rounded to the nearest, of two as near to the even
// one; what is not a number stays so.

fn unpack_bf16x2(word: u32) -> vec2<f32> {
    return bitcast<vec2<f32>>(vec2<u32>(word << 16u, word & 0xffff0000u));
}

fn unpack_bf16x4(words: vec2<u32>) -> vec4<f32> {
    return vec4<f32>(unpack_bf16x2(words.x), unpack_bf16x2(words.y));
}

fn pack_bf16x2(values: vec2<f32>) -> u32 {
    let bits = bitcast<vec2<u32>>(values);
    let rounded = bits + vec2<u32>(0x7fffu) + ((bits >> vec2<u32>(16u)) & vec2<u32>(1u));
    let no_number = (bits & vec2<u32>(0x7fffffffu)) > vec2<u32>(0x7f800000u);
    let upper = select(rounded, bits | vec2<u32>(0x400000u), no_number);
    return (upper.x >> 16u) | (upper.y & 0xffff0000u);
}

fn pack_bf16x4(values: vec4<f32>) -> vec2<u32> {
    return vec2<u32>(pack_bf16x2(values.xy), pack_bf16x2(values.zw));
}
