//! Trains neural networks on any GPU that wgpu reaches, inside a byte budget that the user sets.

pub mod data;
pub mod error;
pub mod graph;
pub mod ops;
pub mod shader;
pub mod tensor;
