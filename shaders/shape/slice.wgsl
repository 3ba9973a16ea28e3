// output = input from a start on along an axis; grad_input = grad_output there, 0 beside it.
//
// A tensor is rows of elements that lie together in memory: those of one index of the axes before the axis. All numbers
// are elements, or with VEC vectors of four.
//
// bindings   forward: input, output; grad_input: grad_output, grad_input
// in place   no
// dispatch   one invocation per element (VEC: four) written, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.narrow.html
#import "shared/index.wgsl"

struct Params {
    // Elements that the kernel writes.
    elements: u32,
    // Elements of a row of the input (or of its gradient).
    whole: u32,
    // Elements of a row of the output (or of its gradient).
    part: u32,
    // Elements of a row of the input before those of the output.
    before: u32,
}
var<immediate> params: Params;

#ifdef VEC
alias Element = Storage4;
#else
alias Element = Storage;
#endif

@group(0) @binding(0) var<storage, read> input: array<Element>;
@group(0) @binding(1) var<storage, read_write> output: array<Element>;

@group(0) @binding(0) var<storage, read> grad_output: array<Element>;
@group(0) @binding(1) var<storage, read_write> grad_input_: array<Element>;

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
    let row = i / params.part;
    output[i] = input[row * params.whole + params.before + (i - row * params.part)];
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
    let row = i / params.whole;
    // Wraps to a large number before the part.
    let at = i - row * params.whole - params.before;
    if at < params.part {
        grad_input_[i] = grad_output[row * params.part + at];
    } else {
        grad_input_[i] = Element();
    }
}
