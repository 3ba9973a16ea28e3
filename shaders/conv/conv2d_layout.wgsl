// What the kernels of conv2d.wgsl read and write, in other orders.
//
//   pack_weight  packed[g, row, ky, kx, channel] = weight, each row padded to a multiple of 4 with zeros
//   pack_image   packed[n, g, y, x, channel] = image[n, g, channel, y, x] of some samples, channels padded likewise
//   interleave   output[n, c, y * stride + py, x * stride + px] = phases[py, px, n, c, y, x] of some samples
//
// bindings   pack_weight: weight, packed. pack_image: image, packed. interleave: phases, output.
// dispatch   one invocation per 4 elements (pack_weight), 4 channels at 4 pixels (pack_image), 4 elements of each of the
//            PHASES_W phases that make a row (interleave); 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.Conv2d.html
#import "shared/index.wgsl"
#import "shared/divide.wgsl"
#ifdef ENTRY_interleave
#import "shared/epilogue.wgsl"
#endif

#ifdef ENTRY_pack_weight
struct Params {
    // Vectors of `packed`, and those of a row.
    vectors: u32,
    row_vectors: u32,
    rows: u32,
    channels: u32,
    // The same with the zeros that follow them at each tap.
    padded_channels: u32,
    taps: u32,
    // Distances in `weight`.
    group_stride: u32,
    row_stride: u32,
    channel_stride: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> weight: array<Storage>;
@group(0) @binding(1) var<storage, read_write> packed: array<Storage4>;

@compute @workgroup_size(64)
fn pack_weight(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.vectors {
        return;
    }
    let index = divide(i, params.row_vectors);
    let group = divide(index, params.rows);
    let at = group * params.group_stride + (index - group * params.rows) * params.row_stride;
    var values = Storage4();
    #for j in 0..4
    let k#j = (i - index * params.row_vectors) * 4u + #ju;
    let tap#j = divide(k#j, params.padded_channels);
    let channel#j = k#j - tap#j * params.padded_channels;
    if tap#j < params.taps && channel#j < params.channels {
        values[#j] = weight[at + channel#j * params.channel_stride + tap#j];
    }
    #end
    packed[i] = values;
}
#endif

#ifdef ENTRY_pack_image
struct Params {
    invocations: u32,
    // Vectors of four channels, and of four pixels; both rounded up.
    channel_vectors: u32,
    pixel_vectors: u32,
    channels: u32,
    // Pixels of an image.
    plane: u32,
    first_image: u32,
}
var<immediate> params: Params;

#ifdef VEC
@group(0) @binding(0) var<storage, read> image: array<Storage4>;
#else
@group(0) @binding(0) var<storage, read> image: array<Storage>;
#endif
@group(0) @binding(1) var<storage, read_write> packed: array<Storage4>;

@compute @workgroup_size(64)
fn pack_image(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.invocations {
        return;
    }
    let rest = divide(i, params.channel_vectors);
    let vector = i - rest * params.channel_vectors;
    let number = divide(rest, params.pixel_vectors);
    let pixel = (rest - number * params.pixel_vectors) * 4u;
    let first = (params.first_image + number) * params.channels;
    #for c in 0..4
    let exists#c = vector * 4u + #cu < params.channels;
    let at#c = (first + select(0u, vector * 4u + #cu, exists#c)) * params.plane;
#ifdef VEC
    let pixels#c = image[(at#c + pixel) >> 2u];
#else
    let pixels#c = Storage4(
        #for j in 0..4
        image[at#c + min(pixel + #ju, params.plane - 1u)],
        #end
    );
#endif
    let channel#c = select(Storage4(), pixels#c, exists#c);
    #end
    let to = (number * params.plane + pixel) * params.channel_vectors + vector;
    #for j in 0..4
    if pixel + #ju < params.plane {
        packed[to + #ju * params.channel_vectors] = Storage4(channel0[#j], channel1[#j], channel2[#j], channel3[#j]);
    }
    #end
}
#endif

#ifdef ENTRY_interleave
struct Params {
    // Vectors of one phase, and those of a row and of a plane of it.
    vectors: u32,
    row_vectors: u32,
    plane_vectors: u32,
    // The first plane in the image.
    first_plane: u32,
    phases_h: u32,
#for k in 0..SETTINGS
    setting_#k: f32,
#end
}
var<immediate> params: Params;

fn runtime_number() -> u32 {
    return params.vectors;
}

@group(0) @binding(0) var<storage, read> phases: array<Storage4>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage4>;

@compute @workgroup_size(64)
fn interleave(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.vectors * params.phases_h {
        return;
    }
    // A row of the image is made of one row of each phase along x.
    let row = divide(i, params.row_vectors);
    let place = i - row * params.row_vectors;
    let image_row = divide(row, params.phases_h);
    let phase = (row - image_row * params.phases_h) * PHASES_W * params.vectors + image_row * params.row_vectors + place;
    #for p in 0..PHASES_W
    let phase#p = phases[phase + #pu * params.vectors];
    #end
    let at = (params.first_plane * params.plane_vectors * params.phases_h + row * params.row_vectors + place) * PHASES_W;
    #for v in 0..PHASES_W
    output[at + #vu] = Storage4(epilogue(Accum4(
        #for j in 0..4
        Accum(phase#((4 * v + j) % PHASES_W)[#((4 * v + j) / PHASES_W)]),
        #end
    ), at + #vu));
    #end
}
#endif
