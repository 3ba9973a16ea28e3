//! Pooling and resampling of images.

mod native;
pub(in crate::ops) mod windows;

ops! {
    adaptive_avg_pool2d,
    avg_pool2d,
    max_pool2d,
    upsample_bilinear2d,
    upsample_nearest2d,
}
