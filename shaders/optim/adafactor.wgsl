// FACTORED: row += s (mean of g^2 over the row - row); col likewise; second moment v = row * col / max(mean of row, eps1)
// else      variance += s (g^2 - variance); v = variance
// u = g / sqrt(max(v, eps1^2)); alpha = max(eps2, rms(parameter)) * rho
// parameter = decay * parameter - alpha / max(1, rms(u) / d) * u
// hyper = [rho = min(lr, 1 / sqrt(t)), s = t^beta2_decay, decay = 1 - lr * weight decay, unused]
//
// `squares` makes partial sums of g^2 over rows or columns, `moment` moves the state of rows or columns toward their mean, and
// `means` averages the rows of each matrix. `norms` makes partial sums of the squares of parameter and u, which sum.combine adds
// up (and changes the variance of a vector), `apply` changes the parameter. Nothing changes while guard[0] is not finite. All in f32.
//
// bindings   squares: gradient, partials [outputs, splits]; moment: state [outputs] (changed), partials, hyper [4], guard [1];
//            means: row [matrices, rows], means [matrices];
//            norms, apply: parameter (changed by apply), gradient, guard, row and col, or variance (changed by norms), partials
//            [2, splits] (norms) or sums [2] (apply) of squares, means where FACTORED, hyper (not for norms where FACTORED)
// dispatch   squares: one invocation per output and split; moment: one per output; means: LANES per matrix; norms: one per split;
//            apply: one per element; 64 per workgroup, folded
// workgroup  256 bytes (means, LANES = 64)
// source     https://pytorch.org/docs/stable/generated/torch.optim.Adafactor.html, https://arxiv.org/abs/1804.04235
#import "shared/index.wgsl"
#import "shared/math.wgsl"
#import "shared/sums.wgsl"

// Two sums at once.
alias Term = vec2<f32>;

#ifdef LANES
#import "shared/lanes.wgsl"

struct MeansParams {
    matrices: u32,
    rows: u32,
}
var<immediate> params: MeansParams;

@group(0) @binding(0) var<storage, read_write> row_var: array<f32>;
@group(0) @binding(1) var<storage, read_write> means_: array<f32>;

@compute @workgroup_size(64)
fn means(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let group = lanes_group(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let place = lanes_place(local_index);
    let matrix = min(group, params.matrices - 1u);
    var added = LongSum();
    for (var row = place; row < params.rows; row += LANES) {
        add_term(&added, Term(row_var[matrix * params.rows + row]));
    }
    let total = lanes_sum(local_index, total_of(added).x);
    if place == 0u && group < params.matrices {
        means_[matrix] = total / f32(params.rows);
    }
}
#else

struct SquaresParams {
    outputs: u32,
    // Terms of one sum, and the distance between them.
    terms: u32,
    inner: u32,
    splits: u32,
}
var<immediate> squares_params: SquaresParams;

struct Params {
    elements: u32,
    splits: u32,
    rows: u32,
    columns: u32,
    eps1: f32,
    eps2: f32,
    d: f32,
}
var<immediate> params: Params;

#ifdef ENTRY_squares
@group(0) @binding(0) var<storage, read> gradient: array<Storage>;
@group(0) @binding(1) var<storage, read_write> partials: array<f32>;

@compute @workgroup_size(64)
fn squares(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= squares_params.outputs * squares_params.splits {
        return;
    }
    // Neighbours work on neighbouring terms of a row, or on neighbouring columns.
    var output = i / squares_params.splits;
    var split = i % squares_params.splits;
    if squares_params.inner > 1u {
        output = i % squares_params.outputs;
        split = i / squares_params.outputs;
    }
    let inner = squares_params.inner;
    let start = output / inner * inner * squares_params.terms + output % inner;
    var added = LongSum();
    for (var term = split; term < squares_params.terms; term += squares_params.splits) {
        let g = Accum(gradient[start + term * inner]);
        add_term(&added, Term(g * g));
    }
    partials[output * squares_params.splits + split] = total_of(added).x;
}
#else
#ifdef ENTRY_moment
@group(0) @binding(0) var<storage, read_write> state: array<f32>;
@group(0) @binding(1) var<storage, read> partials: array<f32>;
@group(0) @binding(2) var<storage, read> hyper: array<f32>;
@group(0) @binding(3) var<storage, read> guard: array<f32>;

@compute @workgroup_size(64)
fn moment(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let output = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if output >= squares_params.outputs || !is_finite(guard[0]) {
        return;
    }
    var added = LongSum();
    for (var split = 0u; split < squares_params.splits; split++) {
        add_term(&added, Term(partials[output * squares_params.splits + split]));
    }
    state[output] += hyper[1] * (total_of(added).x / f32(squares_params.terms) - state[output]);
}
#else
@group(0) @binding(0) var<storage, read_write> parameter: array<f32>;
@group(0) @binding(1) var<storage, read> gradient: array<Storage>;
@group(0) @binding(2) var<storage, read> guard: array<f32>;
#ifdef FACTORED
@group(0) @binding(3) var<storage, read_write> row_var: array<f32>;
@group(0) @binding(4) var<storage, read_write> col_var: array<f32>;
@group(0) @binding(5) var<storage, read_write> sums: array<f32>;
@group(0) @binding(6) var<storage, read> means_: array<f32>;
@group(0) @binding(7) var<storage, read> hyper: array<f32>;

fn second_moment(i: u32) -> f32 {
    let row = i / params.columns;
    let matrix = row / params.rows;
    let column = matrix * params.columns + i % params.columns;
    return row_var[row] * col_var[column] / max(means_[matrix], params.eps1);
}
#else
@group(0) @binding(3) var<storage, read_write> variance: array<f32>;
@group(0) @binding(4) var<storage, read_write> sums: array<f32>;
@group(0) @binding(5) var<storage, read> hyper: array<f32>;

fn second_moment(i: u32) -> f32 {
    return variance[i];
}
#endif

fn scaled(i: u32) -> f32 {
    return Accum(gradient[i]) / sqrt(max(second_moment(i), params.eps1 * params.eps1));
}

#ifdef ENTRY_norms
@compute @workgroup_size(64)
fn norms(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let split = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if split >= params.splits || !is_finite(guard[0]) {
        return;
    }
    var added = LongSum();
    for (var i = split; i < params.elements; i += params.splits) {
#ifndef FACTORED
        let g = Accum(gradient[i]);
        variance[i] += hyper[1] * (g * g - variance[i]);
#endif
        let u = scaled(i);
        add_term(&added, Term(parameter[i] * parameter[i], u * u));
    }
    sums[split] = total_of(added).x;
    sums[params.splits + split] = total_of(added).y;
}
#else
@compute @workgroup_size(64)
fn apply(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    // Before any branch, as in shared/update.wgsl.
    let guarded = is_finite(guard[0]);
    let root_mean_squares = sqrt(vec2<f32>(sums[0], sums[1]) / f32(params.elements));
    let alpha = max(params.eps2, root_mean_squares.x) * hyper[0];
    let step = alpha / max(1.0, root_mean_squares.y / params.d);
    let decay = hyper[2];
    if i >= params.elements || !guarded {
        return;
    }
    parameter[i] = decay * parameter[i] - step * scaled(i);
}
#endif
#endif
#endif
#endif
