// Windows of a pooling over [N, C, H, W]. A row of windows is counted from the padded border; `planes` are samples and
// channels together.

struct Params {
    // Elements that the kernel writes.
    elements: u32,
    height: u32,
    width: u32,
    output_height: u32,
    output_width: u32,
    kernel_height: u32,
    kernel_width: u32,
    stride_height: u32,
    stride_width: u32,
    padding_height: u32,
    padding_width: u32,
}
var<immediate> params: Params;

// First and one past the last.
struct Range {
    begin: u32,
    end: u32,
}

// The input rows (columns) that window `o` covers.
fn window(o: u32, stride: u32, padding: u32, kernel: u32, extent: u32) -> Range {
    let begin = o * stride;
    return Range(max(begin, padding) - padding, min(begin + kernel, extent + padding) - padding);
}

// The windows that cover input row (column) `i`.
fn windows_over(i: u32, stride: u32, padding: u32, kernel: u32, outputs: u32) -> Range {
    let at = i + padding;
    var begin = 0u;
    if at >= kernel {
        begin = (at - kernel) / stride + 1u;
    }
    return Range(begin, min(at / stride + 1u, outputs));
}
