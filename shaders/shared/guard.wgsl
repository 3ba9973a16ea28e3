// Updates are skipped while this is false: neither NaN nor infinite, told from the bits because compilers may assume
// that there are no such numbers.
fn is_finite_bits(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}
