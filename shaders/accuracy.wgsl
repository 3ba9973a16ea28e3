// correct[row] = 1 where the first largest of input[row] is at labels[row], else 0 (sum.combine counts them).
//
// bindings   rows: input [rows, classes], labels u32 [rows], correct f32 [rows]
// dispatch   one invocation per row, 64 per workgroup, folded
// workgroup  0 bytes
#import "shared/index.wgsl"

struct Params {
    rows: u32,
    classes: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(1) var<storage, read> labels: array<u32>;
@group(0) @binding(2) var<storage, read_write> correct: array<f32>;

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
    var best = 0u;
    var largest = Accum(input[start]);
    for (var j = 1u; j < params.classes; j++) {
        let x = Accum(input[start + j]);
        if x > largest {
            largest = x;
            best = j;
        }
    }
    correct[row] = select(0.0, 1.0, best == labels[row]);
}
