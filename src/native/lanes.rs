//! Runs of neighbours in lanes: arrays that the compiler makes vectors of. The order of sums is the same for all of them.

use super::Simd;

/// Elements that are taken together.
pub(crate) const LANES: usize = 16;

/// A number for all elements of a run, or one for each.
pub(crate) trait Number: Copy {
    /// Those of some elements.
    fn part(self, start: usize, length: usize) -> Self;
    /// That of an element.
    fn at(self, i: usize) -> f32;
}

impl Number for f32 {
    #[inline(always)]
    fn part(self, _start: usize, _length: usize) -> Self {
        self
    }

    #[inline(always)]
    fn at(self, _i: usize) -> f32 {
        self
    }
}

impl Number for &[f32] {
    #[inline(always)]
    fn part(self, start: usize, length: usize) -> Self {
        &self[start..start + length]
    }

    #[inline(always)]
    fn at(self, i: usize) -> f32 {
        self[i]
    }
}

/// Some elements in lanes; those that are missing are `rest`.
#[inline(always)]
pub(crate) fn lanes_of(x: &[f32], rest: f32) -> [f32; LANES] {
    let mut lanes = [rest; LANES];
    for i in 0..LANES {
        lanes[i] = if i < x.len() { x[i] } else { rest };
    }
    lanes
}

/// The larger of two, or the first where the second is not a number.
#[inline(always)]
pub(crate) fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// Puts lanes together until one is left.
macro_rules! fold {
    ($lanes:expr, $by:ident) => {{
        let lanes: [f32; LANES] = $lanes;
        let mut eight = [0.0; 8];
        for i in 0..8 {
            eight[i] = $by(lanes[i], lanes[i + 8]);
        }
        let [a, b, c, d, e, f, g, h] = eight;
        $by($by($by(a, e), $by(c, g)), $by($by(b, f), $by(d, h)))
    }};
}

/// Applies the loop body to the elements of a run, in lanes that are added or whatever `by` does. There are four arrays of lanes, so
/// that results do not wait for each other; one longer array would not be kept in registers.
macro_rules! over {
    ($x:ident, $start:expr, $rest:expr, |$lane:ident, $element:ident| $body:expr, $by:ident) => {{
        let [mut first, mut second, mut third, mut fourth] = [[$start; LANES]; 4];
        macro_rules! next {
            ($lanes:ident, $elements:expr) => {
                let elements: &[f32] = $elements;
                for i in 0..LANES {
                    let ($lane, $element) = ($lanes[i], elements[i]);
                    $lanes[i] = $body;
                }
            };
        }
        let mut whole = $x.chunks_exact(4 * LANES);
        for x in &mut whole {
            next!(first, &x[..LANES]);
            next!(second, &x[LANES..2 * LANES]);
            next!(third, &x[2 * LANES..3 * LANES]);
            next!(fourth, &x[3 * LANES..]);
        }
        for x in whole.remainder().chunks(LANES) {
            next!(first, &lanes_of(x, $rest));
        }
        for i in 0..LANES {
            first[i] = $by($by(first[i], second[i]), $by(third[i], fourth[i]));
        }
        fold!(first, $by)
    }};
}

#[inline(always)]
fn add(a: f32, b: f32) -> f32 {
    a + b
}

/// The sum of lanes.
#[inline(always)]
pub(crate) fn total(lanes: [f32; LANES]) -> f32 {
    fold!(lanes, add)
}

/// The sum of a run.
#[inline(always)]
pub(crate) fn sum(x: &[f32]) -> f32 {
    over!(x, 0.0, 0.0, |sum, x| sum + x, add)
}

/// The sum of the squares of what the elements of a run are away from a center.
#[inline(always)]
pub(crate) fn squares(x: &[f32], center: f32) -> f32 {
    over!(x, 0.0, center, |sum, x| sum + (x - center) * (x - center), add)
}

/// The largest element of a run that is a number; −∞ if there is none.
#[inline(always)]
pub(crate) fn largest<S: Simd>(simd: S, x: &[f32]) -> f32 {
    if x.len() < S::LANES {
        let mut most = f32::NEG_INFINITY;
        for &x in x {
            most = larger(most, x);
        }
        return most;
    }
    let mut most = [simd.splat(f32::NEG_INFINITY); 4];
    let mut whole = x.chunks_exact(4 * S::LANES);
    for x in &mut whole {
        for (most, x) in most.iter_mut().zip(x.chunks_exact(S::LANES)) {
            *most = simd.max(simd.load(x), *most);
        }
    }
    for x in whole.remainder().chunks_exact(S::LANES) {
        most[0] = simd.max(simd.load(x), most[0]);
    }
    // Some elements of the last vector were there before, which does no harm.
    most[1] = simd.max(simd.load(&x[x.len() - S::LANES..]), most[1]);
    let mut lanes = [f32::NEG_INFINITY; LANES];
    simd.store(&mut lanes, simd.max(simd.max(most[0], most[1]), simd.max(most[2], most[3])));
    fold!(lanes, larger)
}
