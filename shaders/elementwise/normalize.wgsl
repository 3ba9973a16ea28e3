// output[n, c, …] = scale[c] · input[n, c, …] + offset[c], of bytes; with one channel stated, of all elements
//
// bindings   input u8, four in a word, the lowest byte first; output. Any shape, both alike.
// in place   no
// dispatch   one invocation per word, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://docs.pytorch.org/vision/stable/generated/torchvision.transforms.v2.Normalize.html
#import "shared/index.wgsl"

struct Params {
    elements: u32,
    // Elements of a channel of one sample.
    plane: u32,
    channels: u32,
    scale_0: f32,
    scale_1: f32,
    scale_2: f32,
    scale_3: f32,
    offset_0: f32,
    offset_1: f32,
    offset_2: f32,
    offset_3: f32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> input: array<u32>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage>;

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let word = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    let first = 4u * word;
    if first >= params.elements {
        return;
    }
    let bytes = input[word];
    for (var i = 0u; i < min(4u, params.elements - first); i++) {
        let channel = (first + i) / params.plane % params.channels;
        // A chain of choices: an array that is indexed would be in memory.
        var scale = params.scale_0;
        var offset = params.offset_0;
        if channel == 1u {
            scale = params.scale_1;
            offset = params.offset_1;
        } else if channel == 2u {
            scale = params.scale_2;
            offset = params.offset_2;
        } else if channel == 3u {
            scale = params.scale_3;
            offset = params.offset_3;
        }
        output[first + i] = Storage(scale * f32(bytes >> (8u * i) & 0xffu) + offset);
    }
}
