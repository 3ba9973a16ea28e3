//! Dynamic 8-bit codes: 256 numbers up to 1 in seven decades, of which each has twice as many as the one below. They are
//! those of the paper's own implementation (`create_dynamic_map` of bitsandbytes).
//!
//! Decade d, from 10^(d−7) to 10^(d−6), is cut into 2^d parts of one size where numbers have signs, into 2^(d+1) where they have none,
//! and a code is the middle of a part. Two codes besides are 0 and 1. All numbers get the nearest code, but where there are no signs
//! none above 0 gets that of 0: a second moment of 0 would make a step of a moment divided by eps.
//!
//! Codes count numbers up from 0: with signs, code 256 − n is minus code n, and −1, which has no code, gets the nearest, −0.993.
//!
//! Native code and kernels find codes without searching. The place of x among all parts, in which part n goes from n to n + 1, is a
//! function of straight lines, one for each decade, and concave: the least of seven lines. Only at the lower end of a decade is the
//! nearest middle not that of the part: there the first fifth of the first part, which is wider than the one below, is nearer to that
//! one's. The line of the lowest decade is bent so that 0 ends where it should.

use crate::native::Simd;
use crate::ops::Real;
use crate::ops::optim::adam8bit::BLOCK;

/// Decades.
const DECADES: usize = 7;

/// Numbers with signs.
pub(super) static SIGNED: Codes = Codes::new(1);
/// Numbers without.
pub(super) static UNSIGNED: Codes = Codes::new(2);

/// The numbers of all codes.
#[derive(Debug)]
pub(super) struct Codes {
    /// By code.
    numbers: [f64; 256],
    single: [f32; 256],
    /// The code of 1.
    last: u8,
    /// Slope and offset of the lines, with the other sign, since vectors know the larger of two and not the smaller.
    lines: [[f32; 2]; DECADES],
    /// Up from here, numbers are nearer to 1 than to the code below.
    most: f32,
}

impl Codes {
    /// With so many parts of the lowest decade: 1 where there are signs, 2 where there are none.
    const fn new(parts: usize) -> Codes {
        let is_signed = parts == 1;
        let (mut numbers, mut lines) = ([0.0; 256], [[0.0; 2]; DECADES]);
        let (mut code, mut decade, mut parts, mut top) = (1, 0, parts, 1e-6);
        while decade < DECADES {
            let mut part = 0;
            while part < parts {
                numbers[code] = top * (0.1 + 0.9 * (part as f64 + 0.5) / parts as f64);
                if is_signed {
                    numbers[256 - code] = -numbers[code];
                }
                (code, part) = (code + 1, part + 1);
            }
            // A decade is nine tenths of its upper end; part `parts` begins at a tenth.
            let (slope, offset) = (parts as f64 / (0.9 * top), parts as f64 * 8.0 / 9.0);
            lines[decade] = [-slope as f32, -offset as f32];
            (decade, parts, top) = (decade + 1, 2 * parts, 10.0 * top);
        }
        numbers[code] = 1.0;
        // In the lowest decade only the ends of its parts matter. With signs, place 1.2 must be halfway between 0 and the first number, and
        // 0 is a little above place 1; without, all is above place 2.2, and place 3 where it was.
        lines[0] = if is_signed { [-0.19 / 0.275e-6, -1.01] } else { [-0.8 / 0.55e-6, -2.200_001] };
        let most = f64::midpoint(numbers[code - 1], 1.0) as f32;
        let mut single = [0.0; 256];
        let mut i = 0;
        while i < 256 {
            (single[i], i) = (numbers[i] as f32, i + 1);
        }
        Codes { numbers, single, last: code as u8, lines, most }
    }

    fn is_signed(&self) -> bool {
        self.last == 128
    }

    /// The number of a code.
    pub(super) fn number<T: Real>(&self, code: u8) -> T {
        T::from_f64(self.numbers[usize::from(code)])
    }

    /// The code of the nearest number, by a search.
    pub(super) fn nearest<T: Real>(&self, x: T) -> u8 {
        let size = x.to_f64().abs();
        let numbers = &self.numbers[..=usize::from(self.last)];
        let above = numbers.partition_point(|&number| number < size).clamp(1, numbers.len() - 1);
        let n = if size - numbers[above - 1] < numbers[above] - size { above - 1 } else { above };
        if x < T::ZERO {
            (256 - n.min(127)) as u8
        } else if n == 0 && size > 0.0 && !self.is_signed() {
            1
        } else {
            n as u8
        }
    }

    /// Writes the numbers of codes times a scale.
    #[inline(always)]
    pub(super) fn decode(&self, codes: &[u8; BLOCK], scale: f32, numbers: &mut [f32; BLOCK]) {
        for i in 0..BLOCK {
            numbers[i] = self.single[usize::from(codes[i])] * scale;
        }
    }

