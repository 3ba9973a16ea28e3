//! Elementwise functions, and launches of kernels that take four elements per invocation.

use crate::ops::{Dispatch, KernelParams, Slot};
use crate::shader::{Kernel, WgslFile};
use crate::tensor::TensorDesc;

/// An elementwise op as a function that kernels call: of a vector of four elements of each input, then of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Elementwise {
    /// The function `<file>_<entry>` of a file.
    pub function: Kernel,
    /// The numbers.
    pub settings: Vec<f32>,
}

impl Elementwise {
    /// The function `<file>_<entry>`. A name alone is that of a file of this crate.
    pub fn new(file: impl Into<WgslFile>, entry: &'static str, settings: impl Into<Vec<f32>>) -> Self {
        Elementwise { function: Kernel { file: file.into(), entry }, settings: settings.into() }
    }
}

/// The launch of an elementwise op by itself.
pub(in crate::ops) fn dispatch(function: &Elementwise, inputs: &[TensorDesc], output: &TensorDesc) -> Dispatch {
    let operands = inputs.iter().enumerate().map(|(i, desc)| Some((Slot::Input(i), desc.dtype)));
    let params = KernelParams::default().with("vectors", vectors(output.numel()));
    let mut dispatch = over(Dispatch::new("elementwise", "forward", [Slot::Output(0)]), output.numel()).params(params);
    dispatch.fuse(function, operands);
    dispatch
}

params! {
    struct Params {
        vectors: u32,
        setting: f32,
    }
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
    over(Dispatch::new(file, entry, bindings), numel).params(&Params { vectors: vectors(numel), setting })
}

fn vectors(numel: usize) -> u32 {
    numel.div_ceil(4) as u32
}

fn over(dispatch: Dispatch, numel: usize) -> Dispatch {
    dispatch.linear(numel.div_ceil(4).div_ceil(64))
}
