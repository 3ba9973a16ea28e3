// bit i % 32 of mask[i / 32] = saved[i] > 0; bits past the end are 0.
//
// bindings   saved, mask u32 [elements / 32, rounded up]
// dispatch   one invocation per word of the mask, 64 per workgroup, folded
// workgroup  0 bytes
#import "shared/index.wgsl"

struct Params {
    elements: u32,
    // Elements / 32, rounded up.
    words: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> saved: array<Storage4>;
@group(0) @binding(1) var<storage, read_write> mask: array<u32>;

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.words {
        return;
    }
    let left = params.elements - i * 32u;
    var word = 0u;
    for (var v = 0u; v < min(8u, (left + 3u) / 4u); v++) {
        let above = select(vec4<u32>(0u), vec4<u32>(1u, 2u, 4u, 8u), Accum4(saved[i * 8u + v]) > Accum4(0.0));
        word |= (above.x | above.y | above.z | above.w) << (4u * v);
    }
    if left < 32u {
        word &= (1u << left) - 1u;
    }
    mask[i] = word;
}
