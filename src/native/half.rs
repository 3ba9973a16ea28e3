//! Floats of 16 bits from and to f32: with any vectors the same bits, but those of what is not a number. f16 is converted by
//! instructions where the processor has them, else by arithmetic, as bf16 is.

use super::{Kernel, Level, Simd};
use crate::tensor::Half;

/// Writes the f32 values of halves. Both slices are of one length.
pub(crate) fn decode(level: Level, half: Half, input: &[u16], output: &mut [f32]) {
    match half {
        Half::F16 => level.run(DecodeF16(input, output)),
        Half::Bf16 => level.run(Each { function: bf16_to_f32, input, output }),
    }
}

/// Writes halves that are nearest to f32 values, of two as near the even one. Both slices are of one length.
pub(crate) fn encode(level: Level, half: Half, input: &[f32], output: &mut [u16]) {
    match half {
        Half::F16 => level.run(EncodeF16(input, output)),
        Half::Bf16 => level.run(Each { function: f32_to_bf16, input, output }),
    }
}

/// The f32 value of a half.
pub(crate) fn decode_one(half: Half, x: u16) -> f32 {
    match half {
        Half::F16 => f16_to_f32(x),
        Half::Bf16 => bf16_to_f32(x),
    }
}

/// The half that is nearest to an f32 value.
pub(crate) fn encode_one(half: Half, x: f32) -> u16 {
    match half {
        Half::F16 => f32_to_f16(x),
        Half::Bf16 => f32_to_bf16(x),
    }
}

/// The nearest value to an f32 that a half can have.
pub(crate) fn round(half: Half, x: f32) -> f32 {
    decode_one(half, encode_one(half, x))
}

/// The same for many. Both slices are of one length.
pub(crate) fn round_all(level: Level, half: Half, input: &[f32], output: &mut [f32]) {
    match half {
        Half::F16 => level.run(RoundF16(input, output)),
        Half::Bf16 => level.run(Each { function: round_bf16, input, output }),
    }
}

/// Writes a function of each element.
struct Each<'a, F, A, B> {
    function: F,
    input: &'a [A],
    output: &'a mut [B],
}

impl<A: Copy, B, F: Fn(A) -> B> Kernel for Each<'_, F, A, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let input = &self.input[..self.output.len()];
        for i in 0..input.len() {
            self.output[i] = (self.function)(input[i]);
        }
    }
}

/// Defines a kernel of two slices: of vectors where the processor converts f16, and of elements otherwise.
macro_rules! of_f16 {
    ($name:ident, $from:ty, $to:ty, $vector:ident, $element:ident) => {
        struct $name<'a>(&'a [$from], &'a mut [$to]);

        impl Kernel for $name<'_> {
            type Output = ();

            #[inline(always)]
            fn run<S: Simd>(self, simd: S) {
                let $name(input, output) = self;
                let input = &input[..output.len()];
                let vectors = if S::HAS_F16 { output.len() / S::LANES * S::LANES } else { 0 };
                for at in (0..vectors).step_by(S::LANES) {
                    $vector(simd, &input[at..at + S::LANES], &mut output[at..at + S::LANES]);
                }
                for at in vectors..input.len() {
                    output[at] = $element(input[at]);
                }
            }
        }
    };
}

of_f16!(DecodeF16, u16, f32, decode_vector, f16_to_f32);
of_f16!(EncodeF16, f32, u16, encode_vector, f32_to_f16);
of_f16!(RoundF16, f32, f32, round_vector, round_f16);

#[inline(always)]
fn decode_vector<S: Simd>(simd: S, from: &[u16], to: &mut [f32]) {
    simd.store(to, simd.load_f16(from));
}

#[inline(always)]
fn encode_vector<S: Simd>(simd: S, from: &[f32], to: &mut [u16]) {
    simd.store_f16(to, simd.load(from));
}

#[inline(always)]
fn round_vector<S: Simd>(simd: S, from: &[f32], to: &mut [f32]) {
    // As long as the longest vector.
    let mut halves = [0; 16];
    encode_vector(simd, from, &mut halves);
    decode_vector(simd, &halves, to);
}

#[inline(always)]
fn round_f16(x: f32) -> f32 {
    f16_to_f32(f32_to_f16(x))
}

#[inline(always)]
fn round_bf16(x: f32) -> f32 {
    bf16_to_f32(f32_to_bf16(x))
}

#[inline(always)]
fn bf16_to_f32(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

#[inline(always)]
fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    // What is not a number stays so.
    let no_number = bits & 0x7fff_ffff > 0x7f80_0000;
    ((if no_number { bits | 0x40_0000 } else { rounded }) >> 16) as u16
}

/// 2^112, the difference of the two exponents' biases.
const BIAS: f32 = f32::from_bits((127 + 112) << 23);

