// Convolution as a matrix product whose B is gathered from an image. Forward and grad_input sum over the channels at one kernel
// position after the other, grad_weight over the pixels of one sample after the other.
//
//   forward      output[n, o, y, x] = bias[o] + sum over c, ky, kx of weight[o, c, ky, kx] * input[n, c, sy, sx]
//                with sy = y * stride - padding + ky * dilation, sx likewise
//                with RELU then max(output, 0)
//   grad_input   grad_input[n, c, y, x] = sum over o, ky, kx of weight[o, c, ky, kx] * grad_output[n, o, sy, sx]
//                with sy = (y + padding - ky * dilation) / stride where that is a whole number
//                with STAGED phases[py, px, n, c, y, x] = grad_input[n, c, y * stride + py, x * stride + px] of some samples
//   grad_weight  grad_weight[o, c, ky, kx] = sum over n, y, x of grad_output[n, o, y, x] * input[n, c, sy, sx]
//   grad_bias    grad_bias[o] = sum over n, y, x of grad_output[n, o, y, x]
//
// The weights are packed, with PACKED also the image that is gathered, of some samples, and phases are put together afterwards:
// conv2d_layout.wgsl.
//
// A step of four k lies at one kernel position; with FLAT, where the number of channels is no multiple of 4, each k has its own.
// With PHASES steps have fewer than four k at the end of a kernel position (C_TAIL), and so has grad_weight at the end of a
// plane (without VEC_A).
//
// bindings   forward: packed, input, output, bias (ROW_START). grad_input: packed, grad_output, grad_input.
//            grad_weight: grad_output, input, grad_weight or the parts of a split sum [splits, numel].
//            grad_bias: grad_output, parts [splits, channels].
// dispatch   forward, grad_input, grad_weight: one workgroup per tile, rows fastest, then columns, then groups, each with
//            its parts of a split sum (grad_weight) or pixels that lie whole strides apart (grad_input with PHASES); folded.
//            grad_bias: one workgroup per channel and split, folded
// workgroup  without subgroups 8 KiB, grad_bias 256 bytes; else 0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.Conv2d.html
#import "shared/index.wgsl"
#import "shared/epilogue.wgsl"

#ifdef GEMM
#import "shared/divide.wgsl"
#import "shared/gemm.wgsl"

struct Params {
    // Rows of a group: channels of `dest`.
    rows: u32,
    // forward, grad_input: samples * pixels of dest. grad_weight: channels * taps.
    columns: u32,
    // Channels of `source` in a group.
    channels: u32,
    groups: u32,
    taps: u32,
    kernel_w: u32,
    // The image on the side of the rows: output, or grad_input. In grad_weight: grad_output.
    dest_h: u32,
    dest_w: u32,
    // The image that is gathered: input, or grad_output. In grad_weight: input.
    source_h: u32,
    source_w: u32,
    padding_h: u32,
    padding_w: u32,
    dilation_h: u32,
    dilation_w: u32,
    // Steps of one kernel position, or of one plane in grad_weight; rounded up. With FLAT of a row.
    inner_steps: u32,
    // grad_weight only: parts of the sum, the steps of each and of all, and the distance between the parts' results.
    splits: u32,
    part_steps: u32,
    steps: u32,
    c_split: u32,
    tiles_m: u32,
    tiles_n: u32,
    // PHASES only: how many there are along each axis, and the most pixels of one.
    phases_h: u32,
    phases_w: u32,
    phase_h: u32,
    phase_w: u32,
    // forward, grad_input: samples at a time, and the first of them.
    samples: u32,
    first_sample: u32,
#for k in 0..SETTINGS
    setting_#k: f32,
#end
}
var<immediate> params: Params;

fn runtime_number() -> u32 {
    return params.rows;
}

