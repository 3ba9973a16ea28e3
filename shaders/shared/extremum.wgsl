// Largest or smallest elements over some axes, and their gradient: what amax and amin share. The importing file defines
//   fn is_beyond(x: Accum, extremum: Accum) -> bool: whether x takes the place of the extremum so far
// NaN takes the place of anything, and nothing that of NaN.
//
// Many terms are shared by several invocations (splits), whose results `combine` compares. The gradient of an output goes to all
// elements that are equal to it, in equal parts: `ties` counts them, and where there are splits sum.combine adds the counts.
//
// bindings   forward: input, output [outputs] (one split) or workspace [outputs, splits];
//            combine: workspace [outputs, splits], output [outputs];
//            ties: input, output of forward, ties [outputs] or workspace [outputs, splits];
//            grad_input: input, output of forward, ties, grad_output, grad_input
// in place   no
// dispatch   forward, ties: one invocation per output and split; combine: LANES invocations per output; grad_input: one invocation
//            per element; 64 per workgroup, folded
// workgroup  256 bytes (combine, LANES = 64)
#import "shared/axes.wgsl"
#import "shared/index.wgsl"
#import "shared/math.wgsl"
#import "shared/strided.wgsl"

var<immediate> params: Axes;

struct CombineParams {
    outputs: u32,
    // Partial results of each output.
    splits: u32,
}
var<immediate> combine_params: CombineParams;

var<immediate> strided: Strided;

@group(0) @binding(0) var<storage, read> input: array<Storage>;
// The output, or partial results where there are several splits.
@group(0) @binding(1) var<storage, read_write> extrema: array<Accum>;

@group(0) @binding(0) var<storage, read> partials: array<Accum>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage>;

@group(0) @binding(1) var<storage, read> tied_output: array<Storage>;
@group(0) @binding(2) var<storage, read_write> counts: array<Accum>;

@group(0) @binding(2) var<storage, read> ties_: array<Storage>;
@group(0) @binding(3) var<storage, read> grad_output: array<Storage>;
@group(0) @binding(4) var<storage, read_write> grad_input_: array<Storage>;

fn extremum_of(x: Accum, extremum: Accum) -> Accum {
    return select(extremum, x, is_beyond(x, extremum) || is_nan(x));
}

// The output and the split that an invocation works on.
fn output_and_split(i: u32) -> vec2<u32> {
    if params.outputs_innermost == 1u {
        return vec2<u32>(i % params.outputs, i / params.outputs);
    }
    return vec2<u32>(i / params.splits, i % params.splits);
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.outputs * params.splits {
        return;
    }
    let at = output_and_split(i);
    let base = kept_offset(at.x, params);
    var extremum = Accum(input[base + reduced_offset(at.y, params)]);
    for (var t = at.y + params.splits; t < params.terms; t += params.splits) {
        extremum = extremum_of(Accum(input[base + reduced_offset(t, params)]), extremum);
    }
    extrema[at.x * params.splits + at.y] = extremum;
}

#ifdef ENTRY_combine
var<workgroup> lane_extrema: array<Accum, 64>;

@compute @workgroup_size(64)
fn combine(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let group = linear_workgroup(workgroup_id, num_workgroups) * (64u / LANES) + local_index / LANES;
    let place = local_index % LANES;
    let o = min(group, combine_params.outputs - 1u);
    var extremum = partials[o * combine_params.splits + min(place, combine_params.splits - 1u)];
    for (var s = place + LANES; s < combine_params.splits; s += LANES) {
        extremum = extremum_of(partials[o * combine_params.splits + s], extremum);
    }
    lane_extrema[local_index] = extremum;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half = half / 2u) {
        if place < half {
            lane_extrema[local_index] = extremum_of(lane_extrema[local_index + half], lane_extrema[local_index]);
        }
        workgroupBarrier();
    }
    if place == 0u && group < combine_params.outputs {
        output[o] = Storage(lane_extrema[local_index]);
    }
}
#endif

@compute @workgroup_size(64)
fn ties(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.outputs * params.splits {
        return;
    }
    let at = output_and_split(i);
    let base = kept_offset(at.x, params);
    let extremum = Accum(tied_output[at.x]);
    var count = 0u;
    for (var t = at.y; t < params.terms; t += params.splits) {
        count += u32(Accum(input[base + reduced_offset(t, params)]) == extremum);
    }
    counts[at.x * params.splits + at.y] = Accum(count);
}

@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= strided.elements {
        return;
    }
    let o = strided_offset(i, strided);
    let part = Accum(grad_output[o]) / Accum(ties_[o]);
    grad_input_[i] = Storage(select(0.0, part, Accum(input[i]) == Accum(tied_output[o])));
}
