//! Vectors of sixteen f32: AVX-512.

use std::arch::x86_64::*;

use super::{Kernel, Simd};

/// AVX-512 F, BW, DQ and VL.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

/// # Safety
/// The processor has them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512(()))
}

fn mask(count: usize) -> __mmask16 {
    (1u16 << count) - 1
}

// Sound, all of them: only `run` makes an `Avx512`, where the processor has the instructions.
impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    const ROWS: usize = 5;
    const VECTORS: usize = 4;
    const HAS_F16: bool = true;

    #[inline(always)]
    unsafe fn load_f16_at(self, from: *const u16) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store_f16_at(self, to: *mut u16, v: __m512) {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<NEAREST>(v)) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn relu(self, a: __m512) -> __m512 {
        // Where one of the two is not a number, the second is taken.
        unsafe { _mm512_max_ps(_mm512_setzero_ps(), a) }
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store_at(self, to: *mut f32, v: __m512) {
        unsafe { _mm512_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn load_part_at(self, from: *const f32, count: usize) -> __m512 {
        unsafe { _mm512_maskz_loadu_ps(mask(count), from) }
    }

    #[inline(always)]
    unsafe fn store_part_at(self, to: *mut f32, count: usize, v: __m512) {
        unsafe { _mm512_mask_storeu_ps(to, mask(count), v) }
    }

    #[inline(always)]
    unsafe fn transpose_at(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        unsafe {
            // Loops, not closures, which would be functions without these instructions.
            let mut rows = [_mm512_setzero_ps(); 16];
            for i in 0..16 {
                rows[i] = _mm512_loadu_ps(from.add(i * from_stride));
            }
            // Pairs of rows, then pairs of pairs, then the quarters of the vectors twice.
            let mut pairs = [_mm512_setzero_pd(); 16];
            for i in (0..16).step_by(2) {
                pairs[i] = _mm512_castps_pd(_mm512_unpacklo_ps(rows[i], rows[i + 1]));
                pairs[i + 1] = _mm512_castps_pd(_mm512_unpackhi_ps(rows[i], rows[i + 1]));
            }
            let mut fours = [_mm512_setzero_ps(); 16];
            for i in (0..16).step_by(4) {
                for half in 0..2 {
                    let (a, b) = (pairs[i + half], pairs[i + half + 2]);
                    fours[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
                    fours[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
                }
            }
            for i in 0..4 {
                let [a, b, c, d] = [fours[i], fours[4 + i], fours[8 + i], fours[12 + i]];
                let (ab, cd) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0x88>(c, d));
                let (ab_odd, cd_odd) = (_mm512_shuffle_f32x4::<0xdd>(a, b), _mm512_shuffle_f32x4::<0xdd>(c, d));
                _mm512_storeu_ps(to.add(i * to_stride), _mm512_shuffle_f32x4::<0x88>(ab, cd));
                _mm512_storeu_ps(to.add((4 + i) * to_stride), _mm512_shuffle_f32x4::<0x88>(ab_odd, cd_odd));
                _mm512_storeu_ps(to.add((8 + i) * to_stride), _mm512_shuffle_f32x4::<0xdd>(ab, cd));
                _mm512_storeu_ps(to.add((12 + i) * to_stride), _mm512_shuffle_f32x4::<0xdd>(ab_odd, cd_odd));
            }
        }
    }
}
