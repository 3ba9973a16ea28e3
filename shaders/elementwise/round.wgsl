// output = the nearest value of 16 bits, of two as near the even one: what comes back from memory
//
// kernel     elementwise.wgsl
#import "shared/bf16.wgsl"
#import "shared/f16.wgsl"

fn round_f16(x: Accum4) -> Accum4 {
    return unpack_f16x4(pack_f16x4(x));
}

fn round_bf16(x: Accum4) -> Accum4 {
    return unpack_bf16x4(pack_bf16x4(x));
}
