// Reductions over some axes of a tensor: where the terms of each output are. Neighbouring axes of one kind (kept or reduced) count
// as one, so that at most three of each are left; number 0 is the innermost. With ONE_AXIS only that one is reduced.

struct Axes {
    outputs: u32,
    // Terms of one output.
    terms: u32,
    // Invocations that share an output: the terms of one are so many apart.
    splits: u32,
    // Of sums, applied where a sum is complete.
    scale: f32,
    // 1 where the innermost axis is kept: then neighbouring invocations work on neighbouring outputs, else on
    // neighbouring splits.
    outputs_innermost: u32,
    kept_extent_0: u32,
    kept_extent_1: u32,
    kept_stride_0: u32,
    kept_stride_1: u32,
    kept_stride_2: u32,
    reduced_extent_0: u32,
    reduced_extent_1: u32,
    reduced_stride_0: u32,
    reduced_stride_1: u32,
    reduced_stride_2: u32,
}

// Where the first term of an output is.
fn kept_offset(o: u32, axes: Axes) -> u32 {
    let rest = o / axes.kept_extent_0;
    return (o % axes.kept_extent_0) * axes.kept_stride_0 + (rest % axes.kept_extent_1) * axes.kept_stride_1
        + (rest / axes.kept_extent_1) * axes.kept_stride_2;
}

// How far after it term t is.
fn reduced_offset(t: u32, axes: Axes) -> u32 {
#ifdef ONE_AXIS
    return t * axes.reduced_stride_0;
#else
    let rest = t / axes.reduced_extent_0;
    return (t % axes.reduced_extent_0) * axes.reduced_stride_0 + (rest % axes.reduced_extent_1) * axes.reduced_stride_1
        + (rest / axes.reduced_extent_1) * axes.reduced_stride_2;
#endif
}
