// n / d for n < 2^31 and 0 < d < 2^30, exactly. Devices whose vectors have no integer division do the built-in one lane by
// lane, and others in as many steps as this.
fn divide(n: u32, d: u32) -> u32 {
    let inverse = 1.0 / f32(d);
    // Too large or too small by at most 1 + n / d * 2^-21, so that what is left fits an i32; the second estimate is off by at
    // most 1.
    var quotient = i32(f32(n) * inverse);
    var rest = i32(n) - quotient * i32(d);
    let more = i32(floor(f32(rest) * inverse));
    quotient += more;
    rest -= more * i32(d);
    return u32(select(select(quotient, quotient + 1, rest >= i32(d)), quotient - 1, rest < 0));
}

fn divide4(n: vec4<u32>, d: u32) -> vec4<u32> {
    return vec4<u32>(divide(n.x, d), divide(n.y, d), divide(n.z, d), divide(n.w, d));
}
