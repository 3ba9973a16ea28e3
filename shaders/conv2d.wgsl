// Convolution as a matrix product whose B is gathered from an image, tap by tap: outer = kernel positions, k = channels.
//
//   forward      output[n, o, y, x] = bias[o] + sum over c, ky, kx of weight[o, c, ky, kx] * input[n, c, sy, sx]
//                with sy = y * stride - padding + ky * dilation, sx likewise
//                with RELU then max(output, 0)
//   grad_input   grad_input[n, c, y, x] = sum over o, ky, kx of weight[o, c, ky, kx] * grad_output[n, o, sy, sx]
//                with sy = (y + padding - ky * dilation) / stride where that is a whole number
//   grad_weight  grad_weight[o, c, ky, kx] = sum over n, y, x of grad_output[n, o, y, x] * input[n, c, sy, sx]
//   grad_bias    grad_bias[o] = sum over n, y, x of grad_output[n, o, y, x]
//   pack_weight  packed[g, ky, kx, row, k] = weight with rows and k of group g, k padded to a multiple of 4 with zeros
//
// bindings   forward: packed, input, output, bias (ROW_START). grad_input: packed, grad_output, grad_input.
//            grad_weight: grad_output, input, grad_weight or the parts of a split sum [splits, numel].
//            grad_bias: grad_output, parts [splits, channels]. pack_weight: weight, packed.
// dispatch   forward, grad_input, grad_weight: one workgroup per tile, rows fastest, then columns, then groups, each with
//            its parts of a split sum (grad_weight) or pixels that lie whole strides apart (grad_input with PHASES); folded. grad_bias: one workgroup per channel and split, folded. pack_weight: one invocation per 4
//            elements, 64 per workgroup, folded.
// workgroup  without subgroups 8 KiB, grad_bias 256 bytes; else and pack_weight 0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.Conv2d.html
#import "shared/index.wgsl"
#import "shared/epilogue.wgsl"

#ifdef GEMM
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
    // grad_weight only: parts of the sum, outer terms of all and of each, and the distance between the parts' results.
    splits: u32,
    outer: u32,
    outer_terms: u32,
    c_split: u32,
    tiles_m: u32,
    tiles_n: u32,
    // PHASES only: how many there are along each axis, and the most pixels of one.
    phases_h: u32,
    phases_w: u32,
    phase_h: u32,
    phase_w: u32,
}
var<immediate> params: Params;

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
#ifdef VEC_C
@group(0) @binding(2) var<storage, read_write> dest: array<Storage4>;
#else
@group(0) @binding(2) var<storage, read_write> dest: array<Storage>;
#endif
#ifdef ROW_START
@group(0) @binding(3) var<storage, read> bias: array<Storage>;
#endif

const LANES = vec4<u32>(0u, 1u, 2u, 3u);

struct Rows {
    // Where k = 0 of each row lies.
    at: vec4<u32>,
}

fn a_scalar(i: u32) -> Accum {
#ifdef VEC_A
    return Accum4(a[i >> 2u])[i & 3u];
#else
    return Accum(a[i]);
#endif
}

fn source_scalar(i: u32) -> Accum {
#ifdef VEC_B
    return Accum4(source[i >> 2u])[i & 3u];
#else
    return Accum(source[i]);
#endif
}

fn gather(at: vec4<u32>, valid: vec4<bool>) -> Accum4 {
    let values = Accum4(source_scalar(at.x), source_scalar(at.y), source_scalar(at.z), source_scalar(at.w));
    return select(Accum4(), values, valid);
}

fn load_a(rows: Rows, k: u32) -> Block {
#ifdef VEC_A
    let i = (rows.at + k) >> vec4<u32>(2u);
    return Block(Accum4(a[i.x]), Accum4(a[i.y]), Accum4(a[i.z]), Accum4(a[i.w]));
#else
    return transpose(Block(
        load_a_single(rows, k),
        load_a_single(rows, k + 1u),
        load_a_single(rows, k + 2u),
        load_a_single(rows, k + 3u),
    ));
#endif
}

fn load_a_single(rows: Rows, k: u32) -> Accum4 {
    let i = rows.at + k;
    return Accum4(a_scalar(i.x), a_scalar(i.y), a_scalar(i.z), a_scalar(i.w));
}

