// Sums and maxima over LANES neighbouring invocations of a workgroup of LANES_WORKGROUP. LANES is a constant of the prelude, a
// power of two up to 64; where it is 1, each invocation works alone, and these functions return its own value. With SUBGROUPS,
// LANES is a subgroup, and the workgroup too. Call from uniform control flow. Workgroup memory: 256 bytes, with SUBGROUPS none.
#ifdef SUBGROUPS
const LANES_WORKGROUP: u32 = LANES;
#else
const LANES_WORKGROUP: u32 = 64u;
var<workgroup> lane_values: array<Accum, 64>;
#endif

// The number of the group that an invocation belongs to, and its place in the group.
fn lanes_group(workgroup: u32, local_index: u32) -> u32 {
    return workgroup * (LANES_WORKGROUP / LANES) + local_index / LANES;
}

fn lanes_place(local_index: u32) -> u32 {
    return local_index % LANES;
}

#ifdef SUBGROUPS
fn lanes_sum(local_index: u32, value: Accum) -> Accum {
    return subgroupAdd(value);
}

fn lanes_max(local_index: u32, value: Accum) -> Accum {
    return subgroupMax(value);
}
#else
fn lanes_sum(local_index: u32, value: Accum) -> Accum {
    if LANES == 1u {
        return value;
    }
    let place = lanes_place(local_index);
    lane_values[local_index] = value;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half = half / 2u) {
        if place < half {
            lane_values[local_index] += lane_values[local_index + half];
        }
        workgroupBarrier();
    }
    let total = lane_values[local_index - place];
    workgroupBarrier();
    return total;
}

fn lanes_max(local_index: u32, value: Accum) -> Accum {
    if LANES == 1u {
        return value;
    }
    let place = lanes_place(local_index);
    lane_values[local_index] = value;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half = half / 2u) {
        if place < half {
            lane_values[local_index] = max(lane_values[local_index], lane_values[local_index + half]);
        }
        workgroupBarrier();
    }
    let largest = lane_values[local_index - place];
    workgroupBarrier();
    return largest;
}
#endif
