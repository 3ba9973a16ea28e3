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
            let rows: [__m512; 16] = std::array::from_fn(|i| _mm512_loadu_ps(from.add(i * from_stride)));
            // Pairs of rows, then pairs of pairs, then the quarters of the vectors twice.
            let pairs: [__m512d; 16] = std::array::from_fn(|i| {
                let (a, b) = (rows[i & !1], rows[i | 1]);
                _mm512_castps_pd(if i % 2 == 0 { _mm512_unpacklo_ps(a, b) } else { _mm512_unpackhi_ps(a, b) })
            });
            let fours: [__m512; 16] = std::array::from_fn(|i| {
                let (block, column) = (i & !3, (i & 2) >> 1);
                let (a, b) = (pairs[block + column], pairs[block + column + 2]);
                _mm512_castpd_ps(if i % 2 == 0 { _mm512_unpacklo_pd(a, b) } else { _mm512_unpackhi_pd(a, b) })
            });
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
