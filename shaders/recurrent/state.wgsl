// The rows of a state that belong to a run's samples, the first of which is run[3].
//
// read_rows:  rows[i] = state[run[3] + i], 0 where there is no such row
// write_rows: state[run[3] + i] = rows[i], where there is such a row
//
// bindings   read_rows: state [N, ...], run [4], rows [n, ...]
//            write_rows: state [N, ...] (changed), run [4], rows [n, ...]
// dispatch   one invocation per element of rows, 64 per workgroup, folded
// workgroup  0 bytes
#import "shared/index.wgsl"

struct Params {
    // Elements of rows.
    elements: u32,
    // Elements of one row.
    row: u32,
    // Elements of the state.
    state: u32,
}
var<immediate> params: Params;

@group(0) @binding(1) var<storage, read> run: array<u32>;

// Where element i of the rows is in the state; its end or beyond where it has none such.
fn state_at(i: u32) -> u32 {
    return min(run[3], params.state / params.row) * params.row + i;
}

#ifdef ENTRY_read_rows
@group(0) @binding(0) var<storage, read> state: array<Storage>;
@group(0) @binding(2) var<storage, read_write> rows: array<Storage>;

@compute @workgroup_size(64)
fn read_rows(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.elements {
        return;
    }
    let at = state_at(i);
    var value = Storage(0.0);
    if at < params.state {
        value = state[at];
    }
    rows[i] = value;
}
#endif

#ifdef ENTRY_write_rows
@group(0) @binding(0) var<storage, read_write> state: array<Storage>;
@group(0) @binding(2) var<storage, read> rows: array<Storage>;

@compute @workgroup_size(64)
fn write_rows(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.elements {
        return;
    }
    let at = state_at(i);
    if at < params.state {
        state[at] = rows[i];
    }
}
#endif
