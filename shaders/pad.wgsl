// output = input with `value` around it; grad_input, the part of grad_output without what was added, is a launch of the same
// kernel with the shapes in each other's place
//
// Element (o_0, o_1, ...) of the output is input (o_0 + shift_0, o_1 + shift_1, ...) where that exists, else `value`. Axis 0
// is the innermost; neighbours between which nothing is added count as one. All numbers are elements, or with VEC vectors of
// four.
//
// bindings   forward: input, output
// in place   no
// dispatch   one invocation per element (VEC: four) written, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.functional.pad.html
#import "shared/index.wgsl"

struct Params {
    // Elements that the kernel writes.
    elements: u32,
    // Axes, 1 to 6.
    rank: u32,
    value: f32,
    #for d in 0..6
    // Extent of the output.
    output_#d: u32,
    // Extent of the input.
    input_#d: u32,
    // Below zero it wraps around.
    shift_#d: u32,
    #end
}
var<immediate> params: Params;

#ifdef VEC
alias Element = Storage4;
#else
alias Element = Storage;
#endif

@group(0) @binding(0) var<storage, read> input: array<Element>;
@group(0) @binding(1) var<storage, read_write> output: array<Element>;

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
    var exists = true;
    #for d in 0..6
    if params.rank > #du {
        let outer = rest / params.output_#d;
        let source = rest - outer * params.output_#d + params.shift_#d;
        exists = exists && source < params.input_#d;
        at += source * stride;
        stride *= params.input_#d;
        rest = outer;
    }
    #end
    var y = Element(Storage(params.value));
    if exists {
        y = input[at];
    }
    output[i] = y;
}
