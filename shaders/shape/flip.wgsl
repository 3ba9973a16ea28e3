// output = input read backwards along an axis: within the first lengths[b] indices of it for sample b, all the others staying
// as they are, or without LENGTHS along the whole of it.
//
// A tensor is rows of elements that lie together at one index of the axis. All numbers are elements, or with VEC vectors of
// four.
//
// bindings   forward: input, output, lengths [B]. Input and output are of any shape, both alike.
// in place   no
// dispatch   one invocation per element (VEC: four), 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.flip.html
#import "shared/index.wgsl"

struct Params {
    elements: u32,
    // Elements of a row.
    inner: u32,
    // Rows along the axis.
    extent: u32,
    // Elements of a sample.
    sample: u32,
}
var<immediate> params: Params;

#ifdef VEC
@group(0) @binding(0) var<storage, read> input: array<Storage4>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage4>;
#else
@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage>;
#endif
#ifdef LENGTHS
@group(0) @binding(2) var<storage, read> lengths: array<u32>;
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
    let row = i / params.inner;
    let at = row % params.extent;
    var length = params.extent;
#ifdef LENGTHS
    length = min(lengths[i / params.sample], params.extent);
#endif
    var source = i;
    if at < length {
        source = i - at * params.inner + (length - 1u - at) * params.inner;
    }
    output[i] = input[source];
}
