//! Vectors of f32, written once for all widths.
//!
//! A [`Kernel`] is generic over [`Simd`]; [`Level::run`] compiles it once for each width that the processor may have and runs the
//! one for its level. Whatever a kernel calls in its inner loops is `#[inline(always)]`, so that it becomes a part of the
//! function for which the instructions are enabled; loops of plain Rust in it are vectorized by the compiler.
//!
//! # Safety
//! A [`Level`] exists only where the processor was asked whether it has the instructions, and the types that stand for them
//! are made by [`Level::run`] alone. Loads and stores through slices check their length; those through pointers are only in
//! [`tile`](super::tile).
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

use std::fmt;

/// A vector of the processor.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// A vector.
    type V: Copy;
    /// Elements of a vector.
    const LANES: usize;
    /// Rows of a tile of products, and vectors in each: as many sums as the compiler finds registers for.
    const ROWS: usize;
    /// See [`ROWS`](Self::ROWS).
    const VECTORS: usize;

    /// Whether the processor converts IEEE floats of 16 bits.
    const HAS_F16: bool = false;

    /// All lanes alike.
    fn splat(self, x: f32) -> Self::V;
    /// a + b
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// a · b + c, rounded once where the processor can
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// max(a, 0), where NaN stays NaN
    fn relu(self, a: Self::V) -> Self::V;
    /// The larger of two; b where a is not a number
    fn max(self, a: Self::V, b: Self::V) -> Self::V;

    /// # Safety
    /// `LANES` elements lie at `from`.
    unsafe fn load_at(self, from: *const f32) -> Self::V;
    /// # Safety
    /// `LANES` elements lie at `to`, and nothing else uses them.
    unsafe fn store_at(self, to: *mut f32, v: Self::V);
    /// The first `count` lanes; the others are 0.
    ///
    /// # Safety
    /// `count` elements lie at `from`, less than `LANES`.
    unsafe fn load_part_at(self, from: *const f32, count: usize) -> Self::V;
    /// # Safety
    /// `count` elements lie at `to`, less than `LANES`, and nothing else uses them.
    unsafe fn store_part_at(self, to: *mut f32, count: usize, v: Self::V);

    /// The values of `LANES` floats of 16 bits.
    ///
    /// # Safety
    /// As many lie at `from`, and the processor converts them.
    unsafe fn load_f16_at(self, from: *const u16) -> Self::V {
        let _ = from;
        unreachable!("bug: the processor does not convert f16")
    }
    /// Rounds to nearest, of two as near to the even one.
    ///
    /// # Safety
    /// `LANES` floats of 16 bits lie at `to`, nothing else uses them, and the processor converts them.
    unsafe fn store_f16_at(self, to: *mut u16, v: Self::V) {
        let _ = (to, v);
        unreachable!("bug: the processor does not convert f16")
    }

    /// As [`load_f16_at`](Self::load_f16_at), of the first `LANES` elements.
    #[inline(always)]
    fn load_f16(self, from: &[u16]) -> Self::V {
        assert!(Self::HAS_F16 && from.len() >= Self::LANES);
        // Sound: both were checked.
        unsafe { self.load_f16_at(from.as_ptr()) }
    }

    /// As [`store_f16_at`](Self::store_f16_at), to the first `LANES` elements.
    #[inline(always)]
    fn store_f16(self, to: &mut [u16], v: Self::V) {
        assert!(Self::HAS_F16 && to.len() >= Self::LANES);
        // Sound: both were checked.
        unsafe { self.store_f16_at(to.as_mut_ptr(), v) }
    }

    /// The first `LANES` elements.
    #[inline(always)]
    fn load(self, from: &[f32]) -> Self::V {
        assert!(from.len() >= Self::LANES);
        // Sound: their number was checked.
        unsafe { self.load_at(from.as_ptr()) }
    }

    /// As many elements as there are, of `LANES`; the lanes of others are 0.
    #[inline(always)]
    fn load_part(self, from: &[f32]) -> Self::V {
        // Sound: so many there are.
        unsafe {
            if from.len() >= Self::LANES {
                self.load_at(from.as_ptr())
            } else {
                self.load_part_at(from.as_ptr(), from.len())
            }
        }
    }

    /// Writes the first `LANES` elements.
    #[inline(always)]
    fn store(self, to: &mut [f32], v: Self::V) {
        assert!(to.len() >= Self::LANES);
        // Sound: their number was checked.
        unsafe { self.store_at(to.as_mut_ptr(), v) }
    }

    /// Writes as many elements as there is room for, at most `LANES`.
    #[inline(always)]
    fn store_part(self, to: &mut [f32], v: Self::V) {
        // Sound: so many there are.
        unsafe {
            if to.len() >= Self::LANES {
                self.store_at(to.as_mut_ptr(), v);
            } else {
                self.store_part_at(to.as_mut_ptr(), to.len(), v);
            }
        }
    }

    /// Swaps rows and columns of a square of `LANES` by `LANES`.
    #[inline(always)]
    fn transpose(self, from: &[f32], from_stride: usize, to: &mut [f32], to_stride: usize) {
        assert!((Self::LANES - 1) * from_stride + Self::LANES <= from.len());
        assert!((Self::LANES - 1) * to_stride + Self::LANES <= to.len());
        // Sound: all elements were just found to be there.
        unsafe { self.transpose_at(from.as_ptr(), from_stride, to.as_mut_ptr(), to_stride) }
    }

    /// Swaps rows and columns of a square of `LANES` by `LANES`.
    ///
    /// # Safety
    /// `LANES` elements lie at each of `from + i · from_stride` and `to + i · to_stride` for i below `LANES`, and nothing else
    /// uses the latter.
    unsafe fn transpose_at(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize);
}

