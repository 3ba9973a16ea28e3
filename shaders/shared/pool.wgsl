// The kernels of pooling over windows of [N, C, H, W]. The importing file defines its bindings and
//   struct Pooled                                                       what is known of four windows so far
//   fn pool_begin(windows: Quad) -> Pooled
//   fn pool_add(pooled: Pooled, value: Accum4, at: vec4<u32>) -> Pooled   takes in an element of each; -inf or 0 is outside it
//   fn pool_row(pooled: Pooled) -> Pooled                               after each row of the windows
//   fn pool_outside() -> Accum                                          that value
//   fn element(i: u32) -> Accum, elements4(v: u32) -> Accum4            of the input, one or a vector
//   fn grad(o: u32) -> Accum, grad4(v: u32) -> Accum4                   of the gradient of the output, and
//   fn saved(o: u32) -> u32, saved4(v: u32) -> vec4<u32>                of what forward kept of the windows
//   fn share(grad: Accum4, saved: vec4<u32>, at: vec4<u32>) -> Accum4   a window's part of the gradients of the elements `at`
// The name `at` of an element is its position in the plane (row * W + column), or with POSITION_BITS in the window (row * KW +
// column).
//
// PAIRS is defined where windows of two columns lie side by side without padding on rows of 8 n elements; ALIGNED where rows
// of the input are of 4 n.
#import "shared/divide.wgsl"

struct Params {
    // Elements of the output (forward) or of the gradient of the input.
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
    // First and one past the last of the padded elements that means are of.
    counted_begin_height: u32,
    counted_begin_width: u32,
    counted_end_height: u32,
    counted_end_width: u32,
}
var<immediate> params: Params;

const LANE = vec4<u32>(0u, 1u, 2u, 3u);

// First and one past the last.
struct Range {
    begin: u32,
    end: u32,
}

// Four windows that follow each other: where their planes begin in the input, and their rows and columns in the output.
struct Quad {
    plane: vec4<u32>,
    y: vec4<u32>,
    x: vec4<u32>,
}

// Of the output's vector v; past the end, the last window again.
fn quad(v: u32) -> Quad {
    let o = min(4u * v + LANE, vec4<u32>(params.elements - 1u));
    let row = divide4(o, params.output_width);
    let plane = divide4(row, params.output_height);
    let y = row - plane * params.output_height;
    return Quad(plane * (params.height * params.width), y, o - row * params.output_width);
}

// The name of row kh, column kw of the padded windows.
fn position(windows: Quad, kh: vec4<u32>, kw: vec4<u32>) -> vec4<u32> {
#ifdef POSITION_BITS
    return kh * params.kernel_width + kw;
#else
    let h = windows.y * params.stride_height + kh - params.padding_height;
    return h * params.width + windows.x * params.stride_width + kw - params.padding_width;
#endif
}

// The first element of each window that is not padding.
fn first_position(windows: Quad) -> vec4<u32> {
    let row = windows.y * params.stride_height;
    let column = windows.x * params.stride_width;
    let kh = max(row, vec4<u32>(params.padding_height)) - row;
    return position(windows, kh, max(column, vec4<u32>(params.padding_width)) - column);
}