#ifdef VEC_A
@group(0) @binding(0) var<storage, read> a: array<Storage4>;
#else
@group(0) @binding(0) var<storage, read> a: array<Storage>;
#endif
#ifdef VEC_B
@group(0) @binding(1) var<storage, read> source: array<Storage4>;
#else
@group(0) @binding(1) var<storage, read> source: array<Storage>;
#endif
#ifdef BY_ELEMENT
@group(0) @binding(2) var<storage, read_write> output: array<Storage>;
#else
@group(0) @binding(2) var<storage, read_write> output: array<Storage4>;
#endif
#ifdef ROW_START
@group(0) @binding(3) var<storage, read> bias: array<Storage>;
#endif

const LANES = vec4<u32>(0u, 1u, 2u, 3u);

struct Rows {
    // Where the first k of each row lies.
    at: vec4<u32>,
}

#ifndef VEC_A
fn a_scalar(i: u32) -> Accum {
    return Accum(a[i]);
}
#endif

#ifndef VEC_B
fn source_scalar(i: u32) -> Accum {
    return Accum(source[i]);
}

fn gather(at: vec4<u32>, valid: vec4<bool>) -> Accum4 {
    let values = Accum4(source_scalar(at.x), source_scalar(at.y), source_scalar(at.z), source_scalar(at.w));
    return select(Accum4(), values, valid);
}
#endif

#ifdef ENTRY_grad_weight
#import "shared/conv2d_grad_weight.wgsl"
#else
struct Columns {
    column: u32,
    // Where row 0 of each pixel of `dest` lies, and how far the next row: looked up here, not once for each row.
    c_at: vec4<u32>,
    row_stride: u32,
    // Where channel 0 of each pixel's image lies; with PACKED counted in pixels.
    image: vec4<u32>,
    y: vec4<u32>,
    x: vec4<u32>,
}

// At one tap: where channel 0 of each column's source pixel lies, and whether that pixel exists.
struct Pixels {
    at: vec4<u32>,
    valid: vec4<bool>,
}

#import "shared/conv2d_part.wgsl"

fn rows_at(row: u32, z: u32) -> Rows {
#ifdef FLAT
    let row_steps = params.inner_steps;
#else
    let row_steps = params.taps * params.inner_steps;
#endif
    return Rows((part.group * params.rows + min(row + LANES, vec4<u32>(params.rows - 1u))) * row_steps * 4u);
}

fn columns_at(column: u32, z: u32) -> Columns {
    let at = min(column + LANES, vec4<u32>(params.columns - 1u));
#ifdef PHASES
    let plane = params.phase_h * params.phase_w;
    let sample = at / vec4<u32>(plane);
    let pixel = at - sample * plane;
    let row = pixel / vec4<u32>(params.phase_w);
    let y = row * STRIDE_H + part.y;
    let x = (pixel - row * params.phase_w) * STRIDE_W + part.x;
#else
    let plane = params.dest_h * params.dest_w;
    let sample = at / vec4<u32>(plane);
    let pixel = at - sample * plane;
    let y = pixel / vec4<u32>(params.dest_w);
    let x = pixel - y * params.dest_w;
#endif
    // Among the images of these samples, and among all.
    let image = sample * params.groups + part.group;
    let any_image = image + params.first_sample * params.groups;
#ifdef STAGED
    let stage = (part.y * params.phases_w + part.x) * params.samples * params.groups + image;
    let row_stride = plane;
    let c_at = stage * params.rows * plane + pixel;
#else
    let row_stride = params.dest_h * params.dest_w;
    let c_at = any_image * params.rows * row_stride + y * params.dest_w + x;
#endif
#ifdef PACKED
    let source_at = image * (params.source_h * params.source_w);
#else
    let source_at = any_image * params.channels * (params.source_h * params.source_w);
#endif
    return Columns(column, c_at, row_stride, source_at, y, x);
}

// Whether one of the four is a pixel of `dest`.
fn column_exists(columns: Columns, j: u32) -> bool {
#ifdef PHASES
    let is_inside = columns.y[j] < params.dest_h && columns.x[j] < params.dest_w;
#else
    let is_inside = true;
#endif
    return is_inside && columns.column + j < params.columns;
}