#ifdef ENTRY_grad_weight
struct Columns {
    column: u32,
    // Group, part of the sum, and column of C.
    c_at: u32,
    // Channel's plane.
    plane: vec4<u32>,
    // Position of the kernel's tap, relative to the output pixel times the stride. May be below zero, wrapping around.
    y: vec4<u32>,
    x: vec4<u32>,
    // At one row of the output: where x = 0 lies, and whether that row exists.
    at: vec4<u32>,
    valid: vec4<bool>,
}

fn rows_at(row: u32, z: u32) -> Rows {
    let group = z / params.splits;
    let channel = group * params.rows + min(row + LANES, vec4<u32>(params.rows - 1u));
    return Rows(channel * (params.dest_h * params.dest_w));
}

fn columns_at(column: u32, z: u32) -> Columns {
    let group = z / params.splits;
    let at = min(column + LANES, vec4<u32>(params.columns - 1u));
    let channel = at / vec4<u32>(params.taps);
    let tap = at - channel * params.taps;
    let ky = tap / vec4<u32>(params.kernel_w);
    let kx = tap - ky * params.kernel_w;
    return Columns(
        column,
        group * params.rows * params.columns + (z - group * params.splits) * params.c_split + column,
        (group * params.channels + channel) * (params.source_h * params.source_w),
        ky * params.dilation_h - params.padding_h,
        kx * params.dilation_w - params.padding_w,
        vec4<u32>(),
        vec4<bool>(),
    );
}

// outer = sample * rows of the output + row
fn enter_rows(rows: Rows, outer: u32) -> Rows {
    let sample = outer / params.dest_h;
    let plane = params.dest_h * params.dest_w;
    return Rows(rows.at + sample * params.groups * params.rows * plane + (outer - sample * params.dest_h) * params.dest_w);
}

fn enter_columns(columns: Columns, outer: u32) -> Columns {
    let sample = outer / params.dest_h;
    let image = sample * params.groups * params.channels * (params.source_h * params.source_w);
    let y = columns.y + (outer - sample * params.dest_h) * STRIDE_H;
    var entered = columns;
    entered.valid = y < vec4<u32>(params.source_h);
    entered.at = image + columns.plane + y * params.source_w;
    return entered;
}

fn load_b_single(columns: Columns, k: u32) -> Accum4 {
    let x = columns.x + k * STRIDE_W;
    let valid = columns.valid & (x < vec4<u32>(params.source_w));
    return gather(select(vec4<u32>(), columns.at + x, valid), valid);
}

fn load_b(columns: Columns, k: u32) -> Block {
    return Block(
        load_b_single(columns, k),
        load_b_single(columns, k + 1u),
        load_b_single(columns, k + 2u),
        load_b_single(columns, k + 3u),
    );
}

fn store_c(row: u32, columns: Columns, value: Accum4) {
    let i = columns.c_at + row * params.columns;
#ifdef VEC_C
    if columns.column < params.columns {
        dest[i >> 2u] = Storage4(value);
    }
#else
    #for j in 0..4
    if columns.column + #ju < params.columns {
        dest[i + #ju] = Storage(value[#j]);
    }
    #end
#endif
}
#else
struct Columns {
    column: u32,
    // Where row 0 of each pixel of `dest` lies.
    c_at: vec4<u32>,
    // Where channel 0 of each pixel's image lies.
    image: vec4<u32>,
    y: vec4<u32>,
    x: vec4<u32>,
    // At one tap: where channel 0 of the source pixel lies, and whether that pixel exists.
    at: vec4<u32>,
    valid: vec4<bool>,
}

#import "shared/conv2d_part.wgsl"

fn k_padded() -> u32 {
    return (params.channels + 3u) & ~3u;
}

