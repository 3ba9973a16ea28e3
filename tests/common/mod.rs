//! What integration tests share.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

pub mod compare;
pub mod eval;
pub mod fill;
pub mod golden;
pub mod recipe;
