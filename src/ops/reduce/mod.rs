//! Sums over axes, and softmax.

pub(in crate::ops) mod reduction;
pub(in crate::ops) mod softmax_rows;

ops! {
    log_softmax,
    mean,
    softmax,
    sum,
}
