//! Test cases: each op says on which shapes and settings it wants to be tested.

use std::sync::Arc;

use crate::ops::Op;
use crate::tensor::{DType, TensorDesc};

/// How an input is filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// N(0, 1).
    Normal,
    /// Uniform in a range.
    Uniform(f32, f32),
    /// Integers 0..n.
    Labels(u32),
    /// One value.
    Constant(f32),
    /// Normal, with values nearer to 0 than the number moved away from it: for kinks (relu) under finite differences.
    AwayFromZero(f32),
    /// All elements differ by at least the number: for ties (max) under finite differences.
    Distinct(f32),
}

/// One op with settings, and the inputs to test it on.
#[derive(Clone, Debug)]
pub struct Case {
    /// `stride2_pad1`: unique within the op. A golden entry of the same name checks the twin against PyTorch.
    pub name: String,
    /// The op.
    pub op: Arc<dyn Op>,
    /// Its inputs.
    pub inputs: Vec<(TensorDesc, Fill)>,
    /// Which inputs get gradients.
    pub wanted: Vec<bool>,
    /// Terms in the longest sum, which sets the tolerance of the GPU comparison.
    pub reduction: usize,
    /// False for shapes too big for finite differences.
    pub finite_differences: bool,
}

impl Case {
    /// A case in which every real input is N(0, 1) and gets a gradient.
    pub fn new(name: impl Into<String>, op: impl Op, inputs: impl IntoIterator<Item = TensorDesc>) -> Self {
        let inputs: Vec<_> = inputs.into_iter().map(|desc| (desc, Fill::Normal)).collect();
        let wanted = inputs.iter().map(|(desc, _)| !matches!(desc.dtype, DType::U32 | DType::U8)).collect();
        Case { name: name.into(), op: Arc::new(op), inputs, wanted, reduction: 1, finite_differences: true }
    }

    /// Fills input `i` differently.
    #[must_use]
    pub fn fill(mut self, i: usize, fill: Fill) -> Self {
        self.inputs[i].1 = fill;
        self
    }

    /// Input `i` gets no gradient.
    #[must_use]
    pub fn no_grad(mut self, i: usize) -> Self {
        self.wanted[i] = false;
        self
    }

    /// Forward only (updates, metrics).
    #[must_use]
    pub fn forward_only(mut self) -> Self {
        self.wanted.fill(false);
        self
    }

    /// Sets the number of terms in the longest sum.
    #[must_use]
    pub fn reduction(mut self, terms: usize) -> Self {
        self.reduction = terms.max(1);
        self
    }

    /// Leaves out finite differences, for large shapes.
    #[must_use]
    pub fn large(mut self) -> Self {
        self.finite_differences = false;
        self
    }
}

/// An op's entry in the list of all ops.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name of the op's file.
    pub name: &'static str,
    /// The folder that the file is in.
    pub family: &'static str,
    /// Its test cases.
    pub cases: fn() -> Vec<Case>,
}
