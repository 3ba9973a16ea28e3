//! Vectors of four f32: NEON.

use std::arch::aarch64::*;

use super::{Kernel, Simd};

/// NEON.
#[derive(Clone, Copy)]
pub(super) struct Neon(());

/// # Safety
/// The processor has it: all of this architecture do.
#[target_feature(enable = "neon")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Neon(()))
}

// Sound, all of them: every processor of this architecture has the instructions.
impl Simd for Neon {
    type V = float32x4_t;
    const LANES: usize = 4;
    const ROWS: usize = 5;
    const VECTORS: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> float32x4_t {
        unsafe { vdupq_n_f32(x) }
    }

    #[inline(always)]
    fn add(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vaddq_f32(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        unsafe { vfmaq_f32(c, a, b) }
    }

    #[inline(always)]
    fn relu(self, a: float32x4_t) -> float32x4_t {
        // What is not a number stays so.
        unsafe { vmaxq_f32(vdupq_n_f32(0.0), a) }
    }

    #[inline(always)]
    fn max(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vmaxnmq_f32(a, b) }
    }

    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> float32x4_t {
        unsafe { vld1q_f32(from) }
    }

    #[inline(always)]
    unsafe fn store_at(self, to: *mut f32, v: float32x4_t) {
        unsafe { vst1q_f32(to, v) }
    }

    #[inline(always)]
    unsafe fn load_part_at(self, from: *const f32, count: usize) -> float32x4_t {
        let mut lanes = [0.0; 4];
        for (i, lane) in lanes.iter_mut().enumerate().take(count) {
            *lane = unsafe { *from.add(i) };
        }
        unsafe { vld1q_f32(lanes.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn store_part_at(self, to: *mut f32, count: usize, v: float32x4_t) {
        let mut lanes = [0.0; 4];
        unsafe { vst1q_f32(lanes.as_mut_ptr(), v) };
        for (i, &lane) in lanes.iter().enumerate().take(count) {
            unsafe { *to.add(i) = lane }
        }
    }

    #[inline(always)]
    unsafe fn transpose_at(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        unsafe {
            let [a, b, c, d] = std::array::from_fn(|i| vld1q_f32(from.add(i * from_stride)));
            let (ab, cd) = (vtrnq_f32(a, b), vtrnq_f32(c, d));
            for (i, (x, y)) in [(ab.0, cd.0), (ab.1, cd.1)].into_iter().enumerate() {
                vst1q_f32(to.add(i * to_stride), vcombine_f32(vget_low_f32(x), vget_low_f32(y)));
                vst1q_f32(to.add((i + 2) * to_stride), vcombine_f32(vget_high_f32(x), vget_high_f32(y)));
            }
        }
    }
}
