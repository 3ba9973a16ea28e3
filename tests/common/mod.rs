//! What integration tests share.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

pub mod classifier;
pub mod compare;
pub mod eval;
pub mod fill;
pub mod golden;
pub mod recipe;

/// The default device's selector; `None` where there is no device and tests may do without (`TIGHTFIT_ALLOW_NO_GPU`).
pub fn gpu() -> Option<String> {
    tightfit::testing::device_or_skip().map(|device| device.info().index.to_string())
}
