// One number per channel, for four elements at once. The importing file defines
//   fn channel_value(c: u32) -> Accum
// or, with CHANNEL_VECTORS, where a channel has one element in a sample and channels are a multiple of 4,
//   fn channel_vector(v: u32) -> Accum4
#import "shared/divide.wgsl"

// The numbers of elements 4 * i to 4 * i + 3 of a tensor of `channels` channels, of which each has `inner` elements that lie
// together.
fn channel_values(i: u32, channels: u32, inner: u32) -> Accum4 {
#ifdef CHANNEL_VECTORS
    let vectors = channels / 4u;
    return channel_vector(i - divide(i, vectors) * vectors);
#else
    if inner % 4u == 0u {
        let run = divide(4u * i, inner);
        return Accum4(channel_value(run - divide(run, channels) * channels));
    }
    let run = divide4(4u * i + vec4<u32>(0u, 1u, 2u, 3u), inner);
    let c = run - divide4(run, channels) * channels;
    return Accum4(channel_value(c.x), channel_value(c.y), channel_value(c.z), channel_value(c.w));
#endif
}