fn pool(v: u32) -> Pooled {
    let windows = quad(v);
    var pooled = pool_begin(windows);
    let row = windows.y * params.stride_height;
    let column = windows.x * params.stride_width;
    for (var kh = 0u; kh < params.kernel_height; kh++) {
        // Rows and columns before the first wrap around and are outside too.
        let h = row + kh - params.padding_height;
#ifdef PAIRS
        // All four are in one row.
        let begin = (windows.plane.x + min(h.x, params.height - 1u) * params.width + column.x) / 4u;
        let inside = vec4<bool>(h.x < params.height);
        let a = select(Accum4(pool_outside()), elements4(begin), inside);
        let b = select(Accum4(pool_outside()), elements4(begin + 1u), inside);
        let at = position(windows, vec4<u32>(kh), vec4<u32>(0u));
        pooled = pool_add(pooled, Accum4(a.x, a.z, b.x, b.z), at);
        pooled = pool_add(pooled, Accum4(a.y, a.w, b.y, b.w), at + 1u);
#else
        for (var kw = 0u; kw < params.kernel_width; kw++) {
            let w = column + kw - params.padding_width;
            let inside = (h < vec4<u32>(params.height)) & (w < vec4<u32>(params.width));
            let i = windows.plane + select(vec4<u32>(0u), h * params.width + w, inside);
            let values = Accum4(element(i.x), element(i.y), element(i.z), element(i.w));
            let at = position(windows, vec4<u32>(kh), vec4<u32>(kw));
            pooled = pool_add(pooled, select(Accum4(pool_outside()), values, inside), at);
        }
#endif
        pooled = pool_row(pooled);
    }
    return pooled;
}

// The windows that cover input row (column) `i`.
fn windows_over(i: u32, stride: u32, padding: u32, kernel: u32, outputs: u32) -> Range {
    let at = i + padding;
    var begin = 0u;
    if at >= kernel {
        begin = divide(at - kernel, stride) + 1u;
    }
    return Range(begin, min(divide(at, stride) + 1u, outputs));
}

// The gradients of neighbours in a row of the input, the first of which is element `begin`: four, with PAIRS eight.
struct GradInput {
    first: Accum4,
#ifdef PAIRS
    second: Accum4,
#endif
    begin: u32,
    // How many are in the row.
    count: u32,
}

#ifdef PAIRS
const RUN: u32 = 8u;
#else
const RUN: u32 = 4u;
#endif

fn runs() -> u32 {
    return (params.width + RUN - 1u) / RUN;
}

// Of run number i; there are params.elements / params.width * runs().
fn grad_input_run(i: u32) -> GradInput {
    let row = divide(i, runs());
    let w = (i - row * runs()) * RUN;
    let plane = divide(row, params.height);
    let h = row - plane * params.height;
    let outputs = plane * params.output_height * params.output_width;
    let rows = windows_over(h, params.stride_height, params.padding_height, params.kernel_height, params.output_height);
    var sum = GradInput();
    sum.begin = row * params.width + w;
    sum.count = min(RUN, params.width - w);
#ifdef PAIRS
    for (var y = rows.begin; y < rows.end; y++) {
        let v = (outputs + y * params.output_width + w / 2u) / 4u;
        let g = grad4(v);
        let s = saved4(v);
#ifdef POSITION_BITS
        let at = (h + params.padding_height - y * params.stride_height) * 2u + vec4<u32>(0u, 1u, 0u, 1u);
        let next = at;
#else
        let at = h * params.width + w + LANE;
        let next = at + 4u;
#endif
        sum.first += share(g.xxyy, s.xxyy, at);
        sum.second += share(g.zzww, s.zzww, next);
    }
#else
    let p = params;
    let columns = Range(
        windows_over(w, p.stride_width, p.padding_width, p.kernel_width, p.output_width).begin,
        windows_over(w + sum.count - 1u, p.stride_width, p.padding_width, p.kernel_width, p.output_width).end,
    );
    for (var y = rows.begin; y < rows.end; y++) {
        var added = Accum4(0.0);
        for (var x = columns.begin; x < columns.end; x++) {
            let o = outputs + y * params.output_width + x;
            // Columns before the window's first wrap around.
            let kw = w + params.padding_width - x * params.stride_width + LANE;
#ifdef POSITION_BITS
            let at = (h + params.padding_height - y * params.stride_height) * params.kernel_width + kw;
#else
            let at = h * params.width + w + LANE;
#endif
            let part = share(Accum4(grad(o)), vec4<u32>(saved(o)), at);
            added += select(Accum4(0.0), part, kw < vec4<u32>(params.kernel_width));
        }
        sum.first += added;
    }
#endif
    return sum;
}
