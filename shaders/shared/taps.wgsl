// Where the kernel of a strided convolution meets the pixels of its input.

// The first kernel position that meets a pixel of the output from pixel `at` of the input (counted from the padded border);
// `kernel` if there is none. All others are multiples of `stride`, divided by what it has in common with `dilation`, away.
fn first_tap(at: u32, kernel: u32, stride: u32, dilation: u32) -> u32 {
    var tap = 0u;
    while tap < kernel && (i32(at) - i32(tap * dilation)) % i32(stride) != 0 {
        tap++;
    }
    return tap;
}
