//! Functions of the elements at one place, over whole tensors.

use super::{Fast, Kernel, Level, Simd};

/// A function of so many numbers. Mark `of` `#[inline(always)]`, and all that it calls.
pub(crate) trait Function<const N: usize>: Copy {
    /// The function.
    fn of(self, x: [Fast; N]) -> Fast;
}

/// Writes the function of the elements at each place. All slices are of one length.
pub(crate) fn map<const N: usize>(level: Level, function: impl Function<N>, operands: [&[f32]; N], output: &mut [f32]) {
    level.run(Map { function, operands, output });
}

struct Map<'a, F, const N: usize> {
    function: F,
    operands: [&'a [f32]; N],
    output: &'a mut [f32],
}

impl<F: Function<N>, const N: usize> Kernel for Map<'_, F, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Map { function, mut operands, output } = self;
        let length = output.len();
        for operand in &mut operands {
            *operand = &operand[..length];
        }
        for i in 0..length {
            let mut x = [Fast(0.0); N];
            for k in 0..N {
                x[k] = Fast(operands[k][i]);
            }
            output[i] = function.of(x).0;
        }
    }
}

/// A rule by which some numbers change, with others that are read. Mark `change` `#[inline(always)]`, and all that it calls.
pub(crate) trait Rule<const CHANGED: usize, const READ: usize>: Copy {
    /// Changes the numbers.
    fn change(self, changed: &mut [Fast; CHANGED], read: [Fast; READ]);
}

/// Changes the elements at each place. All slices are of one length.
pub(crate) fn change<const CHANGED: usize, const READ: usize>(
    level: Level,
    rule: impl Rule<CHANGED, READ>,
    changed: [&mut [f32]; CHANGED],
    read: [&[f32]; READ],
) {
    level.run(Change { rule, changed, read });
}

struct Change<'a, R, const CHANGED: usize, const READ: usize> {
    rule: R,
    changed: [&'a mut [f32]; CHANGED],
    read: [&'a [f32]; READ],
}

/// Elements that change at a time: copies, of which the compiler knows that they do not overlap.
const CHUNK: usize = 64;

impl<R: Rule<CHANGED, READ>, const CHANGED: usize, const READ: usize> Kernel for Change<'_, R, CHANGED, READ> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Change { rule, changed, read } = self;
        let length = changed[0].len();
        let (mut values, mut others) = ([[0.0; CHUNK]; CHANGED], [[0.0; CHUNK]; READ]);
        for start in (0..length).step_by(CHUNK) {
            let count = CHUNK.min(length - start);
            for k in 0..CHANGED {
                values[k][..count].copy_from_slice(&changed[k][start..start + count]);
            }
            for k in 0..READ {
                others[k][..count].copy_from_slice(&read[k][start..start + count]);
            }
            // Elements past the end are computed too, and go nowhere.
            for i in 0..CHUNK {
                let (mut x, mut y) = ([Fast(0.0); CHANGED], [Fast(0.0); READ]);
                for k in 0..CHANGED {
                    x[k] = Fast(values[k][i]);
                }
                for k in 0..READ {
                    y[k] = Fast(others[k][i]);
                }
                rule.change(&mut x, y);
                for k in 0..CHANGED {
                    values[k][i] = x[k].0;
                }
            }
            for k in 0..CHANGED {
                changed[k][start..start + count].copy_from_slice(&values[k][..count]);
            }
        }
    }
}

/// Writes 1 or 0 for each of the bits from `start` on.
pub(crate) fn expand_bits(level: Level, words: &[u32], start: usize, output: &mut [f32]) {
    level.run(Expand { words: &words[start / 32..], shift: start % 32, output });
}

struct Expand<'a> {
    words: &'a [u32],
    shift: usize,
    output: &'a mut [f32],
}

impl Kernel for Expand<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        for (i, output) in self.output.chunks_mut(32).enumerate() {
            let next = self.words.get(i + 1).copied().unwrap_or(0);
            let word = ((u64::from(next) << 32 | u64::from(self.words[i])) >> self.shift) as u32;
            match <&mut [f32; 32]>::try_from(&mut *output) {
                Ok(output) => {
                    for (bit, y) in output.iter_mut().enumerate() {
                        *y = if word & 1 << bit == 0 { 0.0 } else { 1.0 };
                    }
                }
                Err(_) => {
                    for (bit, y) in output.iter_mut().enumerate() {
                        *y = if word & 1 << bit == 0 { 0.0 } else { 1.0 };
                    }
                }
            }
        }
    }
}

/// Packs a bit for each element, which says whether it is above 0; bits past the end are 0.
pub(crate) fn pack_signs(level: Level, input: &[f32], words: &mut [u32]) {
    level.run(Pack { input, words });
}

struct Pack<'a> {
    input: &'a [f32],
    words: &'a mut [u32],
}

impl Kernel for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        for (word, input) in self.words.iter_mut().zip(self.input.chunks(32)) {
            *word = 0;
            match <&[f32; 32]>::try_from(input) {
                Ok(input) => {
                    for (bit, &x) in input.iter().enumerate() {
                        *word |= if x > 0.0 { 1 << bit } else { 0 };
                    }
                }
                Err(_) => {
                    for (bit, &x) in input.iter().enumerate() {
                        *word |= if x > 0.0 { 1 << bit } else { 0 };
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_expanded_from_any_place_on() {
        let input: Vec<f32> = (0..200).map(|i| ((i * i) % 7) as f32 - 3.0).collect();
        let signs: Vec<f32> = input.iter().map(|&x| f32::from(x > 0.0)).collect();
        for level in Level::available() {
            let mut words = [u32::MAX; 7];
            pack_signs(level, &input, &mut words);
            assert_eq!(words[6] >> 8, 0, "past the end");
            for (start, end) in [(0, 200), (1, 200), (31, 64), (32, 33), (45, 200), (199, 200), (7, 7)] {
                let mut output = vec![f32::NAN; end - start];
                expand_bits(level, &words, start, &mut output);
                assert_eq!(output, signs[start..end], "{level}, {start} to {end}");
            }
        }
    }
}
