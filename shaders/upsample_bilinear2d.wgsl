// output[n, c, y, x] = input at (source(y), source(x)), between four neighbours in proportion to their nearness
// grad_input[n, c, h, w] = sum of grad_output times the weight that (h, w) has in it, in reading order
//
// The source is a fraction with the denominator `unit`: min(max(y * step + start, 0), (extent - 1) * unit) / unit. Numerators
// are whole numbers, so that it is exact: from a float near a whole number, one could not tell on which side of it it is.
//
// bindings   forward: input [N, C, H, W], output [N, C, OH, OW]; grad_input: grad_output, grad_input
// in place   no
// dispatch   one invocation per element written, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html (bilinear)
#import "shared/index.wgsl"

struct Params {
    // Elements that the kernel writes.
    elements: u32,
    height: i32,
    step_h: i32,
    start_h: i32,
    unit_h: i32,
    width: i32,
    step_w: i32,
    start_w: i32,
    unit_w: i32,
    output_height: i32,
    output_width: i32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage>;

@group(0) @binding(0) var<storage, read> grad_output: array<Storage>;
@group(0) @binding(1) var<storage, read_write> grad_input_: array<Storage>;

// An axis of the input, and how positions of the output lie in it.
struct Axis {
    extent: i32,
    step: i32,
    start: i32,
    unit: i32,
}

fn rows() -> Axis {
    return Axis(params.height, params.step_h, params.start_h, params.unit_h);
}

fn columns() -> Axis {
    return Axis(params.width, params.step_w, params.start_w, params.unit_w);
}

fn source(axis: Axis, i: i32) -> i32 {
    return clamp(i * axis.step + axis.start, 0, (axis.extent - 1) * axis.unit);
}

// The weight of input position `at` at a source.
fn weight(axis: Axis, source: i32, at: i32) -> Accum {
    let distance = min(abs(source - at * axis.unit), axis.unit);
    return Accum(axis.unit - distance) / Accum(axis.unit);
}

// First and one past the last.
struct Range {
    begin: i32,
    end: i32,
}

// The positions of the output in which input position `at` has a weight.
fn reached(axis: Axis, at: i32, outputs: i32) -> Range {
    var range = Range(0, outputs);
    let low = (at - 1) * axis.unit - axis.start;
    let high = (at + 1) * axis.unit - axis.start;
    // Sources before the first position and past the last are moved there.
    if at > 0 && low >= 0 {
        range.begin = min(low / axis.step + 1, outputs);
    }
    if at < axis.extent - 1 {
        range.end = clamp((high + axis.step - 1) / axis.step, 0, outputs);
    }
    return range;
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.elements {
        return;
    }
    let row = i / u32(params.output_width);
    let plane = row / u32(params.output_height);
    let y = source(rows(), i32(row - plane * u32(params.output_height)));
    let x = source(columns(), i32(i - row * u32(params.output_width)));
    let top = y / params.unit_h;
    let left = x / params.unit_w;
    let below = weight(rows(), y, top + 1);
    let right = weight(columns(), x, left + 1);
    let upper = (plane * u32(params.height) + u32(top)) * u32(params.width);
    let lower = upper + select(0u, u32(params.width), top + 1 < params.height);
    let first = u32(left);
    let second = first + select(0u, 1u, left + 1 < params.width);
    let above = Accum(input[upper + first]) * (1.0 - right) + Accum(input[upper + second]) * right;
    let beneath = Accum(input[lower + first]) * (1.0 - right) + Accum(input[lower + second]) * right;
    output[i] = Storage(above * (1.0 - below) + beneath * below);
}

@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.elements {
        return;
    }
    let row = i / u32(params.width);
    let plane = row / u32(params.height);
    let h = i32(row - plane * u32(params.height));
    let w = i32(i - row * u32(params.width));
    let ys = reached(rows(), h, params.output_height);
    let xs = reached(columns(), w, params.output_width);
    var sum = Accum(0.0);
    for (var y = ys.begin; y < ys.end; y++) {
        let at = (plane * u32(params.output_height) + u32(y)) * u32(params.output_width);
        var of_row = Accum(0.0);
        for (var x = xs.begin; x < xs.end; x++) {
            of_row += weight(columns(), source(columns(), x), w) * Accum(grad_output[at + u32(x)]);
        }
        sum += weight(rows(), source(rows(), y), h) * of_row;
    }
    grad_input_[i] = Storage(sum);
}
