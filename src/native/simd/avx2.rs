//! Vectors of eight f32: AVX2 with FMA and F16C.

use std::arch::x86_64::*;

use super::{Kernel, Simd};

/// AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// # Safety
/// The processor has them.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// Ones in the first `count` lanes.
#[inline(always)]
fn mask(count: usize) -> __m256i {
    const ONES: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    debug_assert!(count <= 8);
    // Sound: eight numbers lie from the place 8 − count on.
    unsafe { _mm256_loadu_si256(ONES.as_ptr().add(8 - count).cast()) }
}

// Sound, all of them: only `run` makes an `Avx2`, where the processor has the instructions.
impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    const ROWS: usize = 6;
    const VECTORS: usize = 2;
    const HAS_F16: bool = true;

    #[inline(always)]
    unsafe fn load_f16_at(self, from: *const u16) -> __m256 {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store_f16_at(self, to: *mut u16, v: __m256) {
        unsafe { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn relu(self, a: __m256) -> __m256 {
        // Where one of the two is not a number, the second is taken.
        unsafe { _mm256_max_ps(_mm256_setzero_ps(), a) }
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store_at(self, to: *mut f32, v: __m256) {
        unsafe { _mm256_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn load_part_at(self, from: *const f32, count: usize) -> __m256 {
        unsafe { _mm256_maskload_ps(from, mask(count)) }
    }

    #[inline(always)]
    unsafe fn store_part_at(self, to: *mut f32, count: usize, v: __m256) {
        unsafe { _mm256_maskstore_ps(to, mask(count), v) }
    }

    #[inline(always)]
    unsafe fn transpose_at(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        unsafe {
            // Loops, not closures, which would be functions without these instructions.
            let mut rows = [_mm256_setzero_ps(); 8];
            for i in 0..8 {
                rows[i] = _mm256_loadu_ps(from.add(i * from_stride));
            }
            let mut pairs = [_mm256_setzero_pd(); 8];
            for i in (0..8).step_by(2) {
                pairs[i] = _mm256_castps_pd(_mm256_unpacklo_ps(rows[i], rows[i + 1]));
                pairs[i + 1] = _mm256_castps_pd(_mm256_unpackhi_ps(rows[i], rows[i + 1]));
            }
            let mut fours = [_mm256_setzero_ps(); 8];
            for i in (0..8).step_by(4) {
                for half in 0..2 {
                    let (a, b) = (pairs[i + half], pairs[i + half + 2]);
                    fours[i + 2 * half] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
                    fours[i + 2 * half + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
                }
            }
            for i in 0..4 {
                let (a, b) = (fours[i], fours[4 + i]);
                _mm256_storeu_ps(to.add(i * to_stride), _mm256_permute2f128_ps::<0x20>(a, b));
                _mm256_storeu_ps(to.add((4 + i) * to_stride), _mm256_permute2f128_ps::<0x31>(a, b));
            }
        }
    }
}
