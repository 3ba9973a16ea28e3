//! Ops that move elements and compute nothing.

pub(in crate::ops) mod strided;

ops! {
    concat,
    copy,
    detach,
    expand,
    fill,
    flip,
    pad,
    permute,
    reshape,
    slice,
    split,
}
