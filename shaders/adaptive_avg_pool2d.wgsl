// output[n, c, y, x] = the mean of input over bin (y, x): rows floor(y * H / OH) up to ceil((y + 1) * H / OH), columns likewise
// grad_input[n, c, h, w] = sum of grad_output / elements of its bin, over the bins that hold (h, w), in reading order
//
// bindings   forward: input [N, C, H, W], output [N, C, OH, OW]; grad_input: grad_output, grad_input
// in place   no
// dispatch   forward: LANES invocations per bin, which share out the columns of each row; grad_input: one invocation per
//            element of the input; 64 per workgroup, folded
// workgroup  forward: 256 bytes; grad_input: 0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool2d.html
#import "shared/index.wgsl"
#ifdef ENTRY_forward
#import "shared/lanes.wgsl"
#endif

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

// Where `extent` rows (columns) are cut into `bins`: the rows of bin `i`. With the extents in each other's place, the bins
// that hold row `i`.
fn bin(i: u32, bins: u32, extent: u32) -> Range {
    return Range(i * extent / bins, ((i + 1u) * extent + bins - 1u) / bins);
}

fn length(range: Range) -> u32 {
    return range.end - range.begin;
}

#ifdef ENTRY_forward
@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let group = lanes_group(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let place = lanes_place(local_index);
    let i = min(group, params.elements - 1u);
    let row = i / params.output_width;
    let plane = row / params.output_height;
    let rows = bin(row - plane * params.output_height, params.output_height, params.height);
    let columns = bin(i - row * params.output_width, params.output_width, params.width);
    var sum = Accum(0.0);
    for (var h = rows.begin; h < rows.end; h++) {
        let at = (plane * params.height + h) * params.width;
        for (var w = columns.begin + place; w < columns.end; w += LANES) {
            sum += Accum(input[at + w]);
        }
    }
    let total = lanes_sum(local_index, sum);
    if place == 0u && group < params.elements {
        output[i] = Storage(total / Accum(length(rows) * length(columns)));
    }
}
#endif

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
    let rows = bin(row - plane * params.height, params.height, params.output_height);
    let columns = bin(i - row * params.width, params.width, params.output_width);
    var sum = Accum(0.0);
    for (var y = rows.begin; y < rows.end; y++) {
        let height = length(bin(y, params.output_height, params.height));
        let at = (plane * params.output_height + y) * params.output_width;
        for (var x = columns.begin; x < columns.end; x++) {
            let width = length(bin(x, params.output_width, params.width));
            sum += Accum(grad_output[at + x]) / Accum(height * width);
        }
    }
    grad_input_[i] = Storage(sum);
}
