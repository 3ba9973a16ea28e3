//! Long sums in CPU twins. Added up in f32 one after the other, millions of terms lose every digit that the sum has grown
//! past, so what twins add up goes through here: in f64, or in short blocks that are added up in f64.

use crate::ops::Real;

/// Terms that [`Blocks`] adds in the twin's own type.
const BLOCK_TERMS: usize = 32;

/// The sum of any number of terms.
pub(in crate::ops) fn sum<T: Real>(terms: impl IntoIterator<Item = T>) -> T {
    T::from_f64(terms.into_iter().map(T::to_f64).sum())
}

/// The mean of some numbers.
pub(in crate::ops) fn mean<T: Real>(terms: impl ExactSizeIterator<Item = T>) -> T {
    let count = T::from_f64(terms.len() as f64);
    sum(terms) / count
}

/// Many sums, whose terms come in any order.
#[derive(Clone, Debug)]
pub(in crate::ops) struct Sums(Vec<f64>);

impl Sums {
    /// So many, all 0.
    pub(in crate::ops) fn new(count: usize) -> Self {
        Sums(vec![0.0; count])
    }

    /// Adds a term to one of them.
    pub(in crate::ops) fn add<T: Real>(&mut self, place: usize, term: T) {
        self.0[place] += term.to_f64();
    }

    /// Adds a term to each of those from a place on.
    pub(in crate::ops) fn add_all<T: Real>(&mut self, first: usize, terms: &[T]) {
        for (sum, term) in self.0[first..].iter_mut().zip(terms) {
            *sum += term.to_f64();
        }
    }

    /// One of them.
    pub(in crate::ops) fn get<T: Real>(&self, place: usize) -> T {
        T::from_f64(self.0[place])
    }

    /// Writes all of them.
    pub(in crate::ops) fn write<T: Real>(&self, output: &mut [T]) {
        for (output, &sum) in output.iter_mut().zip(&self.0) {
            *output = T::from_f64(sum);
        }
    }
}

/// Neighbouring sums that get their terms together, as those of products do: as fast as in the twin's own type.
#[derive(Debug)]
pub(in crate::ops) struct Blocks<T> {
    block: Vec<T>,
    terms: usize,
    earlier: Sums,
}

impl<T: Real> Blocks<T> {
    /// Sums that begin with the numbers of `block`.
    pub(in crate::ops) fn new(block: Vec<T>) -> Self {
        let earlier = Sums::new(block.len());
        Blocks { block, terms: 0, earlier }
    }

    /// The sums, to add one term to each.
    pub(in crate::ops) fn next_term(&mut self) -> &mut [T] {
        if self.terms == BLOCK_TERMS {
            self.earlier.add_all(0, &self.block);
            self.block.fill(T::ZERO);
            self.terms = 0;
        }
        self.terms += 1;
        &mut self.block
    }

    /// Writes all of them.
    pub(in crate::ops) fn write(mut self, output: &mut [T]) {
        self.earlier.add_all(0, &self.block);
        self.earlier.write(output);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sums_keep_their_digits() {
        const TERMS: usize = 1 << 22;
        let right = 0.1f32 * TERMS as f32;
        assert_ne!((0..TERMS).map(|_| 0.1f32).sum::<f32>(), right);
        assert_eq!(sum((0..TERMS).map(|_| 0.1f32)), right);
        assert_eq!(mean([0.1f32; 7].into_iter()), 0.1);
        let mut sums = Sums::new(2);
        let mut blocks = Blocks::new(vec![0.0f32, 1.0]);
        for _ in 0..TERMS {
            sums.add(0, 0.1f32);
            sums.add_all(1, &[0.1f32]);
            blocks.next_term().iter_mut().for_each(|sum| *sum += 0.1);
        }
        let mut written = [0.0f32; 2];
        sums.write(&mut written);
        assert_eq!(written, [right; 2]);
        blocks.write(&mut written);
        assert!(
            (written[0] / right - 1.0).abs() < 1e-6 && (written[1] / (right + 1.0) - 1.0).abs() < 1e-6,
            "{written:?}"
        );
    }
}
