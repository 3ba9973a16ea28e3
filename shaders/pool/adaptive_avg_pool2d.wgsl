// output[n, c, y, x] = mean of input[n, c, h, w] over the bin (y, x): rows y * H / OH, rounded down, to (y + 1) * H / OH,
// rounded up, and columns likewise.
// grad_input[n, c, h, w] = sum of grad_output / (elements of the bin) over the bins that (h, w) lies in.
//
// bindings   forward: input [N, C, H, W], output [N, C, OH, OW]; grad_input: grad_output, grad_input
// in place   no
// dispatch   forward: LANES invocations (1 or 64) per element of the output; grad_input: one invocation per element of the
//            input; 64 per workgroup, folded
// workgroup  256 bytes (LANES = 64)
// source     https://pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool2d.html
#import "shared/divide.wgsl"
#import "shared/index.wgsl"
#import "shared/lanes.wgsl"
#import "shared/sums.wgsl"

alias Term = Accum;

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

// First and one past the last.
struct Range {
    begin: u32,
    end: u32,
}

// The elements of bin o; with inputs and outputs exchanged, the bins that element o lies in.
fn bin(o: u32, inputs: u32, outputs: u32) -> Range {
    return Range(divide(o * inputs, outputs), divide((o + 1u) * inputs + outputs - 1u, outputs));
}

fn length(range: Range) -> u32 {
    return range.end - range.begin;
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let group = lanes_group(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let place = lanes_place(local_index);
    let i = min(group, params.elements - 1u);
    let row = divide(i, params.output_width);
    let plane = divide(row, params.output_height);
    let rows = bin(row - plane * params.output_height, params.height, params.output_height);
    let columns = bin(i - row * params.output_width, params.width, params.output_width);
    let at = (plane * params.height + rows.begin) * params.width + columns.begin;
    let wide = length(columns);
    let elements = length(rows) * wide;
    var added = LongSum();
    for (var e = place; e < elements; e += LANES) {
        let h = divide(e, wide);
        add_term(&added, Term(input[at + h * params.width + (e - h * wide)]));
    }
    let total = lanes_sum(local_index, total_of(added));
    if place == 0u && group < params.elements {
        output[i] = Storage(total / Accum(elements));
    }
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
    let row = divide(i, params.width);
    let plane = divide(row, params.height);
    let rows = bin(row - plane * params.height, params.output_height, params.height);
    let columns = bin(i - row * params.width, params.output_width, params.width);
    var added = LongSum();
    for (var y = rows.begin; y < rows.end; y++) {
        let high = length(bin(y, params.height, params.output_height));
        for (var x = columns.begin; x < columns.end; x++) {
            let elements = high * length(bin(x, params.width, params.output_width));
            let grad = Accum(grad_output[(plane * params.output_height + y) * params.output_width + x]);
            add_term(&added, grad / Accum(elements));
        }
    }
    grad_input_[i] = Storage(total_of(added));
}
