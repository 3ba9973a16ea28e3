// Convolution with few channels in a group (depthwise at one): a matrix product would compute mostly padding. Each
// invocation reads a piece of the source into registers and makes from it a block of ROWS rows by four columns in OUT
// channels of the result, TAPS_H by TAPS_W kernel positions at a time.
//
// Formulas as in conv2d.wgsl.
//
// Along each axis the pixels of a block are `dest_step` apart, those that are read `source_step`. Where a convolution is
// dilated or its gradient strided, this makes a dense one of it: all pixels of a block meet the same kernel positions, and
// what one reads its neighbours read too. Pixel i and kernel position t meet in pixel i * STEP + t of what is read
// (`forward`, `grad_weight`), where t runs through all positions; in `grad_input` STEP is 1, and t runs backwards through
// every `tap_step`-th position from the first that meets a pixel of grad_output.
// Rows of the result (grad_weight: of grad_output) are whole vectors of four pixels side by side, as blocks are, except with
// BY_ELEMENT. Where blocks skip pixels, because they are further apart than the kernel is wide, GAP of them are left out each time.
//
// bindings   forward: weight, input, output, bias (ROW_START). grad_input: weight, grad_output, grad_input.
//            grad_weight: grad_output, input, grad_weight or the parts of a split sum [splits, numel].
// dispatch   forward, grad_input: one invocation per block; columns fastest, then rows, blocks of channels, groups and
//            samples; 64 per workgroup, folded. grad_weight: one workgroup per OUT * TAPS_H * TAPS_W weights and part of the
//            sum over blocks; kernel positions fastest, then input channels, blocks of channels, groups, parts; folded
// workgroup  grad_weight without subgroups 256 bytes for each weight, at most 16 KiB; else 0
// source     https://pytorch.org/docs/stable/generated/torch.nn.Conv2d.html
#import "shared/index.wgsl"
#import "shared/epilogue.wgsl"

struct Params {
    samples: u32,
    groups: u32,
    // Channels of a group in the result (grad_weight: in grad_output), and in the other image.
    dest_channels: u32,
    source_channels: u32,
    // From one of these channels to the next in the weights.
    weight_dest: u32,
    weight_source: u32,
    kernel_h: u32,
    kernel_w: u32,
    dest_h: u32,
    dest_w: u32,
    source_h: u32,
    source_w: u32,
    stride_h: u32,
    stride_w: u32,
    padding_h: u32,
    padding_w: u32,
    dilation_h: u32,
    dilation_w: u32,
    dest_step_h: u32,
    dest_step_w: u32,
    source_step_h: u32,
    source_step_w: u32,
    tap_step_h: u32,
    tap_step_w: u32,
    // Blocks that begin at pixel 0 and are `dest_step` apart; as many begin at pixel 1, and so on.
    blocks_h: u32,
    blocks_w: u32,
    // Pieces of TAPS_H by TAPS_W of the kernel positions that a pixel meets.
    pieces_h: u32,
    pieces_w: u32,
    // grad_weight only: parts of the sum, and blocks of each.
    splits: u32,
    terms: u32,
#for k in 0..SETTINGS
    setting_#k: f32,
#end
}
var<immediate> params: Params;

fn runtime_number() -> u32 {
    return params.samples;
}

#ifdef ENTRY_grad_weight
#ifdef BY_ELEMENT
@group(0) @binding(0) var<storage, read> grad_output: array<Storage>;
#else
@group(0) @binding(0) var<storage, read> grad_output: array<Storage4>;
#endif
#else
@group(0) @binding(0) var<storage, read> weight: array<Storage>;
#endif
#ifdef PAIRS
@group(0) @binding(1) var<storage, read> source: array<Storage2>;
#else
@group(0) @binding(1) var<storage, read> source: array<Storage>;
#endif
#ifdef ENTRY_grad_weight
@group(0) @binding(2) var<storage, read_write> output: array<Storage>;
#else
#ifdef BY_ELEMENT
@group(0) @binding(2) var<storage, read_write> output: array<Storage>;
#else
@group(0) @binding(2) var<storage, read_write> output: array<Storage4>;
#endif
#endif
#ifdef ROW_START
@group(0) @binding(3) var<storage, read> bias: array<Storage>;
#endif