fn rows_at(row: u32, z: u32) -> Rows {
    return Rows((part.group * params.taps * params.rows + min(row + LANES, vec4<u32>(params.rows - 1u))) * k_padded());
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
    let image = sample * params.groups + part.group;
    return Columns(
        column,
        image * params.rows * (params.dest_h * params.dest_w) + y * params.dest_w + x,
        image * params.channels * (params.source_h * params.source_w),
        y,
        x,
        vec4<u32>(),
        vec4<bool>(),
    );
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

fn enter_rows(rows: Rows, outer: u32) -> Rows {
    let tap = tap_at(outer);
    return Rows(rows.at + (tap.x * params.kernel_w + tap.y) * params.rows * k_padded());
}

// outer = number of the tap among those of the part
fn enter_columns(columns: Columns, outer: u32) -> Columns {
    let tap = tap_at(outer);
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
    var entered = columns;
    entered.valid = whole & (y < vec4<u32>(params.source_h)) & (x < vec4<u32>(params.source_w));
    entered.at = columns.image + select(vec4<u32>(), y * params.source_w + x, entered.valid);
    return entered;
}

fn load_b_single(columns: Columns, k: u32) -> Accum4 {
    let at = columns.at + k * (params.source_h * params.source_w);
#ifdef VEC_B
    return Accum4(source[at.x >> 2u]);
#else
    return gather(at, columns.valid);
#endif
}

fn load_b(columns: Columns, k: u32) -> Block {
    return Block(
        load_b_single(columns, k),
        load_b_single(columns, k + 1u),
        load_b_single(columns, k + 2u),
        load_b_single(columns, k + 3u),
    );
}

#ifdef ROW_START
fn row_start(row: u32, z: u32) -> Accum4 {
    let i = part.group * params.rows + min(row + LANES, vec4<u32>(params.rows - 1u));
    return Accum4(Accum(bias[i.x]), Accum(bias[i.y]), Accum(bias[i.z]), Accum(bias[i.w]));
}
#endif

fn store_c(row: u32, columns: Columns, sums: Accum4) {
    let value = epilogue(sums);
    let i = columns.c_at + row * (params.dest_h * params.dest_w);
#ifdef VEC_C
    if columns.column < params.columns {
        dest[i.x >> 2u] = Storage4(value);
    }
#else
    #for j in 0..4
    if column_exists(columns, #ju) {
        dest[i[#j]] = Storage(value[#j]);
    }
    #end
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
) {
    let tile = tile_of(linear_workgroup(workgroup_id, num_workgroups));
    part = part_at(tile.z);
    if part.group < params.groups {
        gemm(tile, Terms(0u, part_taps(), 0u, params.channels), local_index);
    }
}
#endif

#ifdef ENTRY_grad_input
@compute @workgroup_size(GEMM_INVOCATIONS)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let tile = tile_of(linear_workgroup(workgroup_id, num_workgroups));
    part = part_at(tile.z);
    if part.group < params.groups {
        gemm(tile, Terms(0u, part_taps(), 0u, params.channels), local_index);
    }
}
#endif

#ifdef ENTRY_grad_weight
@compute @workgroup_size(GEMM_INVOCATIONS)
fn grad_weight(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let tile = tile_of(linear_workgroup(workgroup_id, num_workgroups));
    if tile.z < params.groups * params.splits {
        let begin = (tile.z % params.splits) * params.outer_terms;
        gemm(tile, Terms(begin, min(params.outer, begin + params.outer_terms), 0u, params.dest_w), local_index);
    }
}
#endif

#ifdef ENTRY_grad_bias
#import "shared/gemm_sum.wgsl"

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
#ifdef VEC_A
    var sum = Accum4();
#else
    var sum = Accum();
#endif
    let end = min(params.samples * params.segments, (part + 1u) * params.terms);
    for (var term = part * params.terms; term < end; term++) {
        let sample = term / params.segments;
        let begin = (term - sample * params.segments) * params.segment;
        let plane = (sample * params.channels + channel) * params.plane;
        for (var pixel = begin + local_index; pixel < min(params.plane, begin + params.segment); pixel += SUM_INVOCATIONS) {
#ifdef VEC_A
            sum += Accum4(grad_output[plane + pixel]);
#else
            sum += Accum(grad_output[plane + pixel]);
#endif
        }
    }
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

#ifdef ENTRY_pack_weight
struct Params {
    // Vectors of `packed`.
    vectors: u32,
    rows: u32,
    channels: u32,
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
    let vectors = (params.channels + 3u) / 4u;
    let row = i / vectors;
    let tap = row / params.rows;
    let group = tap / params.taps;
    let channel = (i - row * vectors) * 4u;
    let at = group * params.group_stride + (row - tap * params.rows) * params.row_stride + (tap - group * params.taps);
    var values = Storage4();
    #for j in 0..4
    if channel + #ju < params.channels {
        values[#j] = weight[at + (channel + #ju) * params.channel_stride];
    }
    #end
    packed[i] = values;
}
#endif
