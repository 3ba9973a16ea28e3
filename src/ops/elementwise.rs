//! Launches of kernels that take four elements per invocation.

use super::{Dispatch, Slot};

/// A launch over `numel` elements; the kernel's parameters are `vectors: u32`, elements / 4 rounded up, and `setting: f32`,
/// a number that the op gives meaning to.
pub(super) fn launch(
    file: &'static str,
    entry: &'static str,
    bindings: impl Into<Vec<Slot>>,
    numel: usize,
    setting: f32,
) -> Dispatch {
    launch_with(file, entry, bindings, numel, &[setting])
}

/// As [`launch`], with any number of settings.
pub(super) fn launch_with(
    file: &'static str,
    entry: &'static str,
    bindings: impl Into<Vec<Slot>>,
    numel: usize,
    settings: &[f32],
) -> Dispatch {
    let vectors = numel.div_ceil(4);
    let mut params = (vectors as u32).to_ne_bytes().to_vec();
    params.extend_from_slice(bytemuck::cast_slice(settings));
    Dispatch { params, ..Dispatch::new(file, entry, bindings).linear(vectors.div_ceil(64)) }
}