// Blocks in all along each axis.
fn all_blocks_h() -> u32 {
    return min(params.dest_step_h, params.dest_h) * params.blocks_h;
}

fn all_blocks_w() -> u32 {
    return min(params.dest_step_w, params.dest_w) * params.blocks_w;
}

// The first row, or column, of a block.
fn first_row(block: u32) -> u32 {
    let phase = block / params.blocks_h;
    return phase + (block - phase * params.blocks_h) * ROWS * params.dest_step_h;
}

fn first_column(block: u32) -> u32 {
    let phase = block / params.blocks_w;
    return phase + (block - phase * params.blocks_w) * 4u * params.dest_step_w;
}

#ifdef ENTRY_grad_weight
#ifdef SUBGROUPS
const SUM_INVOCATIONS = SUBGROUP_SIZE;
#else
const SUM_INVOCATIONS = 64u;

// [weight][invocation]
var<workgroup> invocation_sums: array<Accum, SUMS * 64>;
#endif

@compute @workgroup_size(SUM_INVOCATIONS)
fn grad_weight(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_workgroup(workgroup_id, num_workgroups);
    let pieces = params.pieces_h * params.pieces_w;
    let piece = i % pieces;
    let c_all = i / pieces;
    let c = c_all % params.source_channels;
    let o_all = c_all / params.source_channels;
    let o_blocks = (params.dest_channels + OUT - 1u) / OUT;
    let o = o_all % o_blocks * OUT;
    let g_all = o_all / o_blocks;
    let group = g_all % params.groups;
    let part = g_all / params.groups;
    if part >= params.splits {
        return;
    }
    let ky = piece / params.pieces_w * TAPS_H;
    let kx = piece % params.pieces_w * TAPS_W;
    let y_tap = ky * params.dilation_h - params.padding_h;
    let x_tap = kx * params.dilation_w - params.padding_w;
    let blocks_h = all_blocks_h();
    let blocks_w = all_blocks_w();
    let end = min(params.samples * blocks_h * blocks_w, (part + 1u) * params.terms);
    #for s in 0..SUMS
    var sum#s = Accum();
    #end
    for (var block = part * params.terms + local_index; block < end; block += SUM_INVOCATIONS) {
        let row = block / blocks_w;
        let sample = row / blocks_h;
        let y = first_row(row - sample * blocks_h);
        let x = first_column(block - row * blocks_w);
        let image = sample * params.groups + group;
        let region_plane = image * params.source_channels + c;
        let region_y = y * params.stride_h + y_tap;
        let region_x = x * params.stride_w + x_tap;
        #import "shared/conv2d_region.wgsl"
        #for o in 0..OUT
        {
            let plane = image * params.dest_channels + min(o + #ou, params.dest_channels - 1u);
            #for r in 0..ROWS
            {
                let dest_y = y + #ru * params.dest_step_h;
                let at = (plane * params.dest_h + dest_y) * params.dest_w;
#ifdef BY_ELEMENT
                var g = Accum4();
                #for j in 0..4
                {
                    let dest_x = x + #ju * params.dest_step_w;
                    let exists = dest_y < params.dest_h && dest_x < params.dest_w;
                    g[#j] = select(Accum(), Accum(grad_output[select(0u, at + dest_x, exists)]), exists);
                }
                #end
#else
                let exists = dest_y < params.dest_h;
                let g = select(Accum4(), Accum4(grad_output[select(0u, (at + x) / 4u, exists)]), exists);
#endif
                #for ty in 0..TAPS_H
                #for tx in 0..TAPS_W
                sum#((o * TAPS_H + ty) * TAPS_W + tx) += dot(g, Accum4(
                    region_#(r * STEP_H + ty)_#(tx),
                    region_#(r * STEP_H + ty)_#(STEP_W + tx),
                    region_#(r * STEP_H + ty)_#(2 * STEP_W + tx),
                    region_#(r * STEP_H + ty)_#(3 * STEP_W + tx),
                ));
                #end
                #end
            }
            #end
        }
        #end
    }
    let count = params.groups * params.dest_channels * params.weight_dest;
    let first = part * ((count + 3u) & ~3u) + group * params.dest_channels * params.weight_dest + c * params.weight_source
        + ky * params.kernel_w + kx;
#ifdef SUBGROUPS
    #for o in 0..OUT
    #for ty in 0..TAPS_H
    #for tx in 0..TAPS_W
    {
        let total = subgroupAdd(sum#((o * TAPS_H + ty) * TAPS_W + tx));
        if local_index == 0u && o + #ou < params.dest_channels {
            output[first + (o + #ou) * params.weight_dest + #tyu * params.kernel_w + #txu] = Storage(total);
        }
    }
    #end
    #end
    #end
#else
    #for s in 0..SUMS
    invocation_sums[#su * SUM_INVOCATIONS + local_index] = sum#s;
    #end
    workgroupBarrier();
    let o_own = o + local_index / (TAPS_H * TAPS_W);
    if local_index < SUMS && o_own < params.dest_channels {
        var total = Accum();
        for (var i = 0u; i < SUM_INVOCATIONS; i++) {
            total += invocation_sums[local_index * SUM_INVOCATIONS + i];
        }
        let tap = local_index % (TAPS_H * TAPS_W);
        output[first + o_own * params.weight_dest + tap / TAPS_W * params.kernel_w + tap % TAPS_W] = Storage(total);
    }
#endif
}
#else
#ifdef ENTRY_grad_input
#ifdef STRIDED
#import "shared/taps.wgsl"
#else
fn first_tap(at: u32, kernel: u32, stride: u32, dilation: u32) -> u32 {
    return 0u;
}
#endif

// Where it meets it. A whole number, which may be below zero.
fn source_at(at: u32, tap: u32, stride: u32, dilation: u32) -> u32 {
#ifdef STRIDED
    return u32((i32(at) - i32(tap * dilation)) / i32(stride));
#else
    return at - tap * dilation;
#endif
}
#endif

// The kernel position in the weights of one channel that is number (y, x) of those that a block takes at a time.
fn tap_at(ky: u32, kx: u32, y: u32, x: u32) -> u32 {
#ifdef ENTRY_grad_input
    return (ky + (TAPS_H - 1u - y) * params.tap_step_h) * params.kernel_w + kx + (TAPS_W - 1u - x) * params.tap_step_w;
#else
    return (ky + y) * params.kernel_w + kx + x;
#endif
}

#ifdef GUARD_TAPS
fn tap_exists(ky: u32, kx: u32, y: u32, x: u32) -> vec4<bool> {
    let tap_y = ky + (TAPS_H - 1u - y) * params.tap_step_h;
    let tap_x = kx + (TAPS_W - 1u - x) * params.tap_step_w;
    return vec4<bool>(tap_y < params.kernel_h && tap_x < params.kernel_w);
}
#endif

fn convolve(i: u32) {
    let blocks_w = all_blocks_w();
    let blocks_h = all_blocks_h();
    let row = i / blocks_w;
    let o_all = row / blocks_h;
    let o_blocks = (params.dest_channels + OUT - 1u) / OUT;
    let image = o_all / o_blocks;
    if image >= params.samples * params.groups {
        return;
    }
    let group = image % params.groups;
    let y = first_row(row - o_all * blocks_h);
    let x = first_column(i - row * blocks_w);
    let o = (o_all - image * o_blocks) * OUT;
    let group_weight = group * params.dest_channels * params.source_channels * params.kernel_h * params.kernel_w;
    #for o in 0..OUT
    let o#o = min(o + #ou, params.dest_channels - 1u);
    #end
    #for o in 0..OUT
    #for r in 0..ROWS
    var sum#o_#r = Accum4();
    #end
    #end
#ifdef ROW_START
    #for o in 0..OUT
    {
        let start = Accum4(Accum(bias[group * params.dest_channels + o#o]));
        #for r in 0..ROWS
        sum#o_#r = start;
        #end
    }
    #end
#endif
#ifdef ENTRY_grad_input
    let first_y = first_tap(y + params.padding_h, params.kernel_h, params.stride_h, params.dilation_h);
    let first_x = first_tap(x + params.padding_w, params.kernel_w, params.stride_w, params.dilation_w);
    let source_y = source_at(y + params.padding_h, first_y, params.stride_h, params.dilation_h);
    let source_x = source_at(x + params.padding_w, first_x, params.stride_w, params.dilation_w);
#else
    let first_y = 0u;
    let first_x = 0u;
    let source_y = y * params.stride_h - params.padding_h;
    let source_x = x * params.stride_w - params.padding_w;
#endif
#ifdef ONE_STEP
    let c = 0u;
    let piece_y = 0u;
    let piece_x = 0u;
    {
#else
    // One loop over channels and pieces of the kernel: drivers that keep in memory what lives across loops do so for each
    // loop around another.
    for (var step = 0u; step < params.source_channels * params.pieces_h * params.pieces_w; step++) {
        let c_y = step / params.pieces_w;
        let c = c_y / params.pieces_h;
        let piece_y = c_y - c * params.pieces_h;
        let piece_x = step - c_y * params.pieces_w;
#endif
        let ky = first_y + piece_y * TAPS_H * params.tap_step_h;
        let kx = first_x + piece_x * TAPS_W * params.tap_step_w;
        let from_weight = group_weight + c * params.weight_source;
        #for ty in 0..TAPS_H
        #for tx in 0..TAPS_W
        #for o in 0..OUT
        let factor_#ty_#tx_#o = Accum(weight[from_weight + o#o * params.weight_dest + tap_at(ky, kx, #tyu, #txu)]);
        #end
        #end
        #end
        let region_plane = image * params.source_channels + c;
#ifdef ENTRY_grad_input
        let region_y = source_y - (piece_y * TAPS_H + TAPS_H - 1u) * params.source_step_h;
        let region_x = source_x - (piece_x * TAPS_W + TAPS_W - 1u) * params.source_step_w;
#else
        let region_y = source_y + piece_y * TAPS_H * params.source_step_h;
        let region_x = source_x + piece_x * TAPS_W * params.source_step_w;
#endif
        #import "shared/conv2d_region.wgsl"
        #for ty in 0..TAPS_H
        #for tx in 0..TAPS_W
        {
#ifdef GUARD_TAPS
            let exists = tap_exists(ky, kx, #tyu, #txu);
#endif
            #for r in 0..ROWS
            {
                let pixels = Accum4(
                    region_#(r * STEP_H + ty)_#(tx),
                    region_#(r * STEP_H + ty)_#(STEP_W + tx),
                    region_#(r * STEP_H + ty)_#(2 * STEP_W + tx),
                    region_#(r * STEP_H + ty)_#(3 * STEP_W + tx),
                );
                #for o in 0..OUT
#ifdef GUARD_TAPS
                sum#o_#r += select(Accum4(), factor_#ty_#tx_#o * pixels, exists);
#else
                sum#o_#r += factor_#ty_#tx_#o * pixels;
#endif
                #end
            }
            #end
        }
        #end
        #end
    }
    #for o in 0..OUT
    #for r in 0..ROWS
    {
        let dest_y = y + #ru * params.dest_step_h;
        let at = ((image * params.dest_channels + o#o) * params.dest_h + dest_y) * params.dest_w;
        if o + #ou < params.dest_channels && dest_y < params.dest_h {
#ifdef BY_ELEMENT
            #for j in 0..4
            let x#j = x + #ju * params.dest_step_w;
            if x#j < params.dest_w {
                output[at + x#j] = Storage(epilogue(Accum4(sum#o_#r[#j]), at + x#j).x);
            }
            #end
#else
            output[(at + x) / 4u] = Storage4(epilogue(sum#o_#r, (at + x) / 4u));
#endif
        }
    }
    #end
    #end
}

#ifdef ENTRY_grad_input
@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    convolve(linear_invocation(workgroup_id, num_workgroups, local_index, 64u));
}
#else
@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    convolve(linear_invocation(workgroup_id, num_workgroups, local_index, 64u));
}
#endif
#endif
