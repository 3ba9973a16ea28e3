// output[n, c, y, x] = input[n, c, y / SY, x / SX]
// grad_input[n, c, h, w] = sum of grad_output over the copies of (h, w), in reading order.
//
// bindings   forward: input [N, C, H, W], output [N, C, H * SY, W * SX]; grad_input: grad_output, grad_input
// in place   no
// dispatch   one invocation per element of the input, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.UpsamplingNearest2d.html
#import "shared/index.wgsl"

struct Params {
    // Elements of the input.
    elements: u32,
    // Columns of the input.
    width: u32,
    scale_height: u32,
    scale_width: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage>;

@group(0) @binding(0) var<storage, read> grad_output: array<Storage>;
@group(0) @binding(1) var<storage, read_write> grad_input_: array<Storage>;

// Planes lie one after the other, so rows of all of them are counted together: SY rows of the output for each of the input.

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
    let row = i / params.width;
    let output_width = params.width * params.scale_width;
    let first = row * params.scale_height * output_width + (i - row * params.width) * params.scale_width;
    let value = input[i];
    for (var y = 0u; y < params.scale_height; y++) {
        for (var x = 0u; x < params.scale_width; x++) {
            output[first + y * output_width + x] = value;
        }
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
    let row = i / params.width;
    let output_width = params.width * params.scale_width;
    let first = row * params.scale_height * output_width + (i - row * params.width) * params.scale_width;
    var sum = Accum(0.0);
    for (var y = 0u; y < params.scale_height; y++) {
        // Those of a row first: many like terms would all be rounded to one side.
        var added = Accum(0.0);
        for (var x = 0u; x < params.scale_width; x++) {
            added += Accum(grad_output[first + y * output_width + x]);
        }
        sum += added;
    }
    grad_input_[i] = Storage(sum);
}
