// loss = mean over rows of (ln(sum_j exp(input_j)) - input_label);
// grad_input_j = setting * grad_loss * (softmax(input)_j - [j = label]), setting = 1 / rows.
//
// bindings   forward: input [rows, classes], labels u32 [rows], losses f32 [rows] (sum.combine makes the mean);
//            grad_input: input, labels, grad_loss [1], grad_input
// in place   grad_input: input (each element is read before it is written)
// dispatch   LANES invocations per row, 64 per workgroup, folded
// workgroup  256 bytes (LANES = 64)
// source     https://pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html
//
// A label that is no class makes the row's loss and gradient NaN.
#import "shared/index.wgsl"
#import "shared/lanes.wgsl"

struct Params {
    rows: u32,
    classes: u32,
    setting: f32,
}
var<immediate> params: Params;

#ifdef IN_PLACE_0
#else
@group(0) @binding(0) var<storage, read> input: array<Storage>;
#endif
@group(0) @binding(1) var<storage, read> labels: array<u32>;
@group(0) @binding(2) var<storage, read_write> losses: array<f32>;
@group(0) @binding(2) var<storage, read> grad_loss: array<Storage>;
@group(0) @binding(3) var<storage, read_write> grad: array<Storage>;

fn load(i: u32) -> f32 {
#ifdef IN_PLACE_0
    return Accum(grad[i]);
#else
    return Accum(input[i]);
#endif
}

// NaN, made from bits that no compiler can fold away.
fn not_a_number() -> f32 {
    return bitcast<f32>(0x7fc00000u | (params.rows & 1u));
}

// The largest logit of a row, and the sum of exponentials of the differences from it.
fn largest_and_sum(row: u32, place: u32, local_index: u32) -> vec2<f32> {
    let start = row * params.classes;
    var largest = load(start);
    for (var j = place; j < params.classes; j += LANES) {
        largest = max(largest, load(start + j));
    }
    largest = lanes_max(local_index, largest);
    var sum = 0.0;
    for (var j = place; j < params.classes; j += LANES) {
        sum += exp(load(start + j) - largest);
    }
    return vec2<f32>(largest, lanes_sum(local_index, sum));
}

#ifdef IN_PLACE_0
#else
@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let number = lanes_group(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let place = lanes_place(local_index);
    let row = min(number, params.rows - 1u);
    let found = largest_and_sum(row, place, local_index);
    if place == 0u && number < params.rows {
        let label = labels[row];
        if label < params.classes {
            losses[row] = log(found.y) + found.x - load(row * params.classes + label);
        } else {
            losses[row] = not_a_number();
        }
    }
}
#endif

@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let number = lanes_group(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let place = lanes_place(local_index);
    let row = min(number, params.rows - 1u);
    let found = largest_and_sum(row, place, local_index);
    if number >= params.rows {
        return;
    }
    let label = labels[row];
    var factor = params.setting * Accum(grad_loss[0]);
    if label >= params.classes {
        factor = not_a_number();
    }
    let start = row * params.classes;
    for (var j = place; j < params.classes; j += LANES) {
        let probability = exp(load(start + j) - found.x) / found.y;
        grad[start + j] = Storage(factor * (probability - select(0.0, 1.0, j == label)));
    }
}
