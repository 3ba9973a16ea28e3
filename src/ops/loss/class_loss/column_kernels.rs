//! The loops of cross-entropies at neighbouring positions, where classes are rows.

use super::kernels::{Own, Targets, term};
use crate::native::lanes::larger;
use crate::native::{Block, Fast, Kernel, Simd};
use crate::ops::place::parts;
use crate::ops::reduce::softmax_rows::exp;

/// Positions that are taken together.
pub(super) const TOGETHER: usize = 64;
/// Classes whose terms are added in f32.
const CLASSES: usize = 256;

/// Positions whose logits of a class are neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neighbours {
    /// The number of the first position, and of its first logit.
    pub(super) position: usize,
    pub(super) start: usize,
    /// Logits from one class to the next.
    pub(super) inner: usize,
    /// How many, at most [`TOGETHER`].
    pub(super) count: usize,
}

/// A number for each position.
type Numbers = [f32; TOGETHER];

impl Neighbours {
    /// The shares of a class, but the labels' own.
    #[inline(always)]
    fn shares(&self, targets: &Targets<'_>, class: usize, shares: &mut Numbers) {
        let weight = match targets.weights {
            Some(weights) => weights[class],
            None => 1.0,
        };
        if targets.labels.is_some() {
            *shares = [weight * targets.spread; TOGETHER];
        } else {
            let numbers = &targets.numbers[self.start + class * self.inner..][..self.count];
            for (share, number) in shares.iter_mut().zip(numbers) {
                *share = weight * (targets.kept * number + targets.spread);
            }
        }
    }
}

/// The sum of the losses at some positions.
pub(super) struct Loss<'a> {
    pub(super) targets: &'a Targets<'a>,
    pub(super) at: Neighbours,
    pub(super) x: &'a [f32],
}

impl Kernel for Loss<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> f64 {
        let Loss { targets, at, x } = self;
        let classes = targets.classes;
        let x = &x[at.start..];
        let mut largest = [f32::NEG_INFINITY; TOGETHER];
        for class in 0..classes {
            for (largest, &x) in largest.iter_mut().zip(&x[class * at.inner..][..at.count]) {
                *largest = larger(*largest, x);
            }
        }
        let mut ln = [0.0; TOGETHER];
        for classes in parts(0..classes, CLASSES) {
            let mut terms = [0.0; TOGETHER];
            for class in classes {
                let x = &x[class * at.inner..][..at.count];
                for ((term, &largest), &x) in terms.iter_mut().zip(&largest).zip(x) {
                    *term += exp(x - largest);
                }
            }
            add(&mut ln, &terms);
        }
        for ln in &mut ln {
            *ln = Fast(*ln).ln().0;
        }
        let mut losses = [0.0; TOGETHER];
        for classes in parts(0..if targets.labels_alone() { 0 } else { classes }, CLASSES) {
            let (mut terms, mut shares) = ([0.0; TOGETHER], [0.0; TOGETHER]);
            for class in classes {
                at.shares(targets, class, &mut shares);
                let x = &x[class * at.inner..][..at.count];
                for (i, &x) in x.iter().enumerate() {
                    terms[i] += term(shares[i], ln[i], largest[i], x);
                }
            }
            add(&mut losses, &terms);
        }
        let mut sum = 0.0;
        for i in 0..at.count {
            let own = match targets.own(at.position + i) {
                Own::Nothing => 0.0,
                Own::Share(label, share) => term(share, ln[i], largest[i], x[label * at.inner + i]),
                Own::Ignored => continue,
                Own::Wrong => f32::NAN,
            };
            sum += f64::from(targets.weight(at.position + i)) * f64::from(losses[i] + own);
        }
        sum
    }
}

#[inline(always)]
fn add(sums: &mut Numbers, terms: &Numbers) {
    for (sum, term) in sums.iter_mut().zip(terms) {
        *sum += term;
    }
}

/// The gradients at some positions, into a block with a row for each class; of the logits, or else of what is in the block.
pub(super) struct Gradient<'a, 'b> {
    pub(super) targets: &'a Targets<'a>,
    pub(super) at: Neighbours,
    pub(super) factor: f32,
    pub(super) spread_total: f32,
    pub(super) x: Option<&'a [f32]>,
    pub(super) block: Block<'b>,
}

impl Kernel for Gradient<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Gradient { targets, at, mut block, .. } = self;
        let classes = targets.classes;
        let mut largest = [f32::NEG_INFINITY; TOGETHER];
        for class in 0..classes {
            let row = block.row(class);
            if let Some(x) = self.x {
                row.copy_from_slice(&x[at.start + class * at.inner..][..at.count]);
            }
            for (largest, &x) in largest.iter_mut().zip(&*row) {
                *largest = larger(*largest, x);
            }
        }
        let (mut sums, mut totals) = ([0.0; TOGETHER], [0.0; TOGETHER]);
        let mut shares = [0.0; TOGETHER];
        for classes in parts(0..classes, CLASSES) {
            let (mut terms, mut terms_of_total) = ([0.0; TOGETHER], [0.0; TOGETHER]);
            for class in classes {
                for ((term, &largest), x) in terms.iter_mut().zip(&largest).zip(block.row(class)) {
                    *x = exp(*x - largest);
                    *term += *x;
                }
                if targets.labels.is_none() {
                    at.shares(targets, class, &mut shares);
                    add(&mut terms_of_total, &shares);
                }
            }
            add(&mut sums, &terms);
            add(&mut totals, &terms_of_total);
        }
        let (mut factors, mut counts) = ([0.0; TOGETHER], [false; TOGETHER]);
        for i in 0..at.count {
            let position = at.position + i;
            factors[i] = self.factor * targets.weight(position);
            counts[i] = true;
            match targets.own(position) {
                Own::Nothing => {}
                Own::Share(_, share) => totals[i] = self.spread_total + share,
                Own::Ignored => counts[i] = false,
                Own::Wrong => factors[i] = f32::NAN,
            }
        }
        for (total, sum) in totals.iter_mut().zip(&sums) {
            *total /= sum;
        }
        for class in 0..classes {
            at.shares(targets, class, &mut shares);
            for (i, x) in block.row(class).iter_mut().enumerate() {
                let gradient = factors[i] * (*x * totals[i] - shares[i]);
                *x = if counts[i] { gradient } else { 0.0 };
            }
        }
        for (i, factor) in factors.iter().enumerate().take(at.count) {
            if let Own::Share(label, share) = targets.own(at.position + i) {
                block.row(label)[i] -= factor * share;
            }
        }
    }
}
