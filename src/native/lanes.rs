//! Runs of neighbours in lanes: arrays that the compiler makes vectors of. The order of sums is the same for all of them.

/// Elements that are taken together.
pub(crate) const LANES: usize = 16;
/// The same in loops of little work, so that results do not wait for each other.
const MANY: usize = 4 * LANES;

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
    for (lane, &x) in lanes.iter_mut().zip(x) {
        *lane = x;
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

/// Applies the loop body to the elements of a run, in lanes that are added or whatever `by` does.
macro_rules! over {
    ($x:ident, $start:expr, $rest:expr, |$lane:ident, $element:ident| $body:expr, $by:ident) => {{
        let mut many = [$start; MANY];
        let mut whole = $x.chunks_exact(MANY);
        for x in &mut whole {
            for i in 0..MANY {
                let ($lane, $element) = (many[i], x[i]);
                many[i] = $body;
            }
        }
        let mut lanes = [$start; LANES];
        for i in 0..LANES {
            let low = $by(many[i], many[i + LANES]);
            lanes[i] = $by(low, $by(many[i + 2 * LANES], many[i + 3 * LANES]));
        }
        for x in whole.remainder().chunks(LANES) {
            let x = lanes_of(x, $rest);
            for i in 0..LANES {
                let ($lane, $element) = (lanes[i], x[i]);
                lanes[i] = $body;
            }
        }
        fold!(lanes, $by)
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
pub(crate) fn largest(x: &[f32]) -> f32 {
    over!(x, f32::NEG_INFINITY, f32::NEG_INFINITY, |most, x| larger(most, x), larger)
}
