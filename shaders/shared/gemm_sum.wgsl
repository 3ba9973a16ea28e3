// The sum of one number from each invocation of a workgroup, in an order that never changes: over one subgroup, or through
// workgroup memory (256 bytes). Must be called by all invocations; only invocation 0 gets the sum.
#ifdef SUBGROUPS
const SUM_INVOCATIONS = SUBGROUP_SIZE;

fn sum_invocations(value: Accum, index: u32) -> Accum {
    return subgroupAdd(value);
}
#else
const SUM_INVOCATIONS = 64u;

var<workgroup> sums: array<Accum, 64>;

fn sum_invocations(value: Accum, index: u32) -> Accum {
    sums[index] = value;
    workgroupBarrier();
    var total = Accum();
    if index == 0u {
        for (var i = 0u; i < 64u; i++) {
            total += sums[i];
        }
    }
    return total;
}
#endif
