//! Vectors of four f32 in plain Rust, which the compiler makes of whatever every processor of the architecture has.

use super::Simd;

/// Plain Rust.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Simd for Portable {
    type V = [f32; 4];
    const LANES: usize = 4;
    const ROWS: usize = 4;
    const VECTORS: usize = 2;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; 4]
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn relu(self, a: Self::V) -> Self::V {
        a.map(|x| if x < 0.0 { 0.0 } else { x })
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> Self::V {
        unsafe { from.cast::<[f32; 4]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store_at(self, to: *mut f32, v: Self::V) {
        unsafe { to.cast::<[f32; 4]>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn load_part_at(self, from: *const f32, count: usize) -> Self::V {
        std::array::from_fn(|i| if i < count { unsafe { *from.add(i) } } else { 0.0 })
    }

    #[inline(always)]
    unsafe fn store_part_at(self, to: *mut f32, count: usize, v: Self::V) {
        for (i, x) in v.into_iter().enumerate().take(count) {
            unsafe { *to.add(i) = x }
        }
    }

    #[inline(always)]
    unsafe fn transpose_at(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        unsafe {
            let rows: [Self::V; 4] = std::array::from_fn(|i| self.load_at(from.add(i * from_stride)));
            for i in 0..4 {
                self.store_at(to.add(i * to_stride), rows.map(|row| row[i]));
            }
        }
    }
}
