// output[n, c, y, x] = sum of input in the window at (y, x) / (KH * KW); padding counts as zeros.
// grad_input[n, c, h, w] = sum of grad_output over the windows that cover (h, w) / (KH * KW).
// With COUNTS each window has as many elements as lie between counted_begin and counted_end, in place of KH * KW.
//
// bindings   forward: input [N, C, H, W], output [N, C, OH, OW]; grad_input: grad_output, grad_input
// in place   no
// dispatch   forward: one invocation per 4 windows; grad_input: one per 4 elements of a row (8 with PAIRS, see
//            shared/pool.wgsl); 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.AvgPool2d.html (count_include_pad)
#import "shared/index.wgsl"
#import "shared/pool.wgsl"

@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(0) var<storage, read> input4: array<Storage4>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage4>;

@group(0) @binding(0) var<storage, read> grad_output: array<Storage>;
@group(0) @binding(0) var<storage, read> grad_output4: array<Storage4>;
@group(0) @binding(1) var<storage, read_write> grad_input_: array<Storage>;
@group(0) @binding(1) var<storage, read_write> grad_input4: array<Storage4>;

// Large windows have many terms: those of a row are added first.
struct Pooled {
    rows: Accum4,
    row: Accum4,
}

fn pool_begin(windows: Quad) -> Pooled {
    return Pooled(Accum4(0.0), Accum4(0.0));
}

fn pool_outside() -> Accum {
    return 0.0;
}

fn pool_add(pooled: Pooled, value: Accum4, at: vec4<u32>) -> Pooled {
    return Pooled(pooled.rows, pooled.row + value);
}

fn pool_row(pooled: Pooled) -> Pooled {
    return Pooled(pooled.rows + pooled.row, Accum4(0.0));
}

fn element(i: u32) -> Accum {
    return Accum(input[i]);
}

fn elements4(v: u32) -> Accum4 {
    return Accum4(input4[v]);
}

#ifdef COUNTS
// How many elements windows at these rows and columns have.
fn elements_at(y: vec4<u32>, x: vec4<u32>) -> Accum4 {
    let row = y * params.stride_height;
    let column = x * params.stride_width;
    let rows = min(row + params.kernel_height, vec4<u32>(params.counted_end_height))
        - max(row, vec4<u32>(params.counted_begin_height));
    let columns = min(column + params.kernel_width, vec4<u32>(params.counted_end_width))
        - max(column, vec4<u32>(params.counted_begin_width));
    return Accum4(rows * columns);
}

// Of output elements.
fn elements_of(o: vec4<u32>) -> Accum4 {
    let row = divide4(o, params.output_width);
    let y = row - divide4(row, params.output_height) * params.output_height;
    return elements_at(y, o - row * params.output_width);
}

// A window gives each of its elements a share.
fn grad(o: u32) -> Accum {
    return Accum(grad_output[o]) / elements_of(vec4<u32>(o)).x;
}

fn grad4(v: u32) -> Accum4 {
    return Accum4(grad_output4[v]) / elements_of(4u * v + LANE);
}
#else
fn grad(o: u32) -> Accum {
    return Accum(grad_output[o]);
}

fn grad4(v: u32) -> Accum4 {
    return Accum4(grad_output4[v]);
}
#endif

// Nothing is kept of the windows: all elements share alike.
fn saved(o: u32) -> u32 {
    return 0u;
}

fn saved4(v: u32) -> vec4<u32> {
    return vec4<u32>(0u);
}

fn share(grad: Accum4, saved: vec4<u32>, at: vec4<u32>) -> Accum4 {
    return grad;
}

// What is left to divide sums by.
fn window_elements() -> Accum {
#ifdef COUNTS
    return Accum(1.0);
#else
    return Accum(params.kernel_height * params.kernel_width);
#endif
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if 4u * i >= params.elements {
        return;
    }
#ifdef COUNTS
    let windows = quad(i);
    output[i] = Storage4(pool(i).rows / elements_at(windows.y, windows.x));
#else
    output[i] = Storage4(pool(i).rows / window_elements());
#endif
}

@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.elements / params.width * runs() {
        return;
    }
    let sum = grad_input_run(i);
#ifdef ALIGNED
    grad_input4[sum.begin / 4u] = Storage4(sum.first / window_elements());
#ifdef PAIRS
    grad_input4[sum.begin / 4u + 1u] = Storage4(sum.second / window_elements());
#endif
#else
#for k in 0..4
    if #(k)u < sum.count {
        grad_input_[sum.begin + #(k)u] = Storage(sum.first[#k] / window_elements());
    }
#end
#endif
}
