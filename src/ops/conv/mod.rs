//! Convolutions.

ops! {
    conv2d,
    conv_transpose2d,
}
