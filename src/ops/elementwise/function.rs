//! Elementwise functions, and launches of kernels that take four elements per invocation.

use crate::ops::{Dispatch, Slot};
use crate::shader::Kernel;
use crate::tensor::TensorDesc;

/// An elementwise op as a function that kernels call: of a vector of four elements of each input, then of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Elementwise {
    /// The function `<file>_<entry>` of `shaders/<file>.wgsl`.
    pub function: Kernel,
    /// The numbers.
    pub settings: Vec<f32>,
}

impl Elementwise {
    /// The function `<file>_<entry>`.
    pub fn new(file: &'static str, entry: &'static str, settings: impl Into<Vec<f32>>) -> Self {
        Elementwise { function: Kernel { file, entry }, settings: settings.into() }
    }
}

/// The launch of an elementwise op by itself.
pub(in crate::ops) fn dispatch(function: &Elementwise, inputs: &[TensorDesc], output: &TensorDesc) -> Dispatch {
    let operands = inputs.iter().enumerate().map(|(i, desc)| Some((Slot::Input(i), desc.dtype)));
    let mut dispatch = launch_with("elementwise", "forward", [Slot::Output(0)], output.numel(), &[]);
    dispatch.fuse(function, operands);
    dispatch
}

/// A launch over `numel` elements; the kernel's parameters are `vectors: u32`, elements / 4 rounded up, and `setting: f32`,
/// a number that the op gives meaning to.
pub(in crate::ops) fn launch(
    file: &'static str,
    entry: &'static str,
    bindings: impl Into<Vec<Slot>>,
    numel: usize,
    setting: f32,
) -> Dispatch {
    launch_with(file, entry, bindings, numel, &[setting])
}

/// As [`launch`], with any number of settings.
pub(in crate::ops) fn launch_with(
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