#[inline(always)]
fn f16_to_f32(half: u16) -> f32 {
    let bits = u32::from(half & 0x7fff) << 13;
    // Of a value below the least exponent, too, the product is exact.
    let finite = (f32::from_bits(bits) * BIAS).to_bits();
    let magnitude = if bits >= 0x0f80_0000 { bits | 0x7f80_0000 } else { finite };
    f32::from_bits(magnitude | u32::from(half & 0x8000) << 16)
}

#[inline(always)]
fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    // Adding a power of two that is as much larger as bits are lost rounds to the nearest; what remains of it are the exponent and
    // the fraction. Below 2^-14 the places of all values are those of 2^-14.
    let exponent = (magnitude & 0x7f80_0000).clamp(113 << 23, 142 << 23);
    let large = f32::from_bits(exponent + (13 << 23));
    let sum = (f32::from_bits(magnitude.min(0x4780_0000)) + large).to_bits();
    // The sum's fraction counts units of the last place, with the leading one where there is one.
    let units = sum & 0x7f_ffff;
    let rounded = ((exponent - (113 << 23)) >> 13) + units;
    // 65,520 and more are infinite.
    let finite = rounded.min(0x7c00);
    let half = if magnitude > 0x7f80_0000 { 0x7e00 } else { finite };
    (half | bits >> 16 & 0x8000) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition of the format, in f64.
    fn f16_value(half: u16) -> f64 {
        let (exponent, fraction) = (i32::from(half >> 10 & 31), f64::from(half & 1023));
        let magnitude = match exponent {
            0 => fraction * 2.0_f64.powi(-24),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1024.0 + fraction) * 2.0_f64.powi(exponent - 25),
        };
        if half >> 15 == 1 { -magnitude } else { magnitude }
    }

    #[test]
    fn every_f16_is_what_its_bits_say_and_comes_back() {
        for half in 0..=u16::MAX {
            let value = f16_to_f32(half);
            if f16_value(half).is_nan() {
                assert!(value.is_nan() && f16_to_f32(f32_to_f16(value)).is_nan(), "{half:#x}");
            } else {
                assert_eq!(f64::from(value).to_bits(), f16_value(half).to_bits(), "{half:#x}");
                assert_eq!(f32_to_f16(value), half, "{value}");
            }
        }
    }

    #[test]
    fn f16_is_the_nearest_and_of_two_the_even_one() {
        for half in 0..0x7c00_u16 {
            let (low, high) = (f64::from(f16_to_f32(half)), f16_value(half + 1));
            // The next after the largest would be 65,536.
            let high = if high.is_infinite() { 65_536.0 } else { high };
            let middle = ((low + high) / 2.0) as f32;
            let even = half + (half & 1);
            for (x, expected) in [(middle.next_down(), half), (middle, even), (middle.next_up(), half + 1)] {
                assert_eq!(f32_to_f16(x), expected, "{x}");
                assert_eq!(f32_to_f16(-x), expected | 0x8000, "-{x}");
            }
        }
        for x in [65_536.0, 1e30, f32::INFINITY, f32::MAX] {
            assert_eq!([f32_to_f16(x), f32_to_f16(-x)], [0x7c00, 0xfc00], "{x}");
        }
        assert_eq!([f32_to_f16(1e-30), f32_to_f16(-0.0)], [0, 0x8000]);
    }

    #[test]
    fn bf16_is_the_nearest_and_of_two_the_even_one() {
        for half in 0..0x7f80_u16 {
            let low = bf16_to_f32(half);
            assert_eq!(f32_to_bf16(low), half);
            let middle = f32::from_bits(u32::from(half) << 16 | 0x8000);
            for (x, expected) in [(middle.next_down(), half), (middle, half + (half & 1)), (middle.next_up(), half + 1)]
            {
                assert_eq!(f32_to_bf16(x), expected, "{x}");
                assert_eq!(f32_to_bf16(-x), expected | 0x8000, "-{x}");
            }
        }
        assert_eq!(bf16_to_f32(f32_to_bf16(f32::INFINITY)), f32::INFINITY);
        for bits in [0x7f80_0001, 0x7fff_ffff, 0xffff_ffff] {
            assert!(bf16_to_f32(f32_to_bf16(f32::from_bits(bits))).is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn vectors_of_every_width_make_the_same_bits() {
        let values: Vec<f32> = (0..4099_u32).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9))).collect();
        for half in [Half::F16, Half::Bf16] {
            for level in Level::available() {
                let (mut halves, mut back) = (vec![0; values.len()], vec![0.0; values.len()]);
                encode(level, half, &values, &mut halves);
                decode(level, half, &halves, &mut back);
                let mut rounded = vec![0.0; values.len()];
                round_all(level, half, &values, &mut rounded);
                assert!(
                    rounded.iter().zip(&back).all(|(x, y)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()))
                );
                for (&x, &y) in values.iter().zip(&back) {
                    let expected = round(half, x);
                    let same = expected.to_bits() == y.to_bits() || (expected.is_nan() && y.is_nan());
                    assert!(same, "{level}, {half}: {x} became {y}");
                }
            }
        }
    }
}
