// Four elements as buffers hold them, and their values. With WIDE they are read and written as two words of 64 bits: a driver
// that loads word by word, lane by lane, has half as much to do.
#ifdef WIDE
alias Packed4 = vec2<u64>;

fn unpack4(packed: Packed4) -> Accum4 {
    let low = vec2<u32>(packed);
    let high = vec2<u32>(packed >> vec2<u32>(32u));
    return bitcast<Accum4>(vec4<u32>(low.x, high.x, low.y, high.y));
}

fn pack4(values: Accum4) -> Packed4 {
    let bits = bitcast<vec4<u32>>(values);
    return vec2<u64>(bits.xz) | (vec2<u64>(bits.yw) << vec2<u32>(32u));
}
#else
alias Packed4 = Storage4;

fn unpack4(packed: Packed4) -> Accum4 {
    return Accum4(packed);
}

fn pack4(values: Accum4) -> Packed4 {
    return Storage4(values);
}
#endif
