// counts[split] = number of the split's positions whose first largest input is at the label (sum.combine adds them up).
// Where SAMPLE_WEIGHTS, positions of a sample of weight 0 do not count.
//
// bindings   count: input [N, classes, ...inner], labels u32 [N, ...inner], counts f32 [splits], sample_weights (where SAMPLE_WEIGHTS)
// dispatch   LANES invocations per split, 64 per workgroup, folded
// workgroup  256 bytes (LANES = 64)
#import "shared/index.wgsl"
#import "shared/lanes.wgsl"

struct Params {
    positions: u32,
    classes: u32,
    inner: u32,
    splits: u32,
    steps: u32,
    // 1 where labels of ignore_index do not count.
    ignores: u32,
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

@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(1) var<storage, read> labels: array<u32>;
@group(0) @binding(2) var<storage, read_write> counts: array<f32>;

// The first class with the largest input. Numbers of classes are exact as floats.
fn first_largest(position: u32, place: u32, local_index: u32) -> u32 {
    let start = first_element(position);
    var best = min(place, params.classes - 1u);
    var largest = Accum(input[start + best * params.inner]);
    for (var j = place + LANES; j < params.classes; j += LANES) {
        let x = Accum(input[start + j * params.inner]);
        if x > largest {
            largest = x;
            best = j;
        }
    }
    let is_largest = lanes_max(local_index, largest) == largest;
    return u32(-lanes_max(local_index, select(-f32(params.classes), -f32(best), is_largest)));
}

@compute @workgroup_size(64)
fn count(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let split = lanes_group(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let place = lanes_place(local_index);
    var sum = 0.0;
    for (var step = 0u; step < params.steps; step++) {
        let number = split + step * params.splits;
        let position = min(number, params.positions - 1u);
        let best = first_largest(position, place, local_index);
        let label = labels[position];
        let counts_at_all = number < params.positions && !(params.ignores == 1u && label == params.ignore_index);
#ifdef SAMPLE_WEIGHTS
        sum += select(0.0, 1.0, counts_at_all && sample_weight(position) != 0.0 && best == label);
#else
        sum += select(0.0, 1.0, counts_at_all && best == label);
#endif
    }
    if place == 0u && split < params.splits {
        counts[split] = sum;
    }
}
