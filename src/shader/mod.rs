//! Compute shaders in WGSL: the preprocessor, the variants of a kernel, and what naga says of their bindings and parameters. Needs
//! no device.

mod fused;
mod memory;
mod preprocess;
pub(crate) mod reflect;
pub(crate) mod source;
mod tiles;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::tensor::Half;
pub use fused::{EpilogueFunction, Operand};
pub use reflect::{Field, Scalar};
pub(crate) use reflect::{Reflection, module};
pub use source::WgslFile;
pub(crate) use source::source;
pub use tiles::{ProductKind, ProductSize, Tile, Tiles};

/// An entry point: `conv2d.grad_weight` is `grad_weight` in `shaders/conv/conv2d.wgsl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kernel {
    /// The file.
    pub file: WgslFile,
    /// Entry point.
    pub entry: &'static str,
}

impl Kernel {
    /// An entry point of a file. A name alone is that of a file of this crate.
    pub fn new(file: impl Into<WgslFile>, entry: &'static str) -> Self {
        Kernel { file: file.into(), entry }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.file, self.entry)
    }
}

/// Which body of a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// Workgroup memory and barriers: runs everywhere.
    Workgroup,
    /// Subgroup broadcast in registers, for a fixed subgroup size: `SUBGROUPS` is defined and `SUBGROUP_SIZE` is a
    /// constant of the prelude.
    Subgroup {
        /// Invocations of a subgroup.
        size: u32,
    },
    /// As `Workgroup`, with products of blocks by the device's units for matrices, whose edge is the constant `COOPERATIVE`.
    /// Subgroups must be of 32 invocations. Kernels other than matrix products have no such body and run as `Workgroup`.
    /// Never run on a device so far: only naga has seen it.
    Cooperative {
        /// Rows and columns of a matrix: 8 or 16.
        size: u32,
        /// What is multiplied. Sums are f32.
        #[serde(default)]
        operand: MatrixOperand,
    },
}

/// What units for matrices multiply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MatrixOperand {
    /// Floats of 32 bits.
    #[default]
    F32,
    /// IEEE floats of 16 bits, to which what lies in memory as f32 is rounded, as parameters do: `F16_OPERANDS` is defined. (WGSL has
    /// no type bf16.)
    F16,
}

impl Family {
    /// Whether kernels count on workgroup memory that begins as zeros. Others write it before they read it, because zeroing is
    /// not for nothing: in HLSL one invocation does it element by element, which takes FXC half a minute to compile.
    pub fn needs_zeroed_workgroup_memory(self) -> bool {
        matches!(self, Family::Cooperative { .. })
    }
}

/// What an op may know of the device when it describes its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// The family to use where a kernel has both.
    pub family: Family,
    /// Whether the driver takes minutes and gigabytes to compile long code, so that kernels unroll little.
    #[serde(default)]
    pub short_code: bool,
    /// Rows and columns of the matrices of f16 that the device's units multiply; 0 for none. Products whose operands are stored
    /// as f16 take them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub f16_matrices: u32,
    /// Tiles of matrix products that were measured to be quicker than those the family takes by itself.
    #[serde(default, skip_serializing_if = "Tiles::is_empty")]
    pub tiles: Tiles,
}

impl Target {
    /// A device of this family of which nothing else is known.
    pub const fn new(family: Family) -> Self {
        Target { family, short_code: false, f16_matrices: 0, tiles: Tiles::NONE }
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Default for Target {
    fn default() -> Self {
        Target::new(Family::Workgroup)
    }
}

/// How f32 lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StorageType {
    /// As it is.
    F32,
    /// The same, but each vector is read and written as words of 64 bits.
    F32Words,
}

/// How floats of 16 bits lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HalfForm {
    /// As the type `f16`, where the adapter has it.
    NativeF16,
    /// IEEE floats, two in a word.
    F16,
    /// The upper halves of f32, two in a word.
    Bf16,
}

impl HalfForm {
    /// The form for a device that has the type `f16` or not.
    pub(crate) fn new(half: Half, has_f16: bool) -> Self {
        match half {
            Half::F16 if has_f16 => HalfForm::NativeF16,
            Half::F16 => HalfForm::F16,
            Half::Bf16 => HalfForm::Bf16,
        }
    }

    /// In names of functions.
    fn word(self) -> &'static str {
        match self {
            HalfForm::NativeF16 | HalfForm::F16 => "f16",
            HalfForm::Bf16 => "bf16",
        }
    }
}

/// How inputs are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// `var<storage, read>`, as the files are written.
    Read,
    /// Every `var<storage, read>` becomes `read_write`: legal when an input shares a buffer with an output.
    ReadWrite,
}

/// One way to compile a kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Variant {
    /// How f32 lies in memory.
    pub storage: StorageType,
    /// Bindings of floats in 16 bits, by number.
    pub halves: Vec<(u32, HalfForm)>,
    /// How inputs are bound.
    pub access: Access,
    /// The input whose memory output 0 takes over: `IN_PLACE` and `IN_PLACE_<i>` are defined.
    pub in_place: Option<usize>,
    /// Which body.
    pub family: Family,
    /// Constants of the prelude.
    pub consts: Vec<(&'static str, u32)>,
    /// Elementwise functions that it computes on the way to its output.
    pub epilogue: Vec<EpilogueFunction>,
}

/// Whether all that a kernel is made of is written in this crate, nothing by its user.
pub(crate) fn is_of_crate(kernel: Kernel, variant: &Variant) -> bool {
    let functions = variant.epilogue.iter().map(|op| op.function.file);
    std::iter::once(kernel.file).chain(functions).all(WgslFile::is_of_crate)
}
