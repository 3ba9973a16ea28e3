// Adam as in adam.wgsl, on moments that are kept as dynamic 8-bit codes with a scale for each block of 256 elements:
// exp_avg = signed number of its code * scale, exp_avg_sq = unsigned number of its code * scale; both are encoded again after the step,
// with the largest magnitude of the block as the scale, by the nearest number. src/ops/optim/adam8bit/codes.rs says which numbers there are.
//
// bindings   forward: parameter (changed), gradient, hyper [4] and guard [1] as in shared/update.wgsl; changed: codes of exp_avg and
//            exp_avg_sq [blocks, 256] u8, four in a word, the lowest byte first; their scales [blocks]
// dispatch   one workgroup of 64 per block, an invocation per word, folded
// workgroup  512 bytes
// source     https://arxiv.org/abs/2110.02861, https://pytorch.org/docs/stable/generated/torch.optim.Adam.html
//
// Nothing changes while guard[0] is not finite; codes past the last element are 0. All in f32.
#import "shared/index.wgsl"
#import "shared/math.wgsl"

struct Params {
    elements: u32,
    blocks: u32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    eps: f32,
    weight_decay: f32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read_write> parameter: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> gradient: array<Storage4>;
@group(0) @binding(2) var<storage, read> hyper: array<f32>;
@group(0) @binding(3) var<storage, read> guard: array<f32>;
@group(0) @binding(4) var<storage, read_write> exp_avg: array<u32>;
@group(0) @binding(5) var<storage, read_write> exp_avg_sq: array<u32>;
@group(0) @binding(6) var<storage, read_write> exp_avg_scale: array<f32>;
@group(0) @binding(7) var<storage, read_write> exp_avg_sq_scale: array<f32>;

// The least scale, 2^-100.
const LEAST_SCALE: f32 = 7.8886091e-31;

var<workgroup> largest: array<vec2<f32>, 64>;

// The place of x in 0..1 among all parts of the seven decades: the least of seven lines, here for decades that begin with one part.
fn place_of(x: vec4<f32>, lowest: vec4<f32>) -> vec4<f32> {
    var place = min(lowest, 222222.22 * x + 1.7777778);
    place = min(place, 44444.445 * x + 3.5555556);
    place = min(place, 8888.889 * x + 7.111111);
    place = min(place, 1777.7778 * x + 14.222222);
    place = min(place, 355.55554 * x + 28.444445);
    return min(place, 71.111115 * x + 56.88889);
}

// The number at a place, from 0 to 1: the inverse, by the largest of the lines' inverses.
fn number_at(place: vec4<f32>) -> vec4<f32> {
    var x = max(9e-7 * place - 8e-7, vec4<f32>(0.0));
    x = max(x, 4.5e-6 * place - 8e-6);
    x = max(x, 2.25e-5 * place - 8e-5);
    x = max(x, 1.125e-4 * place - 8e-4);
    x = max(x, 5.625e-4 * place - 8e-3);
    x = max(x, 2.8125e-3 * place - 0.08);
    x = max(x, 1.40625e-2 * place - 0.8);
    return min(x, vec4<f32>(1.0));
}

// The part whose middle is nearest. In the first fifth of a decade's first part, whose number is a power of two, that is the one below.
fn nearest(place: vec4<f32>) -> vec4<i32> {
    let part = vec4<i32>(place);
    let is_below = ((part & (part - 1)) == vec4<i32>(0)) & (place - vec4<f32>(part) < vec4<f32>(0.2));
    return part - select(vec4<i32>(0), vec4<i32>(1), is_below);
}

fn unpack(word: u32) -> vec4<i32> {
    return vec4<i32>((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu));
}

fn pack(codes: vec4<i32>) -> u32 {
    let bytes = (vec4<u32>(codes) & vec4<u32>(0xffu)) << vec4<u32>(0u, 8u, 16u, 24u);
    return bytes.x | bytes.y | bytes.z | bytes.w;
}

fn decode_signed(word: u32) -> vec4<f32> {
    let code = unpack(word);
    let is_negative = code > vec4<i32>(128);
    let x = number_at(vec4<f32>(select(code, 256 - code, is_negative)) + 0.5);
    return select(x, -x, is_negative);
}

fn encode_signed(x: vec4<f32>) -> u32 {
    let size = abs(x);
    let n = nearest(place_of(size, 690909.1 * size + 1.01));
    return pack(select(select(n, -n, x < vec4<f32>(0.0)), vec4<i32>(128), x >= vec4<f32>(0.99648434)));
}

// Without signs there are twice as many parts.
fn decode_unsigned(word: u32) -> vec4<f32> {
    return number_at(0.5 * (vec4<f32>(unpack(word)) + 1.5));
}

fn encode_unsigned(x: vec4<f32>) -> u32 {
    let n = nearest(2.0 * place_of(x, 727272.7 * x + 1.1000005)) - 1;
    // Above 0 no number is 0.
    return pack(select(select(vec4<i32>(0), n, x > vec4<f32>(0.0)), vec4<i32>(255), x >= vec4<f32>(0.9982422)));
}

fn most(x: vec4<f32>) -> f32 {
    return max(max(x.x, x.y), max(x.z, x.w));
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let rates = vec4<f32>(hyper[0], hyper[1], hyper[2], hyper[3]);
    let workgroup = linear_workgroup(workgroup_id, num_workgroups);
    let changes = workgroup < params.blocks && is_finite(guard[0]);
    // Workgroups past the end go along with the last block, as barriers are for all, and write nothing.
    let block = min(workgroup, params.blocks - 1u);
    let i = block * 64u + local_index;
    let vectors = (params.elements + 3u) / 4u;
    let at = min(i, vectors - 1u);
    let is_element = vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(params.elements);

    let p = rates[2] * parameter[at];
    let g = Accum4(gradient[at]) + params.weight_decay * p;
    let m_before = decode_signed(exp_avg[i]) * exp_avg_scale[block];
    let v_before = decode_unsigned(exp_avg_sq[i]) * exp_avg_sq_scale[block];
    // What lies past the end is anything, and counts as 0.
    let m = select(vec4<f32>(0.0), m_before + params.one_minus_beta1 * (g - m_before), is_element);
    let v = select(vec4<f32>(0.0), params.beta2 * v_before + params.one_minus_beta2 * g * g, is_element);

    largest[local_index] = vec2<f32>(most(abs(m)), most(v));
    workgroupBarrier();
    for (var half = 32u; half > 0u; half = half / 2u) {
        if local_index < half {
            largest[local_index] = max(largest[local_index], largest[local_index + half]);
        }
        workgroupBarrier();
    }
    let scales = max(largest[0], vec2<f32>(LEAST_SCALE));
    if !changes {
        return;
    }
    if i < vectors {
        parameter[i] = p - rates[0] * (m / (sqrt(v) / rates[1] + params.eps));
    }
    exp_avg[i] = encode_signed(m / scales.x);
    exp_avg_sq[i] = encode_unsigned(v / scales.y);
    // All have read the scales before the barriers.
    if local_index == 0u {
        exp_avg_scale[block] = scales.x;
        exp_avg_sq_scale[block] = scales.y;
    }
}