    /// Writes the codes of numbers over a scale that is no less than the largest of them; `sizes` are without their signs.
    #[inline(always)]
    pub(super) fn encode<S: Simd>(
        &self,
        simd: S,
        [numbers, sizes]: [&[f32; BLOCK]; 2],
        scale: f32,
        codes: &mut [u8; BLOCK],
    ) {
        let inverse = 1.0 / scale;
        let mut lines = [[simd.splat(0.0); 2]; DECADES];
        for (line, [slope, offset]) in lines.iter_mut().zip(self.lines) {
            *line = [simd.splat(slope * inverse), simd.splat(offset)];
        }
        let [lowest, others @ ..] = lines;
        let mut places = [0.0; BLOCK];
        for (place, size) in places.chunks_exact_mut(S::LANES).zip(sizes.chunks_exact(S::LANES)) {
            let size = simd.load(size);
            let mut most = simd.mul_add(size, lowest[0], lowest[1]);
            for line in &others {
                most = simd.max(most, simd.mul_add(size, line[0], line[1]));
            }
            simd.store(place, most);
        }
        let most = self.most * scale;
        if self.is_signed() {
            for i in 0..BLOCK {
                let n = part(places[i]);
                // −1 where it is below 0.
                let sign = numbers[i].to_bits() as i32 >> 31;
                let n = (n ^ sign).wrapping_sub(sign);
                let n = if numbers[i] >= most { 128 } else { n };
                codes[i] = n as u8;
            }
        } else {
            for i in 0..BLOCK {
                // Parts begin at 2, codes at 1.
                let n = part(places[i]).wrapping_sub(1);
                let n = if numbers[i] > 0.0 { n } else { 0 };
                let n = if numbers[i] >= most { 255 } else { n };
                codes[i] = n as u8;
            }
        }
    }
}

/// The part whose middle is nearest, in the lowest eight bits; of minus a place above 1.
#[inline(always)]
fn part(minus: f32) -> i32 {
    // Added to a number, leaves the nearest integer in the lowest bits: of a half, the even one, which is that of a decade's first part.
    const ROUND: f32 = 8_388_608.0;
    let part = ((-0.5 - minus) + ROUND).to_bits() as i32;
    // In the first fifth of a decade, a fifth less has a smaller exponent.
    let is_below = (minus.to_bits() ^ (minus + 0.2).to_bits()) as i32 > 0x7f_ffff;
    part.wrapping_sub(i32::from(is_below))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::{Kernel, Level};

    /// The codes of numbers over a scale.
    fn encoded(codes: &Codes, level: Level, numbers: &[f32; BLOCK], scale: f32) -> [u8; BLOCK] {
        struct Encode<'a> {
            codes: &'a Codes,
            numbers: &'a [f32; BLOCK],
            scale: f32,
        }
        impl Kernel for Encode<'_> {
            type Output = [u8; BLOCK];
            #[inline(always)]
            fn run<S: Simd>(self, simd: S) -> [u8; BLOCK] {
                let mut codes = [0; BLOCK];
                self.codes.encode(simd, [self.numbers, &self.numbers.map(f32::abs)], self.scale, &mut codes);
                codes
            }
        }
        level.run(Encode { codes, numbers, scale })
    }

    #[test]
    fn every_code_is_its_own() {
        for codes in [&SIGNED, &UNSIGNED] {
            let all: [u8; BLOCK] = std::array::from_fn(|code| code as u8);
            let mut distinct = codes.numbers.to_vec();
            distinct.sort_by(f64::total_cmp);
            assert!(distinct.is_sorted_by(|a, b| a < b), "{distinct:?}");
            assert_eq!(all.map(|code| codes.nearest(codes.number::<f64>(code))), all);
            assert_eq!((codes.number::<f32>(0), codes.number::<f32>(codes.last)), (0.0, 1.0));
            for scale in [1.0, 3e-31, 7.7, 2e30] {
                let mut numbers = [f32::NAN; BLOCK];
                codes.decode(&all, scale, &mut numbers);
                for level in Level::available() {
                    assert_eq!(encoded(codes, level, &numbers, scale), all, "{level}, scale {scale}");
                }
            }
        }
    }

    #[test]
    fn codes_are_the_nearest() {
        let mut sizes: Vec<f32> = (0..400_000).map(|i| 10f64.powf(-8.0 + f64::from(i) * 2e-5) as f32).collect();
        sizes.extend([0.0, 1e-45, 1e-38, 1e-30, 1.0]);
        for codes in [&SIGNED, &UNSIGNED] {
            // Ends of parts, too.
            let mut middles = codes.numbers.to_vec();
            middles.sort_by(f64::total_cmp);
            let ends = middles.windows(2).map(|pair| f64::midpoint(pair[0], pair[1]).abs() as f32);
            let near = ends.flat_map(|x| [x.next_down(), x, x.next_up()]).filter(|x| *x <= 1.0);
            let mut sizes: Vec<f32> = sizes.iter().copied().chain(near).collect();
            if codes.is_signed() {
                sizes.extend(sizes.clone().iter().map(|x| -x));
            }
            let distance = |code: u8, x: f32| (codes.number::<f64>(code) - f64::from(x)).abs();
            let allowed = |code: u8, x: f32| codes.is_signed() || (code == 0) == (x == 0.0);
            for block in sizes.chunks(BLOCK) {
                let numbers: [f32; BLOCK] = std::array::from_fn(|i| block.get(i).copied().unwrap_or(0.0));
                let native = Level::available().into_iter().map(|level| encoded(codes, level, &numbers, 1.0));
                for found in native.chain([numbers.map(|x| codes.nearest(x))]) {
                    for (&code, x) in found.iter().zip(numbers) {
                        let others = (0..=u8::MAX).filter(|&code| allowed(code, x)).map(|code| distance(code, x));
                        let nearest = others.fold(f64::INFINITY, f64::min);
                        // Halfway between two, single precision may choose either.
                        let is_nearest = distance(code, x) <= nearest + 1e-6 * f64::from(x.abs());
                        assert!(is_nearest && allowed(code, x), "{x:e} is {:e}", codes.number::<f64>(code));
                    }
                }
            }
        }
    }
}
