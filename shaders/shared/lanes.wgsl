// Sums and maxima over LANES neighbouring invocations of a workgroup of 64. LANES is a constant of the prelude: 1 (each
// invocation works alone, and these functions return its own value) or 64. Call from uniform control flow.
// Workgroup memory: 256 bytes.

const LANES_WORKGROUP: u32 = 64u;
var<workgroup> lane_values: array<Accum, 64>;

// The number of the group that an invocation belongs to, and its place in the group.
fn lanes_group(workgroup: u32, local_index: u32) -> u32 {
    if LANES == 1u {
        return workgroup * LANES_WORKGROUP + local_index;
    }
    return workgroup;
}

fn lanes_place(local_index: u32) -> u32 {
    if LANES == 1u {
        return 0u;
    }
    return local_index;
}

fn lanes_sum(local_index: u32, value: Accum) -> Accum {
    if LANES == 1u {
        return value;
    }
    lane_values[local_index] = value;
    workgroupBarrier();
    for (var half = LANES_WORKGROUP / 2u; half > 0u; half = half / 2u) {
        if local_index < half {
            lane_values[local_index] += lane_values[local_index + half];
        }
        workgroupBarrier();
    }
    let total = lane_values[0];
    workgroupBarrier();
    return total;
}

fn lanes_max(local_index: u32, value: Accum) -> Accum {
    if LANES == 1u {
        return value;
    }
    lane_values[local_index] = value;
    workgroupBarrier();
    for (var half = LANES_WORKGROUP / 2u; half > 0u; half = half / 2u) {
        if local_index < half {
            lane_values[local_index] = max(lane_values[local_index], lane_values[local_index + half]);
        }
        workgroupBarrier();
    }
    let largest = lane_values[0];
    workgroupBarrier();
    return largest;
}
