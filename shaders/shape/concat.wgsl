// output = a, then b along an axis. (The gradient of each is a slice of that of the output, by slice.wgsl.)
//
// A tensor is rows of elements that lie together in memory: those of one index of the axes before the axis. All numbers
// are elements, or with VEC vectors of four.
//
// bindings   a, b, output
// in place   no
// dispatch   one invocation per element (VEC: four) written, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.cat.html
#import "shared/index.wgsl"

struct Params {
    // Elements that the kernel writes.
    elements: u32,
    // Elements of a row of the output.
    run: u32,
    // Elements of a row of a.
    first: u32,
}
var<immediate> params: Params;

#ifdef VEC
alias Element = Storage4;
#else
alias Element = Storage;
#endif

@group(0) @binding(0) var<storage, read> a: array<Element>;
@group(0) @binding(1) var<storage, read> b: array<Element>;
@group(0) @binding(2) var<storage, read_write> output: array<Element>;

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
    let row = i / params.run;
    let at = i - row * params.run;
    if at < params.first {
        output[i] = a[row * params.first + at];
    } else {
        output[i] = b[row * (params.run - params.first) + at - params.first];
    }
}
