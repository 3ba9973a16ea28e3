// The kernels of cross-entropies. With q the target's share of a class, smoothed and weighted, and l = ln sum_j exp(x_j):
//   loss = scale * sum over positions of sum_c q_c (l - x_c)
//   grad_input_c = scale * grad_loss * (softmax(x)_c sum_j q_j - q_c)
// Both times the weight of the position's sample, where SAMPLE_WEIGHTS.
// The importing file defines binding 1 and
//   fn target_at(position: u32) -> u32                                  read once for each position
//   fn counts(target_: u32) -> bool                                     whether the position counts
//   fn target_share(target_: u32, c: u32, element: u32) -> Accum    before smoothing
//
// bindings   forward: input [N, classes, ...inner], target, sums f32 [splits] (sum.combine adds them up);
//            grad_input: input, target, grad_loss [1], grad_input. Both then, where NORMALIZED, normalizer [1], where
//            WEIGHTED, class_weights [classes], and where SAMPLE_WEIGHTS, sample_weights.
// in place   grad_input: input (each element is read before it is written)
// dispatch   forward: LANES invocations per split; grad_input: LANES per position; 64 per workgroup, folded
// workgroup  256 bytes (LANES = 64)
#import "shared/index.wgsl"
#import "shared/lanes.wgsl"
#import "shared/sums.wgsl"

#ifdef ENTRY_forward
alias Term = vec3<f32>;
#else
alias Term = vec2<f32>;
#endif

struct Params {
    positions: u32,
    classes: u32,
    inner: u32,
    // Partial sums (grad_input: positions), and positions of each.
    splits: u32,
    steps: u32,
    smoothing: f32,
    scale: f32,
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

#ifndef IN_PLACE_0
@group(0) @binding(0) var<storage, read> input: array<Storage>;
#endif
#ifdef ENTRY_forward
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;
const NEXT_BINDING = 3;
#else
@group(0) @binding(2) var<storage, read> grad_loss: array<Storage>;
@group(0) @binding(3) var<storage, read_write> grad: array<Storage>;
const NEXT_BINDING = 4;
#endif

#ifdef NORMALIZED
@group(0) @binding(NEXT_BINDING) var<storage, read> normalizer: array<f32>;
#endif
#ifdef WEIGHTED
#ifdef NORMALIZED
@group(0) @binding(NEXT_BINDING + 1) var<storage, read> class_weights: array<Storage>;
#else
@group(0) @binding(NEXT_BINDING) var<storage, read> class_weights: array<Storage>;
#endif
#endif

fn load(i: u32) -> Accum {
#ifdef IN_PLACE_0
    return Accum(grad[i]);
#else
    return Accum(input[i]);
#endif
}

// The factor of the sum over positions.
fn scale() -> Accum {
#ifdef NORMALIZED
    return normalizer[0];
#else
    return params.scale;
#endif
}

fn share(target_: u32, c: u32, element: u32) -> Accum {
    let smoothed = params.smoothing / Accum(params.classes) + (1.0 - params.smoothing) * target_share(target_, c, element);
#ifdef WEIGHTED
    return Accum(class_weights[c]) * smoothed;
#else
    return smoothed;
#endif
}

// The share of all classes together, of the sum of what `share_term` says of each.
fn all_shares(sum: Accum) -> Accum {
#ifdef WEIGHTED
    return sum;
#else
    // What smoothing adds to the classes is known exactly. Added up, many equal small shares would not be.
    return params.smoothing + (1.0 - params.smoothing) * sum;
#endif
}

fn share_term(share_: Accum, target_: u32, c: u32, element: u32) -> Accum {
#ifdef WEIGHTED
    return share_;
#else
    return target_share(target_, c, element);
#endif
}

// The largest input of a position.
fn largest_of(start: u32, place: u32, local_index: u32) -> Accum {
    var largest = load(start);
    for (var c = place; c < params.classes; c += LANES) {
        largest = max(largest, load(start + c * params.inner));
    }
    return lanes_max(local_index, largest);
}

#ifdef ENTRY_forward
fn loss_at(position: u32, place: u32, local_index: u32) -> Accum {
    let start = first_element(position);
    let target_ = target_at(position);
    let largest = largest_of(start, place, local_index);
    var added = LongSum();
    for (var c = place; c < params.classes; c += LANES) {
        let element = start + c * params.inner;
        let below = largest - load(element);
        let q = share(target_, c, element);
        // A class without a share does not count, even where its input is -infinity.
        let distance = select(q * below, 0.0, q == 0.0);
        add_term(&added, Term(exp(-below), share_term(q, target_, c, element), distance));
    }
    let totals = total_of(added);
    let sum = lanes_sum(local_index, totals.x);
    let total = all_shares(lanes_sum(local_index, totals.y));
    let distance = lanes_sum(local_index, totals.z);
#ifdef SAMPLE_WEIGHTS
    return select(0.0, sample_weight(position) * (total * log(sum) + distance), counts(target_));
#else
    return select(0.0, total * log(sum) + distance, counts(target_));
#endif
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let split = lanes_group(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let place = lanes_place(local_index);
    var loss = LongSum();
    for (var step = 0u; step < params.steps; step++) {
        let number = split + step * params.splits;
        let found = loss_at(min(number, params.positions - 1u), place, local_index);
        add_term(&loss, Term(select(0.0, found, number < params.positions)));
    }
    if place == 0u && split < params.splits {
        sums[split] = total_of(loss).x * scale();
    }
}
#else
@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let number = lanes_group(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let place = lanes_place(local_index);
    let position = min(number, params.positions - 1u);
    let start = first_element(position);
    let target_ = target_at(position);
    let largest = largest_of(start, place, local_index);
    var added = LongSum();
    for (var c = place; c < params.classes; c += LANES) {
        let element = start + c * params.inner;
        let q = share(target_, c, element);
        add_term(&added, Term(exp(load(element) - largest), share_term(q, target_, c, element)));
    }
    let totals = total_of(added);
    let sum = lanes_sum(local_index, totals.x);
    let total = all_shares(lanes_sum(local_index, totals.y));
    if number >= params.positions {
        return;
    }
#ifdef SAMPLE_WEIGHTS
    let factor = scale() * Accum(grad_loss[0]) * sample_weight(position);
#else
    let factor = scale() * Accum(grad_loss[0]);
#endif
    let is_counted = counts(target_);
    for (var c = place; c < params.classes; c += LANES) {
        let element = start + c * params.inner;
        let probability = exp(load(element) - largest) / sum;
        let gradient = factor * (probability * total - share(target_, c, element));
        grad[element] = Storage(select(0.0, gradient, is_counted));
    }
}
#endif