fn load_a(rows: Rows, step: u32) -> Block {
#ifdef PHASES
    let number = divide(step, params.inner_steps);
    let tap = tap_at(number);
    let first = (tap.x * params.kernel_w + tap.y - number) * params.inner_steps + step;
#else
    let first = step;
#endif
    let i = (rows.at >> vec4<u32>(2u)) + first;
    return Block(Accum4(a[i.x]), Accum4(a[i.y]), Accum4(a[i.z]), Accum4(a[i.w]));
}

// `number` counts the taps of the part.
fn pixels_at(columns: Columns, number: u32) -> Pixels {
    let tap = tap_at(number);
    // Below zero these wrap around to numbers that no image is as large as.
#ifdef ENTRY_grad_input
    let y_scaled = columns.y + params.padding_h - tap.x * params.dilation_h;
    let x_scaled = columns.x + params.padding_w - tap.y * params.dilation_w;
    let y = y_scaled / vec4<u32>(STRIDE_H);
    let x = x_scaled / vec4<u32>(STRIDE_W);
    let whole = max(y_scaled, x_scaled) < vec4<u32>(1u << 31u);
#else
    let y = columns.y * STRIDE_H + tap.x * params.dilation_h - params.padding_h;
    let x = columns.x * STRIDE_W + tap.y * params.dilation_w - params.padding_w;
    let whole = vec4<bool>(true);
#endif
    let valid = whole & (y < vec4<u32>(params.source_h)) & (x < vec4<u32>(params.source_w));
    return Pixels(columns.image + select(vec4<u32>(), y * params.source_w + x, valid), valid);
}

#ifdef PACKED
fn load_b(columns: Columns, step: u32) -> Block {
    let number = divide(step, params.inner_steps);
    let pixels = pixels_at(columns, number);
    let i = (pixels.at - number) * params.inner_steps + step;
    #for j in 0..4
    let column#j = select(Accum4(), Accum4(source[i[#j]]), pixels.valid[#j]);
    #end
    return transpose(Block(column0, column1, column2, column3));
}
#else
fn load_b(columns: Columns, step: u32) -> Block {
    let plane = params.source_h * params.source_w;
#ifndef FLAT
    let number = divide(step, params.inner_steps);
    let channel = (step - number * params.inner_steps) * 4u;
    let pixels = pixels_at(columns, number);
#endif
    #for j in 0..4
#ifdef FLAT
    let number#j = divide(step * 4u + #ju, params.channels);
    let channel#j = step * 4u + #ju - number#j * params.channels;
    let pixels#j = pixels_at(columns, number#j);
    let exists#j = number#j < params.taps;
#else
#ifdef C_TAIL
    let channel#j = min(channel + #ju, params.channels - 1u);
    let exists#j = channel + #ju < params.channels;
#else
    let channel#j = channel + #ju;
    let exists#j = true;
#endif
    let pixels#j = pixels;
#endif
    let at#j = pixels#j.at + channel#j * plane;
#ifdef VEC_B
    let k#j = select(Accum4(), Accum4(source[at#j.x >> 2u]), exists#j);
#else
    let k#j = gather(at#j, pixels#j.valid & vec4<bool>(exists#j));
#endif
    #end
    return Block(k0, k1, k2, k3);
}
#endif

#ifdef ROW_START
fn row_start(row: u32, z: u32) -> Accum4 {
    let i = part.group * params.rows + min(row + LANES, vec4<u32>(params.rows - 1u));
    return Accum4(Accum(bias[i.x]), Accum(bias[i.y]), Accum(bias[i.z]), Accum(bias[i.w]));
}
#endif

