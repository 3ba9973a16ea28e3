// Moments of numbers, and those of parts put together. Where the importing file calls `lanes_merged`: workgroup memory of 768 bytes, with
// SUBGROUPS none.

// Count, mean and sum of squares around the mean of some numbers.
struct Moments {
    count: Accum,
    mean: Accum,
    m2: Accum,
}

fn merged(a: Moments, b: Moments) -> Moments {
    let count = a.count + b.count;
    if count == 0.0 {
        return a;
    }
    let share = b.count / count;
    let difference = b.mean - a.mean;
    return Moments(count, a.mean + difference * share, a.m2 + b.m2 + difference * difference * a.count * share);
}

#ifdef SUBGROUPS
fn lanes_merged(local_index: u32, own: Moments) -> Moments {
    let count = subgroupAdd(own.count);
    let mean = subgroupAdd(own.count * own.mean) / count;
    let difference = own.mean - mean;
    return Moments(count, mean, subgroupAdd(own.m2 + own.count * difference * difference));
}
#else
var<workgroup> lane_moments: array<Moments, 64>;

fn lanes_merged(local_index: u32, own: Moments) -> Moments {
    if LANES == 1u {
        return own;
    }
    let place = lanes_place(local_index);
    lane_moments[local_index] = own;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half = half / 2u) {
        if place < half {
            lane_moments[local_index] = merged(lane_moments[local_index], lane_moments[local_index + half]);
        }
        workgroupBarrier();
    }
    let all = lane_moments[local_index - place];
    workgroupBarrier();
    return all;
}
#endif
