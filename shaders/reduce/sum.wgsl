// output = scale * the sum of input over some of its axes; grad_input = scale * grad_output, repeated along those axes.
// (`sum` has scale 1, `mean` 1 / terms.)
//
// A sum of many terms is made by several invocations (splits), whose partial sums `combine` adds; the order of additions
// depends on the shapes only.
//
// bindings   forward: input, output [outputs] (one split) or workspace [outputs, splits];
//            combine: workspace [outputs, splits], output [outputs]; grad_input: grad_output, grad_input
// in place   no
// dispatch   forward: one invocation per output (with VECTORS, 4 outputs) and split; combine: LANES invocations per output; grad_input: one
//            invocation per element; 64 per workgroup, folded
// workgroup  256 bytes (combine, LANES = 64)
// source     https://pytorch.org/docs/stable/generated/torch.sum.html
#import "shared/axes.wgsl"
#import "shared/index.wgsl"
#import "shared/lanes.wgsl"
#import "shared/strided.wgsl"
#import "shared/sums.wgsl"

var<immediate> params: Axes;

struct CombineParams {
    outputs: u32,
    // Partial sums of each output.
    splits: u32,
    scale: f32,
}
var<immediate> combine_params: CombineParams;

var<immediate> strided: Strided;

// A vector of four outputs at once, where the innermost axis is kept and a multiple of 4.
#ifdef VECTORS
alias Element = Storage4;
alias Value = Accum4;
const WIDTH: u32 = 4u;
#else
alias Element = Storage;
alias Value = Accum;
const WIDTH: u32 = 1u;
#endif

// `combine`, which adds single numbers, is left out of the others.
#ifdef ENTRY_combine
alias Term = Accum;
#else
alias Term = Value;
#endif

@group(0) @binding(0) var<storage, read> input: array<Element>;
// The output, or partial sums where there are several splits.
@group(0) @binding(1) var<storage, read_write> sums: array<Accum>;

@group(0) @binding(0) var<storage, read> partials: array<Accum>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage>;

@group(0) @binding(0) var<storage, read> grad_output: array<Storage>;
@group(0) @binding(1) var<storage, read_write> grad_input_: array<Storage>;

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    let groups = params.outputs / WIDTH;
    if i >= groups * params.splits {
        return;
    }
    var group = i / params.splits;
    var split = i % params.splits;
    if params.outputs_innermost == 1u {
        group = i % groups;
        split = i / groups;
    }
    let o = group * WIDTH;
    let base = kept_offset(o, params);
    var added = LongSum();
    for (var t = split; t < params.terms; t += params.splits) {
        add_term(&added, Term(input[(base + reduced_offset(t, params)) / WIDTH]));
    }
    let sum = total_of(added) * params.scale;
#ifdef VECTORS
#for k in 0..4
    sums[(o + #(k)u) * params.splits + split] = sum[#k];
#end
#else
    sums[o * params.splits + split] = sum;
#endif
}

#ifdef ENTRY_combine
@compute @workgroup_size(64)
fn combine(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let group = lanes_group(linear_workgroup(workgroup_id, num_workgroups), local_index);
    let place = lanes_place(local_index);
    let o = min(group, combine_params.outputs - 1u);
    var added = LongSum();
    for (var s = place; s < combine_params.splits; s += LANES) {
        add_term(&added, Term(partials[o * combine_params.splits + s]));
    }
    let total = lanes_sum(local_index, total_of(added));
    if place == 0u && group < combine_params.outputs {
        output[o] = Storage(total * combine_params.scale);
    }
}
#endif

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
    grad_input_[i] = Storage(strided.scale * Accum(grad_output[strided_offset(i, strided)]));
}
