// output = max(input, 0); grad_input = grad_output where output > 0, else 0.
//
// bindings   forward: input, output; grad_input: output, grad_output, grad_input. Any shape, all alike.
// in place   forward: input; grad_input: grad_output.
// dispatch   one invocation per 4 elements, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.ReLU.html
#import "shared/index.wgsl"

struct Params {
    // Elements / 4, rounded up.
    vectors: u32,
}
var<immediate> params: Params;

#ifdef IN_PLACE_0
#else
@group(0) @binding(0) var<storage, read> input: array<Storage4>;
#endif
@group(0) @binding(1) var<storage, read_write> output: array<Storage4>;

@group(0) @binding(0) var<storage, read> saved_output: array<Storage4>;
#ifdef IN_PLACE_1
#else
@group(0) @binding(1) var<storage, read> grad_output: array<Storage4>;
#endif
@group(0) @binding(2) var<storage, read_write> grad_input_: array<Storage4>;

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.vectors {
        return;
    }
#ifdef IN_PLACE_0
    let x = Accum4(output[i]);
#else
    let x = Accum4(input[i]);
#endif
    output[i] = Storage4(max(x, Accum4(0.0)));
}

@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.vectors {
        return;
    }
#ifdef IN_PLACE_1
    let g = Accum4(grad_input_[i]);
#else
    let g = Accum4(grad_output[i]);
#endif
    grad_input_[i] = Storage4(select(Accum4(0.0), g, Accum4(saved_output[i]) > Accum4(0.0)));
}
