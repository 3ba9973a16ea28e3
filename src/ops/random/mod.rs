//! Random numbers.

pub(in crate::ops) mod philox;

ops! {
    dropout,
}
