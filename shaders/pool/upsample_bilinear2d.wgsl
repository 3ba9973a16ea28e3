// output[n, c, y, x] = the input around the place that (y, x) has in it, interpolated between the two nearest rows and the
// two nearest columns.
// grad_input[n, c, h, w] = sum of weight * grad_output over the outputs that read (h, w), in reading order.
//
// The place of y is max((y + 1/2) * H / OH - 1/2, 0), with ALIGN_CORNERS y * (H - 1) / (OH - 1). It is calculated as a
// fraction of whole numbers.
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
    height: u32,
    width: u32,
    output_height: u32,
    output_width: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage>;

@group(0) @binding(0) var<storage, read> grad_output: array<Storage>;
@group(0) @binding(1) var<storage, read_write> grad_input_: array<Storage>;

// What a position of the output reads along one axis: two positions of the input, and the weight of the second.
struct Neighbours {
    low: u32,
    high: u32,
    fraction: Accum,
}

fn neighbours(y: u32, inputs: u32, outputs: u32) -> Neighbours {
#ifdef ALIGN_CORNERS
    let place = y * (inputs - 1u);
    let unit = max(outputs - 1u, 1u);
#else
    let place = max((2u * y + 1u) * inputs, outputs) - outputs;
    let unit = 2u * outputs;
#endif
    let whole = place / unit;
    return Neighbours(whole, min(whole + 1u, inputs - 1u), Accum(place - whole * unit) / Accum(unit));
}

// The weight with which a position of the input is read.
fn weight_of(h: u32, n: Neighbours) -> Accum {
    return select(Accum(), 1.0 - n.fraction, n.low == h) + select(Accum(), n.fraction, n.high == h);
}

// First and one past the last.
struct Range {
    begin: u32,
    end: u32,
}

// The positions of the output whose place lies less than 1 from position h of the input.
fn readers(h: u32, inputs: u32, outputs: u32) -> Range {
#ifdef ALIGN_CORNERS
    if inputs == 1u || outputs == 1u {
        return Range(0u, outputs);
    }
    let begin = select((max(h, 1u) - 1u) * (outputs - 1u) / (inputs - 1u) + 1u, 0u, h == 0u);
    let end = ((h + 1u) * (outputs - 1u) + inputs - 2u) / (inputs - 1u);
#else
    let begin = select(((2u * max(h, 1u) - 1u) * outputs / inputs + 1u) / 2u, 0u, h == 0u);
    let end = (((2u * h + 3u) * outputs - 1u) / inputs + 1u) / 2u;
#endif
    return Range(begin, min(end, outputs));
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
    let row = i / params.output_width;
    let plane = row / params.output_height;
    let rows = neighbours(row - plane * params.output_height, params.height, params.output_height);
    let columns = neighbours(i - row * params.output_width, params.width, params.output_width);
    let low = (plane * params.height + rows.low) * params.width;
    let high = (plane * params.height + rows.high) * params.width;
    let left = 1.0 - columns.fraction;
    let above = left * Accum(input[low + columns.low]) + columns.fraction * Accum(input[low + columns.high]);
    let below = left * Accum(input[high + columns.low]) + columns.fraction * Accum(input[high + columns.high]);
    output[i] = Storage((1.0 - rows.fraction) * above + rows.fraction * below);
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
    let row = i / params.width;
    let plane = row / params.height;
    let h = row - plane * params.height;
    let w = i - row * params.width;
    let rows = readers(h, params.height, params.output_height);
    let columns = readers(w, params.width, params.output_width);
    var sum = Accum();
    for (var y = rows.begin; y < rows.end; y++) {
        let high = weight_of(h, neighbours(y, params.height, params.output_height));
        // Those of a row first: many like terms would all be rounded to one side.
        var added = Accum();
        for (var x = columns.begin; x < columns.end; x++) {
            let wide = weight_of(w, neighbours(x, params.width, params.output_width));
            added += wide * Accum(grad_output[(plane * params.output_height + y) * params.output_width + x]);
        }
        sum += high * added;
    }
    grad_input_[i] = Storage(sum);
}
