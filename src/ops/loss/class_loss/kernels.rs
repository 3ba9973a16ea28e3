//! The loops of cross-entropies at positions whose classes are neighbours.
//!
//! The share of a class is `weight · (kept · target + spread)`, and one label more may have a share of its own.

use crate::native::lanes::{LANES, Number, largest, total};
use crate::native::{Fast, Kernel, Simd};
use crate::ops::reduce::softmax_rows::{become_exp, sum_exp};

/// Terms that are added in f32.
const BLOCK: usize = 256 * LANES;

/// What the loss of each position is made of, beside the logits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Targets<'a> {
    pub(super) classes: usize,
    /// A label for each position, or else a number for each logit.
    pub(super) labels: Option<&'a [u32]>,
    pub(super) numbers: &'a [f32],
    pub(super) ignored: Option<u32>,
    /// Of each class.
    pub(super) weights: Option<&'a [f32]>,
    /// `1 − smoothing` and `smoothing / classes`.
    pub(super) kept: f32,
    pub(super) spread: f32,
    /// Weights of samples, and the positions that have one in common.
    pub(super) samples: Option<(&'a [f32], usize)>,
}

/// What a label has of its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Own {
    /// No label: there is a number for each class.
    Nothing,
    /// The share of a class.
    Share(usize, f32),
    /// The position does not count.
    Ignored,
    /// There is no such class.
    Wrong,
}

impl Targets<'_> {
    #[inline(always)]
    pub(super) fn own(&self, position: usize) -> Own {
        let Some(labels) = self.labels else { return Own::Nothing };
        let label = labels[position];
        if self.ignored == Some(label) {
            Own::Ignored
        } else if label as usize >= self.classes {
            Own::Wrong
        } else {
            let weight = match self.weights {
                Some(weights) => weights[label as usize],
                None => 1.0,
            };
            Own::Share(label as usize, weight * self.kept)
        }
    }

    /// The weight of a position's sample.
    #[inline(always)]
    pub(super) fn weight(&self, position: usize) -> f32 {
        match self.samples {
            Some((weights, per)) => weights[position / per],
            None => 1.0,
        }
    }

    /// Whether all shares but the labels' are 0.
    #[inline(always)]
    pub(super) fn labels_alone(&self) -> bool {
        self.labels.is_some() && self.spread == 0.0
    }

    /// The sum of all shares but the labels' own, where it is the same at every position.
    pub(super) fn spread_total(&self) -> f32 {
        match self.weights {
            Some(weights) => self.spread * weights.iter().map(|&weight| f64::from(weight)).sum::<f64>() as f32,
            None => self.spread * self.classes as f32,
        }
    }
}

/// Binds the shares at some logits, from one whose number is `start`, and evaluates an expression.
macro_rules! with_shares {
    ($targets:expr, $start:expr, |$shares:ident| $body:expr) => {{
        let Targets { labels, numbers, weights, kept, spread, .. } = *$targets;
        match (labels, weights) {
            (None, Some(weight)) => {
                let $shares = Shares { target: &numbers[$start..], weight, kept, spread };
                $body
            }
            (None, None) => {
                let $shares = Shares { target: &numbers[$start..], weight: 1.0, kept, spread };
                $body
            }
            (Some(_), Some(weight)) => {
                let $shares = Shares { target: 0.0, weight, kept, spread };
                $body
            }
            (Some(_), None) => {
                let $shares = Shares { target: 0.0, weight: 1.0, kept, spread };
                $body
            }
        }
    }};
}

/// Shares of classes, but the labels' own.
#[derive(Clone, Copy, Debug)]
struct Shares<T, W> {
    target: T,
    weight: W,
    kept: f32,
    spread: f32,
}

impl<T: Number, W: Number> Shares<T, W> {
    #[inline(always)]
    fn part(self, start: usize, length: usize) -> Self {
        Shares { target: self.target.part(start, length), weight: self.weight.part(start, length), ..self }
    }

    #[inline(always)]
    fn at(&self, i: usize) -> f32 {
        self.weight.at(i) * (self.kept * self.target.at(i) + self.spread)
    }
}

/// What a class adds to the loss. Without a share it does not count, even where its logit is −∞.
#[inline(always)]
pub(super) fn term(share: f32, ln: f32, largest: f32, x: f32) -> f32 {
    let term = share * (ln + (largest - x));
    if share == 0.0 { 0.0 } else { term }
}