fn store_c(row: u32, columns: Columns, sums: Accum4) {
    let i = columns.c_at + row * columns.row_stride;
#ifdef BY_ELEMENT
    #for j in 0..4
    if column_exists(columns, #ju) {
        output[i[#j]] = Storage(epilogue(Accum4(sums[#j]), i[#j]).x);
    }
    #end
#else
    if columns.column < params.columns {
        output[i.x >> 2u] = Storage4(epilogue(sums, i.x >> 2u));
    }
#endif
}
#endif

// The tile of a workgroup; `tile.z` is past the end for workgroups that only fill the grid.
fn tile_of(tile: u32) -> Tile {
    let column_tile = tile / params.tiles_m;
    let z = column_tile / params.tiles_n;
    return Tile((tile % params.tiles_m) * TILE_M, (column_tile % params.tiles_n) * TILE_N, params.rows, z);
}
#endif

#ifdef ENTRY_forward
@compute @workgroup_size(GEMM_INVOCATIONS)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
#ifdef COOPERATIVE
    @builtin(subgroup_id) subgroup: u32,
#endif
) {
#ifdef COOPERATIVE
    gemm_subgroup = subgroup;
#endif
    let tile = tile_of(linear_workgroup(workgroup_id, num_workgroups));
    part = part_at(tile.z);
    if part.group < params.groups {
        gemm(tile, Steps(0u, part_steps()), local_index);
    }
}
#endif

#ifdef ENTRY_grad_input
@compute @workgroup_size(GEMM_INVOCATIONS)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
#ifdef COOPERATIVE
    @builtin(subgroup_id) subgroup: u32,
#endif
) {
#ifdef COOPERATIVE
    gemm_subgroup = subgroup;
#endif
    let tile = tile_of(linear_workgroup(workgroup_id, num_workgroups));
    part = part_at(tile.z);
    if part.group < params.groups {
        gemm(tile, Steps(0u, part_steps()), local_index);
    }
}
#endif

#ifdef ENTRY_grad_weight
@compute @workgroup_size(GEMM_INVOCATIONS)
fn grad_weight(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
#ifdef COOPERATIVE
    @builtin(subgroup_id) subgroup: u32,
#endif
) {
#ifdef COOPERATIVE
    gemm_subgroup = subgroup;
#endif
    let tile = tile_of(linear_workgroup(workgroup_id, num_workgroups));
    if tile.z < params.groups * params.splits {
        let begin = (tile.z % params.splits) * params.part_steps;
        gemm(tile, Steps(begin, min(params.steps, begin + params.part_steps)), local_index);
    }
}
#endif

#ifdef ENTRY_grad_bias
#import "shared/gemm_sum.wgsl"
#import "shared/sums.wgsl"

#ifdef VEC_A
alias Term = Accum4;
#else
alias Term = Accum;
#endif

struct Params {
    channels: u32,
    samples: u32,
    // Elements of a plane, divided by 4 with VEC_A.
    plane: u32,
    splits: u32,
    // Segments of each part of the sum.
    terms: u32,
    segments: u32, // of a plane
    segment: u32, // elements of each, divided by 4 with VEC_A
}
var<immediate> params: Params;

#ifdef VEC_A
@group(0) @binding(0) var<storage, read> grad_output: array<Storage4>;
#else
@group(0) @binding(0) var<storage, read> grad_output: array<Storage>;
#endif
@group(0) @binding(1) var<storage, read_write> parts: array<Storage>;

@compute @workgroup_size(SUM_INVOCATIONS)
fn grad_bias(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_workgroup(workgroup_id, num_workgroups);
    if i >= params.channels * params.splits {
        return;
    }
    let part = i / params.channels;
    let channel = i - part * params.channels;
    var added = LongSum();
    let end = min(params.samples * params.segments, (part + 1u) * params.terms);
    for (var term = part * params.terms; term < end; term++) {
        let sample = term / params.segments;
        let begin = (term - sample * params.segments) * params.segment;
        let plane = (sample * params.channels + channel) * params.plane;
        for (var pixel = begin + local_index; pixel < min(params.plane, begin + params.segment); pixel += SUM_INVOCATIONS) {
            add_term(&added, Term(grad_output[plane + pixel]));
        }
    }
    let sum = total_of(added);
#ifdef VEC_A
    let total = sum_invocations((sum.x + sum.y) + (sum.z + sum.w), local_index);
#else
    let total = sum_invocations(sum, local_index);
#endif
    if local_index == 0u {
        parts[part * ((params.channels + 3u) & ~3u) + channel] = Storage(total);
    }
}
#endif
