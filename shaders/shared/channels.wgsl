// One number per channel, for four elements at once. The importing file defines
//   fn channel_value(c: u32) -> Accum

// The numbers of elements 4 * i to 4 * i + 3 of a tensor of `channels` channels, of which each has `inner` elements that lie
// together.
fn channel_values(i: u32, channels: u32, inner: u32) -> Accum4 {
    if inner % 4u == 0u {
        return Accum4(channel_value((4u * i / inner) % channels));
    }
    if inner == 1u && channels % 4u == 0u {
        let c = (4u * i) % channels;
        return Accum4(channel_value(c), channel_value(c + 1u), channel_value(c + 2u), channel_value(c + 3u));
    }
    return Accum4(
        channel_value((4u * i / inner) % channels),
        channel_value(((4u * i + 1u) / inner) % channels),
        channel_value(((4u * i + 2u) / inner) % channels),
        channel_value(((4u * i + 3u) / inner) % channels),
    );
}
