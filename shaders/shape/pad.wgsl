// output[i0, i1, ...] = input[i0 - before0, i1 - before1, ...] where the input has such an element, else value.
// grad_input[i0, i1, ...] = grad_output[i0 + before0, i1 + before1, ...].
//
// Neighbouring axes of which the inner one has no border count as one; RANK of them are left, number 0 is the innermost.
// With VEC, all numbers of axis 0 count vectors of four elements.
//
// bindings   forward: input, output; grad_input: grad_output, grad_input
// in place   no
// dispatch   one invocation per element (VEC: four) written, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.functional.pad.html (constant)
#import "shared/index.wgsl"

struct Params {
    // Elements that the kernel writes.
    elements: u32,
    value: f32,
    #for d in 0..RANK
    // Of axis #d: extent in the input, elements added before, extent in the output.
    input_#d: u32,
    before_#d: u32,
    output_#d: u32,
    #end
}
var<immediate> params: Params;

#ifdef VEC
@group(0) @binding(0) var<storage, read> input: array<Storage4>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage4>;

@group(0) @binding(0) var<storage, read> grad_output: array<Storage4>;
@group(0) @binding(1) var<storage, read_write> grad_input_: array<Storage4>;
#else
@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage>;

@group(0) @binding(0) var<storage, read> grad_output: array<Storage>;
@group(0) @binding(1) var<storage, read_write> grad_input_: array<Storage>;
#endif

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
    var rest = i;
    var at = 0u;
    var stride = 1u;
    var is_inside = true;
    #for d in 0..RANK
    {
        // Before the first element this wraps around to a number beyond the last.
        let place = rest % params.output_#d - params.before_#d;
        is_inside = is_inside && place < params.input_#d;
        at += place * stride;
        rest /= params.output_#d;
        stride *= params.input_#d;
    }
    #end
    if is_inside {
        output[i] = input[at];
    } else {
#ifdef VEC
        output[i] = Storage4(Storage(params.value));
#else
        output[i] = Storage(params.value);
#endif
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
    var rest = i;
    var at = 0u;
    var stride = 1u;
    #for d in 0..RANK
    at += (rest % params.input_#d + params.before_#d) * stride;
    rest /= params.input_#d;
    stride *= params.output_#d;
    #end
    grad_input_[i] = grad_output[at];
}
