//! Matrix products.

pub(in crate::ops) mod gemm;

ops! {
    matmul,
}
