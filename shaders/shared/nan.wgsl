// NaN and infinity, made from bits that no compiler can fold away: `any` is a number that is known at run time only.
fn not_a_number(any: u32) -> f32 {
    return bitcast<f32>(0x7fc00000u | (any & 1u));
}

fn infinity(any: u32) -> f32 {
    return bitcast<f32>(0x7f800000u | min(any, 0u));
}
