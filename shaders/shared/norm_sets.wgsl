// The kernels of shared/norm.wgsl that go over sets.
#import "shared/index.wgsl"
#import "shared/lanes.wgsl"
#import "shared/moments.wgsl"

struct Params {
    // Sets, elements of each, and over how many splits of how many elements each these are divided.
    sets: u32,
    terms: u32,
    splits: u32,
    split_terms: u32,
    // Elements of a run, from one set to the next, from one run of a set to the next.
    inner: u32,
    set_stride: u32,
    row_stride: u32,
    // LANES = step_rows * inner + step_inner
    step_rows: u32,
    step_inner: u32,
    // The parameter of a group's run, or the group of a parameter's: set / divisor % modulus * factor + row * step.
    other_divisor: u32,
    other_modulus: u32,
    other_factor: u32,
    other_step: u32,
    eps: f32,
    // 1 / elements of a group
    inverse_terms: f32,
#for k in 0..SETTINGS
    setting_#k: f32,
#end
}
var<immediate> params: Params;

// A team's set and split, clamped to those that exist.
struct Team {
    set_number: u32,
    split: u32,
    exists: bool,
}

fn team_of(workgroup: u32, local_index: u32) -> Team {
    let number = lanes_group(workgroup, local_index);
    let count = params.sets * params.splits;
    let clamped = min(number, count - 1u);
    if LANES == 1u {
        // Neighbouring invocations work on neighbouring sets, which lie side by side where they are walked like this.
        return Team(clamped % params.sets, clamped / params.sets, number < count);
    }
    return Team(clamped / params.splits, clamped % params.splits, number < count);
}

// The run of an element of a set, and its place there.
struct Place {
    row: u32,
    inner: u32,
}

fn place_of(term: u32) -> Place {
    let row = term / params.inner;
    return Place(row, term - row * params.inner);
}

// LANES further on.
fn next_place(place: Place) -> Place {
    let inner = place.inner + params.step_inner;
    let row = place.row + params.step_rows;
    if inner >= params.inner {
        return Place(row + 1u, inner - params.inner);
    }
    return Place(row, inner);
}

fn element_of(set_number: u32, place: Place) -> u32 {
    return set_number * params.set_stride + place.row * params.row_stride + place.inner;
}

// Of an element of a group, its parameter; of an element of a parameter, its group: from that of the set's first.
fn first_other_of(set_number: u32) -> u32 {
    return set_number / params.other_divisor % params.other_modulus * params.other_factor;
}

fn other_of(first: u32, place: Place) -> u32 {
#ifdef PER_ELEMENT
    return place.inner;
#else
    return first + place.row * params.other_step;
#endif
}

// The scale of an element of a group. `fixed` is that of the set's first, loaded once.
fn scale_at(fixed: Scale, first_other: u32, place: Place) -> Scale {
#ifdef ONE_PARAMETER
    return fixed;
#else
    return scale_of(other_of(first_other, place));
#endif
}

fn first_term(team: Team, local_index: u32) -> u32 {
    return team.split * params.split_terms + lanes_place(local_index);
}

fn end_term(split: u32) -> u32 {
    return min((split + 1u) * params.split_terms, params.terms);
}

// Terms that are added one after the other: many like terms would all be rounded to the same side of a sum that has grown large.
const BLOCK_TERMS: u32 = 32u;

#ifdef INPUT
// What is subtracted first, so that numbers far from 0 lose nothing.
fn shift_of(set_number: u32) -> Accum {
#ifdef CENTERED
    return first_of(input_at(set_number * params.set_stride));
#else
    return 0.0;
#endif
}

// The moments of a split, of elements less `shift`.
fn moments_of(team: Team, local_index: u32, shift: Accum) -> Moments {
    var count = Accum(0.0);
    var mean = Value(Accum(0.0));
    var m2 = Value(Accum(0.0));
    let first = first_term(team, local_index);
    let end = end_term(team.split);
    var place = place_of(first);
    for (var term = first; term < end;) {
        let block_end = min(end, term + BLOCK_TERMS * LANES);
        var block = Value(Accum(0.0));
        for (; term < block_end; term += LANES) {
            let x = input_at(element_of(team.set_number, place)) - shift;
            count += 1.0;
#ifdef CENTERED
            let difference = x - mean;
            mean += difference * (1.0 / count);
            block += difference * (x - mean);
#else
            block += x * x;
#endif
            place = next_place(place);
        }
        m2 += block;
    }
    // The components of a vector are parts of one size.
    let all = across(mean) / Accum(WIDTH);
    let between = across((mean - all) * (mean - all));
    return lanes_merged(local_index, Moments(count * Accum(WIDTH), all, across(m2) + count * between));
}
#endif

