//! The number type of native forms: f32 whose functions the compiler can vectorize.

/// An f32. Its functions have no branches and no calls, so that a loop over them becomes vectors; the same bits on all.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[repr(transparent)]
pub(crate) struct Fast(pub(crate) f32);
