//! Normalizations.

pub(in crate::ops) mod normalization;

ops! {
    batch_norm,
    batch_norm_eval,
    group_norm,
    layer_norm,
    rms_norm,
}