#ifdef NEW_MEAN
@group(0) @binding(NEW_MEAN) var<storage, read_write> new_mean: array<Accum>;
#endif
#ifdef NEW_VARIANCE
@group(0) @binding(NEW_VARIANCE) var<storage, read_write> new_variance: array<Accum>;

fn write_statistics(set_number: u32, mean: Accum, variance: Accum) {
#ifdef NEW_MEAN
    new_mean[set_number] = mean;
#endif
    new_variance[set_number] = variance;
}
#endif

#ifdef OUTPUT
#ifdef INPUT
// Goes over the elements of a split and writes the output.
fn write_output(team: Team, local_index: u32, s: Statistics) {
    let first = first_term(team, local_index);
    let end = end_term(team.split);
    var place = place_of(first);
    let first_other = first_other_of(team.set_number);
    let fixed_scale = scale_of(first_other);
    for (var term = first; term < end; term += LANES) {
        let i = element_of(team.set_number, place);
        let scale = scale_at(fixed_scale, first_other, place);
        let y = activated(affine((input_at(i) - s.mean) * s.rstd, scale));
        output[i] = Element(finished(y, i));
        place = next_place(place);
    }
}
#endif
#endif

#ifdef ENTRY_forward
@compute @workgroup_size(LANES_WORKGROUP)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let team = team_of(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let shift = shift_of(team.set_number);
    let moments = moments_of(team, local_index, shift);
#ifdef IN_PLACE
#ifdef SUBGROUPS
    // The moments depend on what all have read.
#else
    // The whole team has read the first element, which is about to be overwritten.
    storageBarrier();
#endif
#endif
    if !team.exists {
        return;
    }
    let mean = shift + moments.mean;
    let variance = moments.m2 * params.inverse_terms;
    if lanes_place(local_index) == 0u {
        write_statistics(team.set_number, mean, variance);
    }
    write_output(team, local_index, statistics(mean, variance, params.eps));
}
#endif

#ifdef ENTRY_normalize
@compute @workgroup_size(LANES_WORKGROUP)
fn normalize(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let team = team_of(linear_workgroup(workgroup_id, num_workgroups), local_index);
    if team.exists {
        write_output(team, local_index, statistics_of(team.set_number, params.eps));
    }
}
#endif

#ifdef ENTRY_moments
@group(0) @binding(MOMENTS) var<storage, read_write> split_moments: array<vec2<Accum>>;

