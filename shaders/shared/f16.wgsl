// IEEE floats of 16 bits, two in a word: the first in the lower half.

fn unpack_f16x2(word: u32) -> vec2<f32> {
    return unpack2x16float(word);
}

fn unpack_f16x4(words: vec2<u32>) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}

fn pack_f16x2(values: vec2<f32>) -> u32 {
    return pack2x16float(values);
}

fn pack_f16x4(values: vec4<f32>) -> vec2<u32> {
    return vec2<u32>(pack2x16float(values.xy), pack2x16float(values.zw));
}
