//! Sums, means and extrema over axes, and softmax.

pub(in crate::ops) mod extremum;
pub(in crate::ops) mod reduction;
pub(in crate::ops) mod softmax_rows;

ops! {
    amax,
    amin,
    log_softmax,
    mean,
    softmax,
    sum,
}
