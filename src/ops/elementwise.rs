//! Launches of kernels that take four elements per invocation.

use super::{Dispatch, Slot};

/// Parameters of every such kernel: elements / 4 rounded up, and one number that the op gives meaning to.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    vectors: u32,
    setting: f32,
}

/// A launch over `numel` elements; the kernel's parameters are `vectors: u32, setting: f32`.
pub(super) fn launch(
    file: &'static str,
    entry: &'static str,
    bindings: impl Into<Vec<Slot>>,
    numel: usize,
    setting: f32,
) -> Dispatch {
    let vectors = numel.div_ceil(4);
    Dispatch::new(file, entry, bindings)
        .params(&Params { vectors: vectors as u32, setting })
        .linear(vectors.div_ceil(64))
}
