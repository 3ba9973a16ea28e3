//! Ops that move elements and compute nothing.

pub(in crate::ops) mod strided;

ops! {
    concat,
    copy,
    detach,
    fill,
    flip,
    pad,
    permute,
    reshape,
    slice,
    split,
}
