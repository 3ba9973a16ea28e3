// output[n, c, y, x] = the largest input in the window at (y, x), index = its position in the plane (row * W + column);
// of equals the first in reading order, NaN before all. Padding never wins.
// grad_input[n, c, h, w] = sum of grad_output over the windows whose index is (h, w).
// With POSITION_BITS the index is the position in the window (row * KW + column) in so many bits, the first in the lowest bits
// of a word.
//
// bindings   forward: input [N, C, H, W], output [N, C, OH, OW], index u32 [N, C, OH, OW], or its words;
//            grad_input: index, grad_output, grad_input
// in place   no
// dispatch   forward: one invocation per 4 windows, with POSITION_BITS per word; grad_input: one per 4 elements of a row (8
//            with PAIRS, see shared/pool.wgsl); 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.MaxPool2d.html
#import "shared/index.wgsl"
#import "shared/nan.wgsl"
#import "shared/pool.wgsl"

@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(0) var<storage, read> input4: array<Storage4>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage4>;

@group(0) @binding(1) var<storage, read> grad_output: array<Storage>;
@group(0) @binding(1) var<storage, read> grad_output4: array<Storage4>;
@group(0) @binding(2) var<storage, read_write> grad_input_: array<Storage>;
@group(0) @binding(2) var<storage, read_write> grad_input4: array<Storage4>;

#ifdef POSITION_BITS
const POSITIONS: u32 = 32u / POSITION_BITS;
const QUADS: u32 = POSITIONS / 4u;
const POSITION_MASK: u32 = (1u << POSITION_BITS) - 1u;

@group(0) @binding(0) var<storage, read> saved_index: array<u32>;
@group(0) @binding(2) var<storage, read_write> index: array<u32>;

fn saved(o: u32) -> u32 {
    return (saved_index[o / POSITIONS] >> (o % POSITIONS * POSITION_BITS)) & POSITION_MASK;
}

fn saved4(v: u32) -> vec4<u32> {
    let word = saved_index[v / QUADS] >> (v % QUADS * (4u * POSITION_BITS));
    return (vec4<u32>(word) >> (LANE * POSITION_BITS)) & vec4<u32>(POSITION_MASK);
}
#else
@group(0) @binding(0) var<storage, read> saved_index: array<u32>;
@group(0) @binding(0) var<storage, read> saved_index4: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> index: array<vec4<u32>>;

fn saved(o: u32) -> u32 {
    return saved_index[o];
}

fn saved4(v: u32) -> vec4<u32> {
    return saved_index4[v];
}
#endif

struct Pooled {
    largest: Accum4,
    at: vec4<u32>,
}

fn pool_begin(windows: Quad) -> Pooled {
    return Pooled(Accum4(pool_outside()), first_position(windows));
}

fn pool_outside() -> Accum {
    return -infinity(params.width);
}

fn pool_add(pooled: Pooled, value: Accum4, at: vec4<u32>) -> Pooled {
    // NaN by its bits: a compiler with fast math may take `x != x` for false.
    let nan = (bitcast<vec4<u32>>(value) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
    let better = (value > pooled.largest) | nan;
    return Pooled(select(pooled.largest, value, better), select(pooled.at, at, better));
}

fn pool_row(pooled: Pooled) -> Pooled {
    return pooled;
}

fn element(i: u32) -> Accum {
    return Accum(input[i]);
}

fn elements4(v: u32) -> Accum4 {
    return Accum4(input4[v]);
}

fn grad(o: u32) -> Accum {
    return Accum(grad_output[o]);
}

fn grad4(v: u32) -> Accum4 {
    return Accum4(grad_output4[v]);
}

fn share(grad: Accum4, saved: vec4<u32>, at: vec4<u32>) -> Accum4 {
    return select(Accum4(0.0), grad, saved == at);
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
#ifdef POSITION_BITS
    if i * POSITIONS >= params.elements {
        return;
    }
    var word = 0u;
    for (var k = 0u; k < QUADS; k++) {
        let v = i * QUADS + k;
        if 4u * v < params.elements {
            let pooled = pool(v);
            output[v] = Storage4(pooled.largest);
            let at = select(vec4<u32>(0u), pooled.at, 4u * v + LANE < vec4<u32>(params.elements));
            let bits = at << (LANE * POSITION_BITS);
            word |= (bits.x | bits.y | bits.z | bits.w) << (k * 4u * POSITION_BITS % 32u);
        }
    }
    index[i] = word;
#else
    if 4u * i >= params.elements {
        return;
    }
    let pooled = pool(i);
    output[i] = Storage4(pooled.largest);
    index[i] = pooled.at;
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
    grad_input4[sum.begin / 4u] = Storage4(sum.first);
#ifdef PAIRS
    grad_input4[sum.begin / 4u + 1u] = Storage4(sum.second);
#endif
#else
#for k in 0..4
    if #(k)u < sum.count {
        grad_input_[sum.begin + #(k)u] = Storage(sum.first[#k]);
    }
#end
#endif
}
