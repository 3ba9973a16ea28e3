//! What native code of ops is written with: vectors of the processor (`simd`), the tile of matrix products (`tile`) and what is
//! made of it, products (`product`) and cells over a time axis (`recurrent`), functions of elements (`map`, `fast`), threads
//! (`pool`), and views of outputs that threads share (`view`). All `unsafe` code of native forms is in these files, each of
//! which says why it is sound; what is built on them is safe.
// Loops count over arrays that are registers: closures may become functions without the instructions of their callers.
#![allow(clippy::needless_range_loop)]

mod cores;
mod fast;
pub(crate) mod half;
pub(crate) mod lanes;
mod map;
mod pool;
mod product;
pub(crate) mod recurrent;
mod reduce;
mod simd;
mod sums;
mod tile;
mod transpose;
mod view;

pub use cores::Cores;
pub(crate) use fast::Fast;
pub(crate) use map::{Function, Rule, change, expand_bits, map, pack_signs};
pub(crate) use product::{Extents, Factor, Product};
pub(crate) use reduce::{Fold, Reduction, Terms, Total};
pub use simd::Level;
pub(crate) use simd::{Kernel, Simd};
pub(crate) use sums::{dot, long_sum};
pub(crate) use tile::{MAX_COLUMNS, MAX_ROWS, MAX_VECTORS, Offsets, Operand, Start, Sums, tile};
pub(crate) use transpose::transpose;
pub(crate) use view::Block;
