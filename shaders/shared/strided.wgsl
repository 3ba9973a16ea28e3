// Addresses of a tensor read in another order: element i of a contiguous tensor of up to six dimensions is found in a
// buffer by one stride per dimension. Dimension 0 is the innermost.

struct Strided {
    // Elements of the contiguous tensor.
    elements: u32,
    // Dimensions, 1 to 6.
    rank: u32,
    // Factor of every element.
    scale: f32,
    extent_0: u32,
    extent_1: u32,
    extent_2: u32,
    extent_3: u32,
    extent_4: u32,
    stride_0: u32,
    stride_1: u32,
    stride_2: u32,
    stride_3: u32,
    stride_4: u32,
    stride_5: u32,
}

fn strided_offset(i: u32, s: Strided) -> u32 {
    if s.rank == 1u {
        return i * s.stride_0;
    }
    var offset = (i % s.extent_0) * s.stride_0;
    var rest = i / s.extent_0;
    if s.rank == 2u {
        return offset + rest * s.stride_1;
    }
    offset += (rest % s.extent_1) * s.stride_1;
    rest = rest / s.extent_1;
    if s.rank == 3u {
        return offset + rest * s.stride_2;
    }
    offset += (rest % s.extent_2) * s.stride_2;
    rest = rest / s.extent_2;
    offset += (rest % s.extent_3) * s.stride_3;
    rest = rest / s.extent_3;
    offset += (rest % s.extent_4) * s.stride_4;
    return offset + (rest / s.extent_4) * s.stride_5;
}
