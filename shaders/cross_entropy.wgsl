// loss = mean over rows of (ln(sum_j exp(input_j)) - input_label);
// grad_input_j = setting * grad_loss * (softmax(input)_j - [j = label]), setting = 1 / rows.
//
// bindings   rows, long_rows: input [rows, classes], labels u32 [rows], losses f32 [rows] (reduce.sum makes the mean);
//            grad_input, long_grad_input: input, labels, grad_loss [1], grad_input
// in place   grad_input: input (each element is read before it is written)
// dispatch   rows, grad_input: one invocation per row, 64 per workgroup, folded; long_*: one workgroup of 256 per row
// workgroup  long_*: 1024 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html
//
// A label that is no class makes the row's loss and gradient NaN.
#import "shared/index.wgsl"
#import "shared/reduce.wgsl"

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

fn row_loss(row: u32, largest: f32, sum: f32) -> f32 {
    let label = labels[row];
    if label >= params.classes {
        return not_a_number();
    }
    return log(sum) + largest - load(row * params.classes + label);
}

#ifdef IN_PLACE_0
#else
@compute @workgroup_size(64)
fn rows(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let row = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if row >= params.rows {
        return;
    }
    let start = row * params.classes;
    var largest = load(start);
    for (var j = 1u; j < params.classes; j++) {
        largest = max(largest, load(start + j));
    }
    var sum = 0.0;
    for (var j = 0u; j < params.classes; j++) {
        sum += exp(load(start + j) - largest);
    }
    losses[row] = row_loss(row, largest, sum);
}

@compute @workgroup_size(256)
fn long_rows(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let row = linear_workgroup(workgroup_id, num_workgroups);
    if row >= params.rows {
        return;
    }
    let start = row * params.classes;
    var largest = load(start);
    for (var j = local_index; j < params.classes; j += 256u) {
        largest = max(largest, load(start + j));
    }
    largest = max_workgroup(largest, local_index);
    var sum = 0.0;
    for (var j = local_index; j < params.classes; j += 256u) {
        sum += exp(load(start + j) - largest);
    }
    sum = sum_workgroup(sum, local_index);
    if local_index == 0u {
        losses[row] = row_loss(row, largest, sum);
    }
}
#endif

fn gradient(row: u32, j: u32, largest: f32, sum: f32) -> f32 {
    let label = labels[row];
    if label >= params.classes {
        return not_a_number();
    }
    let probability = exp(load(row * params.classes + j) - largest) / sum;
    return (params.setting * Accum(grad_loss[0])) * (probability - select(0.0, 1.0, j == label));
}

@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let row = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if row >= params.rows {
        return;
    }
    let start = row * params.classes;
    var largest = load(start);
    for (var j = 1u; j < params.classes; j++) {
        largest = max(largest, load(start + j));
    }
    var sum = 0.0;
    for (var j = 0u; j < params.classes; j++) {
        sum += exp(load(start + j) - largest);
    }
    for (var j = 0u; j < params.classes; j++) {
        grad[start + j] = Storage(gradient(row, j, largest, sum));
    }
}

@compute @workgroup_size(256)
fn long_grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let row = linear_workgroup(workgroup_id, num_workgroups);
    if row >= params.rows {
        return;
    }
    let start = row * params.classes;
    var largest = load(start);
    for (var j = local_index; j < params.classes; j += 256u) {
        largest = max(largest, load(start + j));
    }
    largest = max_workgroup(largest, local_index);
    var sum = 0.0;
    for (var j = local_index; j < params.classes; j += 256u) {
        sum += exp(load(start + j) - largest);
    }
    sum = sum_workgroup(sum, local_index);
    for (var j = local_index; j < params.classes; j += 256u) {
        grad[start + j] = Storage(gradient(row, j, largest, sum));
    }
}
