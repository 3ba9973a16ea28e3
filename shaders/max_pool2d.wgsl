// output[n, c, y, x] = the largest input in the window at (y, x), index = its position in the plane (row * W + column);
// of equals the first in reading order, NaN before all. Padding never wins.
// grad_input[n, c, h, w] = sum of grad_output over the windows whose index is (h, w).
// pack: positions = for each index where in its window it is (row * KW + column), POSITION_BITS each, the first in the
// lowest bits of a word; grad_input_packed: as grad_input, from these.
//
// bindings   forward: input [N, C, H, W], output [N, C, OH, OW], index u32 [N, C, OH, OW];
//            grad_input: index, grad_output, grad_input; pack: index, positions u32;
//            grad_input_packed: positions, grad_output, grad_input
// in place   no
// dispatch   one invocation per element (pack: word) written, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.MaxPool2d.html
#import "shared/index.wgsl"
#import "shared/math.wgsl"
#import "shared/pool.wgsl"

@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage>;
@group(0) @binding(2) var<storage, read_write> index: array<u32>;

@group(0) @binding(0) var<storage, read> saved_index: array<u32>;
@group(0) @binding(1) var<storage, read> grad_output: array<Storage>;
@group(0) @binding(2) var<storage, read_write> grad_input_: array<Storage>;

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
    let x = i % params.output_width;
    let rest = i / params.output_width;
    let y = rest % params.output_height;
    let plane = (rest / params.output_height) * params.height * params.width;
    let rows = window(y, params.stride_height, params.padding_height, params.kernel_height, params.height);
    let columns = window(x, params.stride_width, params.padding_width, params.kernel_width, params.width);
    var at = rows.begin * params.width + columns.begin;
    var largest = Accum(input[plane + at]);
    for (var h = rows.begin; h < rows.end; h++) {
        for (var w = columns.begin; w < columns.end; w++) {
            let value = Accum(input[plane + h * params.width + w]);
            if value > largest || is_nan(value) {
                largest = value;
                at = h * params.width + w;
            }
        }
    }
    output[i] = Storage(largest);
    index[i] = at;
}

@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.elements {
        return;
    }
    let w = i % params.width;
    let rest = i / params.width;
    let h = rest % params.height;
    let plane = (rest / params.height) * params.output_height * params.output_width;
    let rows = windows_over(h, params.stride_height, params.padding_height, params.kernel_height, params.output_height);
    let columns = windows_over(w, params.stride_width, params.padding_width, params.kernel_width, params.output_width);
    var sum = Accum(0.0);
    for (var y = rows.begin; y < rows.end; y++) {
        for (var x = columns.begin; x < columns.end; x++) {
            let o = plane + y * params.output_width + x;
            if saved_index[o] == h * params.width + w {
                sum += Accum(grad_output[o]);
            }
        }
    }
    grad_input_[i] = Storage(sum);
}

#ifdef POSITION_BITS
const POSITIONS = 32u / POSITION_BITS;

@group(0) @binding(0) var<storage, read> found: array<u32>;
@group(0) @binding(1) var<storage, read_write> packed: array<u32>;

@group(0) @binding(0) var<storage, read> positions: array<u32>;

@compute @workgroup_size(64)
fn pack(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let word_index = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    let first = word_index * POSITIONS;
    if first >= params.elements {
        return;
    }
    // Divided once for all: divisions are most of the work.
    var x = first % params.output_width;
    var y = (first / params.output_width) % params.output_height;
    var word = 0u;
    for (var slot = 0u; slot < min(POSITIONS, params.elements - first); slot++) {
        let at = found[first + slot];
        let h = at / params.width;
        let row = h + params.padding_height - y * params.stride_height;
        let column = at - h * params.width + params.padding_width - x * params.stride_width;
        word |= (row * params.kernel_width + column) << (slot * POSITION_BITS);
        x += 1u;
        if x == params.output_width {
            x = 0u;
            y = select(y + 1u, 0u, y + 1u == params.output_height);
        }
    }
    packed[word_index] = word;
}

@compute @workgroup_size(64)
fn grad_input_packed(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.elements {
        return;
    }
    let w = i % params.width;
    let rest = i / params.width;
    let h = rest % params.height;
    let plane = (rest / params.height) * params.output_height * params.output_width;
    let rows = windows_over(h, params.stride_height, params.padding_height, params.kernel_height, params.output_height);
    let columns = windows_over(w, params.stride_width, params.padding_width, params.kernel_width, params.output_width);
    var sum = Accum(0.0);
    for (var y = rows.begin; y < rows.end; y++) {
        let row = h + params.padding_height - y * params.stride_height;
        for (var x = columns.begin; x < columns.end; x++) {
            let o = plane + y * params.output_width + x;
            let column = w + params.padding_width - x * params.stride_width;
            let position = (positions[o / POSITIONS] >> (o % POSITIONS * POSITION_BITS)) & ((1u << POSITION_BITS) - 1u);
            if position == row * params.kernel_width + column {
                sum += Accum(grad_output[o]);
            }
        }
    }
    grad_input_[i] = Storage(sum);
}
#endif
