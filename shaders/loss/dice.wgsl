// loss = mean over rows (samples and classes) of 1 - (2 sum p t + smooth) / (sum p + sum t + smooth), sums over the row's pixels;
// 0 for a row whose denominator is 0. Each row is multiplied by the weight of its sample, where SAMPLE_WEIGHTS.
// With d the fraction and g = -grad_loss * weight / rows * (2 t - d) / (sum p + sum t + smooth) the gradient for a probability:
//   softmax: grad_input = p (g - sum of g p over the classes); sigmoid: grad_input = g p (1 - p)
//
// Three kernels make the loss: `softmax` the largest input of each pixel and 1 / the sum of exponentials (where SOFTMAX), `sums`
// the sums of each row, `loss` their mean. Where LABELS, the target is 1 at the label and 0 else; pixels with a label of
// ignore_index do not count (where IGNORES), and any other that is no class makes the loss NaN.
//
// bindings   softmax: input [N, classes, ...inner], found vec2 [positions]
//            sums: input, target (labels u32 [N, ...inner], or as input), sums [rows, 2] (one split) or [rows, 2, splits] (sum.combine
//            adds them up), found (where SOFTMAX)
//            loss: sums [rows, 2], loss [1] (one split) or [splits] (sum.combine adds them up), sample_weights (where SAMPLE_WEIGHTS)
//            grad_input: input, target, sums [rows, 2], grad_loss [1], grad_input, sample_weights (where SAMPLE_WEIGHTS)
// in place   grad_input: input (each element is read before it is written)
// dispatch   softmax, grad_input: one invocation per pixel of a sample; sums: one per row and split; loss: one per split; 64 per
//            workgroup, folded
// workgroup  0 bytes
// source     https://arxiv.org/abs/1606.04797, https://docs.monai.io/en/stable/losses.html#diceloss
#import "shared/index.wgsl"
#import "shared/math.wgsl"
#import "shared/sums.wgsl"

// Two sums at once.
alias Term = vec2<f32>;

struct Params {
    positions: u32,
    classes: u32,
    inner: u32,
    rows: u32,
    splits: u32,
    // 1 / rows
    scale: f32,
    smooth_: f32,
    ignore_index: u32,
#ifdef SAMPLE_WEIGHTS
    per_weight: u32,
#endif
}
var<immediate> params: Params;
#import "shared/positions.wgsl"
#ifdef SAMPLE_WEIGHTS
#import "shared/sample_weights.wgsl"
#endif

#ifdef ENTRY_loss
@group(0) @binding(0) var<storage, read> sums_: array<f32>;
@group(0) @binding(1) var<storage, read_write> losses: array<f32>;

@compute @workgroup_size(64)
fn loss(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let split = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if split >= params.splits {
        return;
    }
    var added = LongSum();
    for (var row = split; row < params.rows; row += params.splits) {
        let total = sums_[2u * row + 1u] + params.smooth_;
        let fraction = (2.0 * sums_[2u * row] + params.smooth_) / total;
#ifdef SAMPLE_WEIGHTS
        let weight = sample_weight(row / params.classes);
        add_term(&added, Term(weight * (1.0 - select(fraction, 1.0, total == 0.0))));
#else
        add_term(&added, Term(1.0 - select(fraction, 1.0, total == 0.0)));
#endif
    }
    losses[split] = total_of(added).x * params.scale;
}
#else

#ifndef IN_PLACE_0
@group(0) @binding(0) var<storage, read> input: array<Storage>;
#endif

fn load(i: u32) -> Accum {
#ifdef IN_PLACE_0
    return Accum(grad[i]);
#else
    return Accum(input[i]);
#endif
}

// The largest input of a pixel.
fn largest_of(start: u32) -> Accum {
    var largest = load(start);
    for (var c = 1u; c < params.classes; c++) {
        largest = max(largest, load(start + c * params.inner));
    }
    return largest;
}

fn sigmoid_(x: Accum) -> Accum {
    return sigmoid4(Accum4(x)).x;
}

#ifdef ENTRY_softmax
@group(0) @binding(1) var<storage, read_write> found: array<vec2<f32>>;

