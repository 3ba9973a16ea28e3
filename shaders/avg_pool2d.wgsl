// output[n, c, y, x] = sum of input in the window at (y, x) / (KH * KW); padding counts as zeros.
// grad_input[n, c, h, w] = sum of grad_output over the windows that cover (h, w) / (KH * KW).
//
// bindings   forward: input [N, C, H, W], output [N, C, OH, OW]; grad_input: grad_output, grad_input
// in place   no
// dispatch   one invocation per element written, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.AvgPool2d.html (count_include_pad)
#import "shared/index.wgsl"
#import "shared/pool.wgsl"

@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage>;

@group(0) @binding(0) var<storage, read> grad_output: array<Storage>;
@group(0) @binding(1) var<storage, read_write> grad_input_: array<Storage>;

fn window_elements() -> Accum {
    return Accum(params.kernel_height * params.kernel_width);
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
    let x = i % params.output_width;
    let rest = i / params.output_width;
    let y = rest % params.output_height;
    let plane = (rest / params.output_height) * params.height * params.width;
    let rows = window(y, params.stride_height, params.padding_height, params.kernel_height, params.height);
    let columns = window(x, params.stride_width, params.padding_width, params.kernel_width, params.width);
    var sum = Accum(0.0);
    for (var h = rows.begin; h < rows.end; h++) {
        for (var w = columns.begin; w < columns.end; w++) {
            sum += Accum(input[plane + h * params.width + w]);
        }
    }
    output[i] = Storage(sum / window_elements());
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
    let w = i % params.width;
    let rest = i / params.width;
    let h = rest % params.height;
    let plane = (rest / params.height) * params.output_height * params.output_width;
    let rows = windows_over(h, params.stride_height, params.padding_height, params.kernel_height, params.output_height);
    let columns = windows_over(w, params.stride_width, params.padding_width, params.kernel_width, params.output_width);
    var sum = Accum(0.0);
    for (var y = rows.begin; y < rows.end; y++) {
        for (var x = columns.begin; x < columns.end; x++) {
            sum += Accum(grad_output[plane + y * params.output_width + x]);
        }
    }
    grad_input_[i] = Storage(sum / window_elements());
}
