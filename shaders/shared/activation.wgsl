// The kernels of every activation. The importing file defines the function and its gradient:
//   fn activation(x: Accum4) -> Accum4
//   fn activation_gradient(saved: Accum4, grad_output: Accum4) -> Accum4
// where `saved` is the activation's input or output, as its Rust file says.
//
// bindings   forward: input, output; grad_input: saved, grad_output, grad_input. Any shape, all alike.
// in place   forward: input; grad_input: grad_output or saved.
// dispatch   one invocation per 4 elements, 64 per workgroup, folded
// workgroup  0 bytes
#import "shared/index.wgsl"

struct Params {
    // Elements / 4, rounded up.
    vectors: u32,
    // Numbers of the activation's own (leaky_relu: the slope).
    setting: f32,
    second_setting: f32,
}
var<immediate> params: Params;

#ifdef IN_PLACE_0
#else
@group(0) @binding(0) var<storage, read> input: array<Storage4>;
@group(0) @binding(0) var<storage, read> saved: array<Storage4>;
#endif
@group(0) @binding(1) var<storage, read_write> output: array<Storage4>;

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
    output[i] = Storage4(activation(x));
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
#ifdef IN_PLACE_0
    let s = Accum4(grad_input_[i]);
#else
    let s = Accum4(saved[i]);
#endif
#ifdef IN_PLACE_1
    let g = Accum4(grad_input_[i]);
#else
    let g = Accum4(grad_output[i]);
#endif
    grad_input_[i] = Storage4(activation_gradient(s, g));
}