@compute @workgroup_size(64)
fn softmax(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let position = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if position >= params.positions {
        return;
    }
    let start = first_element(position);
    let largest = largest_of(start);
    var added = LongSum();
    for (var c = 0u; c < params.classes; c++) {
        add_term(&added, Term(exp(load(start + c * params.inner) - largest)));
    }
    found[position] = vec2<f32>(largest, 1.0 / total_of(added).x);
}
#else

#ifdef LABELS
@group(0) @binding(1) var<storage, read> labels: array<u32>;

// NaN, made from bits that no compiler can fold away.
fn not_a_number() -> f32 {
    return bitcast<f32>(0x7fc00000u | (params.positions & 1u));
}

fn target_at(position: u32, c: u32, element: u32) -> Accum {
    let label = labels[position];
    let value = select(0.0, 1.0, label == c);
    return select(value, not_a_number(), label >= params.classes);
}
#else
@group(0) @binding(1) var<storage, read> target_values: array<Storage>;

fn target_at(position: u32, c: u32, element: u32) -> Accum {
    return Accum(target_values[element]);
}
#endif

fn counts(position: u32) -> bool {
#ifdef IGNORES
    return labels[position] != params.ignore_index;
#else
    return true;
#endif
}

#ifdef ENTRY_sums
@group(0) @binding(2) var<storage, read_write> sums_: array<f32>;
#ifdef SOFTMAX
@group(0) @binding(3) var<storage, read> found: array<vec2<f32>>;
#endif

@compute @workgroup_size(64)
fn sums(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    let row = i / params.splits;
    let split = i % params.splits;
    if row >= params.rows {
        return;
    }
    let c = row % params.classes;
    let first_position = row / params.classes * params.inner;
    var added = LongSum();
    for (var pixel = split; pixel < params.inner; pixel += params.splits) {
        let element = row * params.inner + pixel;
        let position = first_position + pixel;
#ifdef SOFTMAX
        let p = exp(load(element) - found[position].x) * found[position].y;
#else
        let p = sigmoid_(load(element));
#endif
        let t = target_at(position, c, element);
        add_term(&added, select(Term(), Term(p * t, p + t), counts(position)));
    }
    let total = total_of(added);
    sums_[2u * row * params.splits + split] = total.x;
    sums_[(2u * row + 1u) * params.splits + split] = total.y;
}
#else
@group(0) @binding(2) var<storage, read> sums_: array<Storage>;
@group(0) @binding(3) var<storage, read> grad_loss: array<Storage>;
@group(0) @binding(4) var<storage, read_write> grad: array<Storage>;

// The gradient for a probability.
fn by_probability(position: u32, c: u32, element: u32) -> Accum {
    let row = position / params.inner * params.classes + c;
    let total = Accum(sums_[2u * row + 1u]) + params.smooth_;
    let fraction = (2.0 * Accum(sums_[2u * row]) + params.smooth_) / total;
#ifdef SAMPLE_WEIGHTS
    let factor = params.scale * Accum(grad_loss[0]) * sample_weight(position / params.inner);
    let gradient = factor * (fraction - 2.0 * target_at(position, c, element)) / total;
#else
    let gradient = params.scale * Accum(grad_loss[0]) * (fraction - 2.0 * target_at(position, c, element)) / total;
#endif
    return select(gradient, 0.0, total == 0.0);
}

@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let position = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if position >= params.positions {
        return;
    }
    let start = first_element(position);
    let is_counted = counts(position);
#ifdef SOFTMAX
    let largest = largest_of(start);
    var added = LongSum();
    for (var c = 0u; c < params.classes; c++) {
        let element = start + c * params.inner;
        let e = exp(load(element) - largest);
        add_term(&added, Term(e, e * by_probability(position, c, element)));
    }
    let sum = total_of(added).x;
    let mean = total_of(added).y / sum;
#endif
    for (var c = 0u; c < params.classes; c++) {
        let element = start + c * params.inner;
        let g = by_probability(position, c, element);
#ifdef SOFTMAX
        let gradient = exp(load(element) - largest) / sum * (g - mean);
#else
        let p = sigmoid_(load(element));
        let gradient = g * p * (1.0 - p);
#endif
        grad[element] = Storage(select(0.0, gradient, is_counted));
    }
}
#endif
#endif
#endif
