// Philox 4x32-10: four random numbers, each uniform over all of u32, as a function of a counter and a key. Ten rounds of two
// products whose halves change places; the key moves on between rounds.
//
// source     J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011

// The upper 32 bits of a product, by halves of 16 bits: no partial sum overflows.
fn high_product(a: u32, b: u32) -> u32 {
    let a_low = a & 0xffffu;
    let a_high = a >> 16u;
    let b_low = b & 0xffffu;
    let b_high = b >> 16u;
    let middle = a_high * b_low + ((a_low * b_low) >> 16u);
    let other = a_low * b_high + (middle & 0xffffu);
    return a_high * b_high + (middle >> 16u) + (other >> 16u);
}

fn philox4x32_10(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    var c = counter;
    var k = key;
    #for round in 0..10
    c = vec4<u32>(
        high_product(0xcd9e8d57u, c.z) ^ c.y ^ k.x,
        0xcd9e8d57u * c.z,
        high_product(0xd2511f53u, c.x) ^ c.w ^ k.y,
        0xd2511f53u * c.x,
    );
    k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    #end
    return c;
}
