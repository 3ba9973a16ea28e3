// Convolution with one input and one output channel per group, without a detour through a matrix product.
//
// Formulas as in conv2d.wgsl.
//
// bindings   forward: weight, input, output, bias (ROW_START). grad_input: weight, grad_output, grad_input.
//            grad_weight: grad_output, input, grad_weight or the parts of a split sum [splits, numel].
//            weight [channels, 1, kernel_h, kernel_w]
// dispatch   forward, grad_input: one invocation per 4 neighbours in a row of the result, 64 per workgroup, folded
//            grad_weight: one workgroup per weight and split, folded
// workgroup  grad_weight 256 bytes without subgroups, else 0
// source     https://pytorch.org/docs/stable/generated/torch.nn.Conv2d.html
#import "shared/index.wgsl"

struct Params {
    samples: u32,
    channels: u32,
    kernel_h: u32,
    kernel_w: u32,
    // The result's image; in grad_weight that of grad_output.
    dest_h: u32,
    dest_w: u32,
    // The other image.
    source_h: u32,
    source_w: u32,
    padding_h: u32,
    padding_w: u32,
    dilation_h: u32,
    dilation_w: u32,
    // grad_weight only: parts of the sum over samples * rows, and rows of each.
    splits: u32,
    terms: u32,
}
var<immediate> params: Params;

#ifdef ENTRY_grad_weight
@group(0) @binding(0) var<storage, read> grad_output: array<Storage>;
#else
@group(0) @binding(0) var<storage, read> weight: array<Storage>;
#endif
@group(0) @binding(1) var<storage, read> source: array<Storage>;
@group(0) @binding(2) var<storage, read_write> dest: array<Storage>;
#ifdef ROW_START
@group(0) @binding(3) var<storage, read> bias: array<Storage>;
#endif

#ifdef ENTRY_grad_weight
#import "shared/gemm_sum.wgsl"

// Invocations along a row, and rows at a time.
#ifdef SUBGROUPS
const X_INVOCATIONS = SUBGROUP_SIZE;
const ROW_INVOCATIONS = 1u;
#else
const X_INVOCATIONS = 16u;
const ROW_INVOCATIONS = 4u;
#endif

@compute @workgroup_size(SUM_INVOCATIONS)
fn grad_weight(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_workgroup(workgroup_id, num_workgroups);
    let taps = params.kernel_h * params.kernel_w;
    let count = params.channels * taps;
    if i >= count * params.splits {
        return;
    }
    let part = i / count;
    let element = i - part * count;
    let channel = element / taps;
    let tap = element - channel * taps;
    let ky = tap / params.kernel_w;
    let y_tap = ky * params.dilation_h - params.padding_h;
    let x_tap = (tap - ky * params.kernel_w) * params.dilation_w - params.padding_w;
    let end = min(params.samples * params.dest_h, (part + 1u) * params.terms);
    var sum = Accum();
    let begin = part * params.terms + local_index / X_INVOCATIONS;
    var sample = begin / params.dest_h;
    var y = begin - sample * params.dest_h;
    for (var row = begin; row < end; row += ROW_INVOCATIONS) {
        // Counted along, because division is slow on some devices.
        while y >= params.dest_h {
            y -= params.dest_h;
            sample++;
        }
        let plane = sample * params.channels + channel;
        let source_y = y * STRIDE_H + y_tap;
        if source_y < params.source_h {
            let at = (plane * params.dest_h + y) * params.dest_w;
            let source_at = (plane * params.source_h + source_y) * params.source_w;
            for (var x = local_index % X_INVOCATIONS; x < params.dest_w; x += X_INVOCATIONS) {
                let source_x = x * STRIDE_W + x_tap;
                if source_x < params.source_w {
                    sum += Accum(grad_output[at + x]) * Accum(source[source_at + source_x]);
                }
            }
        }
        y += ROW_INVOCATIONS;
    }
    let total = sum_invocations(sum, local_index);
    if local_index == 0u {
        dest[part * ((count + 3u) & ~3u) + element] = Storage(total);
    }
}
#else
// The source pixel that a tap meets, or one past the image where there is none.
fn source_y(y: u32, ky: u32) -> u32 {
#ifdef ENTRY_grad_input
    let scaled = y + params.padding_h - ky * params.dilation_h;
    return select(params.source_h, scaled / STRIDE_H, scaled < (1u << 31u) && scaled % STRIDE_H == 0u);
#else
    return y * STRIDE_H + ky * params.dilation_h - params.padding_h;
#endif
}

fn source_x(x: u32, kx: u32) -> u32 {
#ifdef ENTRY_grad_input
    let scaled = x + params.padding_w - kx * params.dilation_w;
    return select(params.source_w, scaled / STRIDE_W, scaled < (1u << 31u) && scaled % STRIDE_W == 0u);
#else
    return x * STRIDE_W + kx * params.dilation_w - params.padding_w;
#endif
}

fn convolve(i: u32) {
    let vectors = (params.dest_w + 3u) / 4u;
    let row = i / vectors;
    let x = (i - row * vectors) * 4u;
    let plane = row / params.dest_h;
    if plane >= params.samples * params.channels {
        return;
    }
    let y = row - plane * params.dest_h;
    let channel = plane % params.channels;
#ifdef ROW_START
    var sum = Accum4(Accum(bias[channel]));
#else
    var sum = Accum4();
#endif
    var tap = channel * params.kernel_h * params.kernel_w;
    for (var ky = 0u; ky < params.kernel_h; ky++) {
        let sy = source_y(y, ky);
        if sy < params.source_h {
            let at = (plane * params.source_h + sy) * params.source_w;
            for (var kx = 0u; kx < params.kernel_w; kx++) {
                let factor = Accum(weight[tap + kx]);
                #for j in 0..4
                let sx#j = source_x(x + #ju, kx);
                if sx#j < params.source_w {
                    sum[#j] += factor * Accum(source[at + sx#j]);
                }
                #end
            }
        }
        tap += params.kernel_w;
    }
    #for j in 0..4
    if x + #ju < params.dest_w {
        dest[row * params.dest_w + x + #ju] = Storage(sum[#j]);
    }
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
