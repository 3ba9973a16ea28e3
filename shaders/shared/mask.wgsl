// A kernel of an activation whose gradient needs to know of a saved element only whether it is above 0. It goes with
// shared/activation.wgsl, of which it uses the parameters, the bindings and the gradient.
//
// grad_input_mask: as grad_input, with 1 for a saved element whose bit in the mask is set and 0 for the others.
// The mask is made by sign_mask.wgsl.
//
// bindings   mask, grad_output, grad_input
// in place   grad_output
// dispatch   one invocation per 4 elements, 64 per workgroup, folded
// workgroup  0 bytes

@group(0) @binding(0) var<storage, read> saved_mask: array<u32>;

@compute @workgroup_size(64)
fn grad_input_mask(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.vectors {
        return;
    }
    let bits = vec4<u32>(saved_mask[i >> 3u] >> (4u * (i & 7u))) & vec4<u32>(1u, 2u, 4u, 8u);
    let s = select(Accum4(0.0), Accum4(1.0), bits > vec4<u32>(0u));
#ifdef IN_PLACE_1
    let g = Accum4(grad_input_[i]);
#else
    let g = Accum4(grad_output[i]);
#endif
    grad_input_[i] = Storage4(activation_gradient(s, g));
}