@compute @workgroup_size(LANES_WORKGROUP)
fn moments(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let team = team_of(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let m = moments_of(team, local_index, shift_of(team.set_number));
    if team.exists && lanes_place(local_index) == 0u {
        split_moments[team.set_number * params.splits + team.split] = vec2(m.mean, m.m2);
    }
}
#endif

#ifdef ENTRY_combine
@group(0) @binding(MOMENTS) var<storage, read> split_moments: array<vec2<Accum>>;

@compute @workgroup_size(LANES_WORKGROUP)
fn combine(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let number = lanes_group(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let set_number = min(number, params.sets - 1u);
    var own = Moments(0.0, 0.0, 0.0);
    for (var split = lanes_place(local_index); split < params.splits; split += LANES) {
        let part = split_moments[set_number * params.splits + split];
        let count = (end_term(split) - split * params.split_terms) * WIDTH;
        own = merged(own, Moments(Accum(count), part.x, part.y));
    }
    let all = lanes_merged(local_index, own);
    if number < params.sets && lanes_place(local_index) == 0u {
#ifdef INPUT
        write_statistics(set_number, shift_of(set_number) + all.mean, all.m2 * params.inverse_terms);
#else
        write_statistics(set_number, all.mean, all.m2 * params.inverse_terms);
#endif
    }
}
#endif

#ifdef SUM_G
@group(0) @binding(SUM_G) var<storage, read_write> sum_g: array<Accum>;
#endif
#ifdef SUM_GX
@group(0) @binding(SUM_GX) var<storage, read_write> sum_gx: array<Accum>;
#endif

// The sums of a team. With COLUMNS, each of the four elements of a vector is of a set of its own.
#ifdef COLUMNS
alias Total = Value;

fn total_of(local_index: u32, v: Value) -> Total {
    return v;
}
#else
alias Total = Accum;

fn total_of(local_index: u32, v: Value) -> Total {
    return lanes_sum(local_index, across(v));
}
#endif

struct Totals {
    g: Total,
    gx: Total,
}

fn write_sums(team: Team, sums: Totals) {
#ifdef COLUMNS
    for (var k = 0u; k < 4u; k++) {
        let at = (4u * team.set_number + k) * params.splits + team.split;
#ifdef SUM_G
        sum_g[at] = sums.g[k];
#endif
#ifdef SUM_GX
        sum_gx[at] = sums.gx[k];
#endif
    }
#else
    let at = team.set_number * params.splits + team.split;
#ifdef SUM_G
    sum_g[at] = sums.g;
#endif
#ifdef SUM_GX
    sum_gx[at] = sums.gx;
#endif
#endif
}

#ifdef GRAD_OUTPUT
fn own_statistics(set_number: u32) -> Statistics {
#ifdef VARIANCE
    return statistics_of(set_number, params.eps);
#else
    return Statistics(0.0, 0.0);
#endif
}

fn sums_of(team: Team, local_index: u32) -> Totals {
    var g = Value(Accum(0.0));
    var gx = Value(Accum(0.0));
    let first = first_term(team, local_index);
    let end = end_term(team.split);
    var place = place_of(first);
    let first_other = first_other_of(team.set_number);
#ifdef BY_PARAMETER
    let scale = scale_of(team.set_number);
#else
    let fixed_scale = scale_of(first_other);
    let s = own_statistics(team.set_number);
#endif
    for (var term = first; term < end;) {
        let block_end = min(end, term + BLOCK_TERMS * LANES);
        var block_g = Value(Accum(0.0));
        var block_gx = Value(Accum(0.0));
        for (; term < block_end; term += LANES) {
#ifdef BY_PARAMETER
            let s = own_statistics(other_of(first_other, place));
#else
            let scale = scale_at(fixed_scale, first_other, place);
#endif
            let d = gradient_at(element_of(team.set_number, place), scale, s);
#ifdef WEIGHTED
            let weighted = d.g * scale.weight;
#else
            let weighted = d.g;
#endif
            block_g += weighted;
            block_gx += weighted * d.x;
            place = next_place(place);
        }
        g += block_g;
        gx += block_gx;
    }
    return Totals(total_of(local_index, g), total_of(local_index, gx));
}
#endif

#ifdef GRAD_OUTPUT
#ifdef OUTPUT
// Goes over the elements of a split and writes the gradient of the input.
fn write_grad_input(team: Team, local_index: u32, means: Sums) {
    let s = statistics_of(team.set_number, params.eps);
    let first = first_term(team, local_index);
    let end = end_term(team.split);
    var place = place_of(first);
    let first_other = first_other_of(team.set_number);
    let fixed_scale = scale_of(first_other);
    for (var term = first; term < end; term += LANES) {
        let i = element_of(team.set_number, place);
        let scale = scale_at(fixed_scale, first_other, place);
        let y = grad_input_of(gradient_at(i, scale, s), scale, s, means);
        output[i] = Element(finished(y, i));
        place = next_place(place);
    }
}
#endif
#endif

#ifdef ENTRY_sums
@compute @workgroup_size(LANES_WORKGROUP)
fn sums(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let team = team_of(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let own = sums_of(team, local_index);
    if team.exists && lanes_place(local_index) == 0u {
        write_sums(team, own);
    }
}
#endif

#ifdef ENTRY_grad_input
@compute @workgroup_size(LANES_WORKGROUP)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let team = team_of(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let own = sums_of(team, local_index);
    if !team.exists {
        return;
    }
    if lanes_place(local_index) == 0u {
        write_sums(team, own);
    }
#ifdef CENTERED
    let means = Sums(own.g * params.inverse_terms, own.gx * params.inverse_terms);
#else
    let means = Sums(0.0, own.gx * params.inverse_terms);
#endif
    write_grad_input(team, local_index, means);
}
#endif

#ifdef ENTRY_grad_input_from_sums
#ifdef TOTAL_G
@group(0) @binding(TOTAL_G) var<storage, read> total_g: array<Accum>;
#endif
#ifdef TOTAL_GX
@group(0) @binding(TOTAL_GX) var<storage, read> total_gx: array<Accum>;
#endif

@compute @workgroup_size(LANES_WORKGROUP)
fn grad_input_from_sums(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let team = team_of(linear_workgroup(workgroup_id, num_workgroups), local_index);
    if !team.exists {
        return;
    }
    var means = Sums(0.0, 0.0);
#ifdef TOTAL_G
    means.g = total_g[team.set_number] * params.inverse_terms;
#endif
#ifdef TOTAL_GX
    means.gx = total_gx[team.set_number] * params.inverse_terms;
#endif
    write_grad_input(team, local_index, means);
}
#endif