/// Code that is compiled for each width. Mark `run` `#[inline(always)]`.
pub(crate) trait Kernel {
    /// What it returns.
    type Output;
    /// The code.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Which vectors the processor has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(Width);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Width {
    Portable,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// What this processor has, the widest last.
    pub fn available() -> Vec<Level> {
        std::iter::once(Level(Width::Portable)).chain(Level::wider()).collect()
    }

    #[cfg(target_arch = "x86_64")]
    fn wider() -> Vec<Level> {
        let has_avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let has_avx512 = has_avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        let all = [(has_avx2, Width::Avx2), (has_avx512, Width::Avx512)];
        all.into_iter().filter_map(|(has, width)| has.then_some(Level(width))).collect()
    }

    #[cfg(target_arch = "aarch64")]
    fn wider() -> Vec<Level> {
        vec![Level(Width::Neon)]
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn wider() -> Vec<Level> {
        Vec::new()
    }

    /// The widest that this processor has.
    pub fn best() -> Level {
        Level::available().pop().expect("bug: portable code runs everywhere")
    }

    /// The widest that this processor has, or, where the environment variable `TIGHTFIT_CPU` names one that it has, that: for tests
    /// and comparisons.
    pub fn chosen() -> Level {
        let Ok(wanted) = std::env::var("TIGHTFIT_CPU") else { return Level::best() };
        let available = Level::available();
        available.iter().copied().find(|level| level.name().eq_ignore_ascii_case(&wanted)).unwrap_or_else(|| {
            let names: Vec<_> = available.iter().map(|level| level.name()).collect();
            log::warn!("TIGHTFIT_CPU={wanted}: this processor has {}; the widest is taken", names.join(", "));
            Level::best()
        })
    }

    /// Elements of a vector.
    pub fn lanes(self) -> usize {
        struct Lanes;
        impl Kernel for Lanes {
            type Output = usize;
            #[inline(always)]
            fn run<S: Simd>(self, _simd: S) -> usize {
                S::LANES
            }
        }
        self.run(Lanes)
    }

    /// Most rows of a tile, and most vectors in each.
    pub(crate) fn tile(self) -> (usize, usize) {
        struct Tile;
        impl Kernel for Tile {
            type Output = (usize, usize);
            #[inline(always)]
            fn run<S: Simd>(self, _simd: S) -> (usize, usize) {
                (S::ROWS, S::VECTORS)
            }
        }
        self.run(Tile)
    }

    /// The name, as in `TIGHTFIT_CPU`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Width::Portable => "portable",
            #[cfg(target_arch = "aarch64")]
            Width::Neon => "neon",
            #[cfg(target_arch = "x86_64")]
            Width::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Width::Avx512 => "avx512",
        }
    }

    /// Runs a kernel with these vectors.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Width::Portable => kernel.run(portable::Portable),
            // Sound: there is a level only where the processor has it.
            #[cfg(target_arch = "aarch64")]
            Width::Neon => unsafe { neon::run(kernel) },
            #[cfg(target_arch = "x86_64")]
            Width::Avx2 => unsafe { avx2::run(kernel) },
            #[cfg(target_arch = "x86_64")]
            Width::Avx512 => unsafe { avx512::run(kernel) },
        }
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self.0 {
            Width::Portable => "no vectors",
            #[cfg(target_arch = "aarch64")]
            Width::Neon => "NEON",
            #[cfg(target_arch = "x86_64")]
            Width::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Width::Avx512 => "AVX-512",
        })
    }
}