/// The logarithm of the sum of exponentials less the largest, and the largest.
#[inline(always)]
fn logarithm(simd: impl Simd, x: &[f32]) -> (f32, f32) {
    let largest = largest(simd, x);
    (Fast(sum_exp(x, largest)).ln().0, largest)
}

/// The loss at a position.
#[inline(always)]
fn loss(x: &[f32], (ln, largest): (f32, f32), shares: Shares<impl Number, impl Number>) -> f64 {
    let mut sum = 0.0;
    let mut at = 0;
    while at < x.len() {
        let end = x.len().min(at + BLOCK);
        let mut lanes = [0.0; LANES];
        while at + LANES <= end {
            let (x, shares) = (&x[at..at + LANES], shares.part(at, LANES));
            for i in 0..LANES {
                lanes[i] += term(shares.at(i), ln, largest, x[i]);
            }
            at += LANES;
        }
        for i in at..end {
            lanes[i - at] += term(shares.at(i), ln, largest, x[i]);
        }
        at = end;
        sum += f64::from(total(lanes));
    }
    sum
}

/// The sum of all shares.
#[inline(always)]
fn sum_of_shares(classes: usize, shares: Shares<impl Number, impl Number>) -> f32 {
    let mut sum = 0.0;
    let mut at = 0;
    while at < classes {
        let end = classes.min(at + BLOCK);
        let mut lanes = [0.0; LANES];
        while at + LANES <= end {
            let shares = shares.part(at, LANES);
            for (i, lane) in lanes.iter_mut().enumerate() {
                *lane += shares.at(i);
            }
            at += LANES;
        }
        for i in at..end {
            lanes[i - at] += shares.at(i);
        }
        at = end;
        sum += f64::from(total(lanes));
    }
    sum as f32
}

/// Makes the gradient at a position, of logits that are in its place, but for the label's own share.
#[inline(always)]
fn gradient(simd: impl Simd, row: &mut [f32], factor: f32, total: f32, shares: Shares<impl Number, impl Number>) {
    let largest = largest(simd, row);
    let scale = total / become_exp(row, largest);
    let shares = shares.part(0, row.len());
    for (i, x) in row.iter_mut().enumerate() {
        *x = factor * (*x * scale - shares.at(i));
    }
}

/// The sum of the losses at positions whose classes are neighbours.
pub(super) struct Loss<'a> {
    pub(super) targets: &'a Targets<'a>,
    /// The number of the first.
    pub(super) first: usize,
    pub(super) x: &'a [f32],
}

impl Kernel for Loss<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f64 {
        let Loss { targets, first, x } = self;
        let classes = targets.classes;
        let mut sum = 0.0;
        for (number, x) in x.chunks_exact(classes).enumerate() {
            let position = first + number;
            let own = targets.own(position);
            if let Own::Ignored = own {
                continue;
            }
            let (ln, largest) = logarithm(simd, x);
            let mut found = 0.0;
            if !targets.labels_alone() {
                found = with_shares!(targets, position * classes, |shares| loss(x, (ln, largest), shares));
            }
            match own {
                Own::Share(label, share) => found += f64::from(term(share, ln, largest, x[label])),
                Own::Wrong => found = f64::NAN,
                _ => {}
            }
            sum += f64::from(targets.weight(position)) * found;
        }
        sum
    }
}

/// The gradients at positions whose classes are neighbours, of logits that are in their place.
pub(super) struct Gradient<'a> {
    pub(super) targets: &'a Targets<'a>,
    pub(super) first: usize,
    pub(super) factor: f32,
    pub(super) spread_total: f32,
    pub(super) rows: &'a mut [f32],
}

impl Kernel for Gradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Gradient { targets, first, spread_total, rows, .. } = self;
        let classes = targets.classes;
        for (number, row) in rows.chunks_exact_mut(classes).enumerate() {
            let position = first + number;
            let factor = self.factor * targets.weight(position);
            match targets.own(position) {
                Own::Nothing => with_shares!(targets, position * classes, |shares| {
                    gradient(simd, row, factor, sum_of_shares(classes, shares), shares);
                }),
                Own::Share(label, share) => {
                    with_shares!(targets, 0, |shares| gradient(simd, row, factor, spread_total + share, shares));
                    row[label] -= factor * share;
                }
                Own::Ignored => row.fill(0.0),
                Own::Wrong => row.fill(f32::NAN),
            }
        }
    }
}
