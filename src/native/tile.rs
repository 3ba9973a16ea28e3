//! The tile of matrix products: a few rows by a few vectors of sums that stay in registers over all terms.
//!
//! ```text
//! sums[r, c] = start + Σ over p < terms of a[rows[r] + offset_a(p)] · b[columns[c / LANES] + offset_b(p) + c % LANES]
//! ```
//!
//! Offsets are multiples of a step, or come from a table: that is how a convolution reads its input in place, strided and
//! dilated, and how its gradient reads it.
//!
//! # Safety
//! The largest index of each operand is compared with its length before the sums begin; within them nothing is checked.
#![allow(unsafe_code)]

use super::view::Block;
use super::{Kernel, Level, Simd};

/// Most rows of a tile, of any processor.
pub(crate) const MAX_ROWS: usize = 6;
/// Most vectors in a row of a tile, of any processor.
pub(crate) const MAX_VECTORS: usize = 4;
/// Most columns of a tile, of any processor.
pub(crate) const MAX_COLUMNS: usize = 64;

/// Where the element of each term lies, behind the one of the first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Offsets<'a> {
    /// Multiples of a step.
    Step(usize),
    /// An offset for each term.
    Table(&'a [u32]),
}

impl<'a> Offsets<'a> {
    /// Where term `first` lies, and the offsets of it and the terms after it from there.
    pub(crate) fn from(self, first: usize) -> (usize, Offsets<'a>) {
        match self {
            Offsets::Step(step) => (first * step, self),
            Offsets::Table(table) => (0, Offsets::Table(&table[first..])),
        }
    }

    /// The offset of a term.
    #[inline(always)]
    pub(crate) fn at(self, term: usize) -> usize {
        match self {
            Offsets::Step(step) => term * step,
            Offsets::Table(table) => table[term] as usize,
        }
    }

    pub(crate) fn largest(self, terms: usize) -> usize {
        match self {
            Offsets::Step(step) => step * (terms - 1),
            Offsets::Table(table) => table[..terms].iter().fold(0, |most, &offset| most.max(offset)) as usize,
        }
    }
}

/// A factor of the products.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) offsets: Offsets<'a>,
}

/// What sums start from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start<'a> {
    Zero,
    /// What the output holds.
    Output,
    /// Zero, and what the output holds is added in the end: long sums, made in blocks, are wrong by less.
    Block,
    /// A number for each row.
    Rows(&'a [f32]),
    /// A number for each column.
    Columns(&'a [f32]),
}

impl Start<'_> {
    /// From this row and column on.
    pub(crate) fn from(self, row: usize, column: usize) -> Self {
        match self {
            Start::Rows(numbers) => Start::Rows(&numbers[row..]),
            Start::Columns(numbers) => Start::Columns(&numbers[column..]),
            other => other,
        }
    }
}

/// The sums of a tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sums<'a> {
    /// Factors whose elements are spread over vectors, and where those of each row begin.
    pub(crate) a: Operand<'a>,
    pub(crate) rows: &'a [usize],
    /// Factors of which vectors are read, and where those of each vector of columns begin.
    pub(crate) b: Operand<'a>,
    pub(crate) columns: &'a [usize],
    pub(crate) terms: usize,
    pub(crate) start: Start<'a>,
    /// Whether negative sums become 0 in the end.
    pub(crate) relu: bool,
}

/// Computes a tile into a block of as many rows; of columns, as many as there are vectors, or less in the last one.
pub(crate) fn tile(level: Level, sums: &Sums<'_>, output: Block<'_>) {
    assert!((1..=MAX_ROWS).contains(&sums.rows.len()) && output.rows() == sums.rows.len(), "bug: rows of a tile");
    if let Start::Rows(numbers) = sums.start {
        assert!(numbers.len() >= sums.rows.len(), "bug: too few numbers to start from");
    }
    if let Start::Columns(numbers) = sums.start {
        assert!(numbers.len() >= output.columns(), "bug: too few numbers to start from");
    }
    // Each size and kind of offsets is a function of its own, so that the compiler keeps all its sums in registers.
    macro_rules! by_size {
        ($($rows:literal)*) => {
            match (sums.rows.len(), sums.columns.len()) {
                $(
                    ($rows, 1) => by_offsets::<$rows, 1>(level, sums, output),
                    ($rows, 2) => by_offsets::<$rows, 2>(level, sums, output),
                    ($rows, 3) => by_offsets::<$rows, 3>(level, sums, output),
                    ($rows, 4) => by_offsets::<$rows, 4>(level, sums, output),
                )*
                _ => panic!("bug: a tile that there is not"),
            }
        };
    }
    by_size!(1 2 3 4 5 6);
}

fn by_offsets<const ROWS: usize, const VECTORS: usize>(level: Level, sums: &Sums<'_>, output: Block<'_>) {
    match (sums.a.offsets, sums.b.offsets) {
        (Offsets::Step(a), Offsets::Step(b)) => level.run(Tile::<_, _, ROWS, VECTORS> { sums, a, b, output }),
        (Offsets::Step(a), Offsets::Table(b)) => level.run(Tile::<_, _, ROWS, VECTORS> { sums, a, b, output }),
        (Offsets::Table(a), Offsets::Step(b)) => level.run(Tile::<_, _, ROWS, VECTORS> { sums, a, b, output }),
        (Offsets::Table(a), Offsets::Table(b)) => level.run(Tile::<_, _, ROWS, VECTORS> { sums, a, b, output }),
    }
}

struct Tile<'a, 'b, A, B, const ROWS: usize, const VECTORS: usize> {
    sums: &'a Sums<'a>,
    a: A,
    b: B,
    output: Block<'b>,
}

impl<A: Walk, B: Walk, const ROWS: usize, const VECTORS: usize> Kernel for Tile<'_, '_, A, B, ROWS, VECTORS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if ROWS > S::ROWS || VECTORS > S::VECTORS {
            panic!("bug: a tile that is too large");
        }
        let Sums { a, rows, b, columns, terms, .. } = *self.sums;
        let width = self.output.columns();
        assert!(width <= VECTORS * S::LANES && width > (VECTORS - 1) * S::LANES, "bug: columns of a tile");
        if terms > 0 {
            let most = |starts: &[usize]| starts.iter().fold(0, |most, &start| most.max(start));
            assert!(most(rows) + a.offsets.largest(terms) < a.data.len(), "bug: rows beyond their data");
            let last = most(columns) + b.offsets.largest(terms) + S::LANES;
            assert!(last <= b.data.len(), "bug: columns beyond their data");
        }
        // Sound: the largest index of each factor was just compared with its length; the output is exclusive.
        unsafe { self.compute(simd) }
    }
}

impl<A: Walk, B: Walk, const ROWS: usize, const VECTORS: usize> Tile<'_, '_, A, B, ROWS, VECTORS> {
    /// # Safety
    /// All indices are within the factors.
    #[inline(always)]
    unsafe fn compute<S: Simd>(mut self, simd: S) {
        let Sums { a, rows, b, columns, terms, start, relu } = *self.sums;
        let (width, stride) = (self.output.columns(), self.output.stride());
        let output = self.output.pointer();
        let tail = width - (VECTORS - 1) * S::LANES;
        let is_whole = tail == S::LANES;
        let mut sums = [[simd.splat(0.0); VECTORS]; ROWS];
        match start {
            Start::Zero | Start::Block => {}
            Start::Output => {
                for row in 0..ROWS {
                    for vector in 0..VECTORS {
                        sums[row][vector] = unsafe { read(simd, output.add(row * stride), vector, VECTORS, tail) };
                    }
                }
            }
            Start::Rows(numbers) => {
                for row in 0..ROWS {
                    sums[row] = [simd.splat(numbers[row]); VECTORS];
                }
            }
            Start::Columns(numbers) => {
                let mut first = [simd.splat(0.0); VECTORS];
                for vector in 0..VECTORS {
                    first[vector] = unsafe { read(simd, numbers.as_ptr(), vector, VECTORS, tail) };
                }
                sums = [first; ROWS];
            }
        }
        let a_rows: [*const f32; ROWS] = std::array::from_fn(|row| unsafe { a.data.as_ptr().add(rows[row]) });
        let b_columns: [*const f32; VECTORS] =
            std::array::from_fn(|vector| unsafe { b.data.as_ptr().add(columns[vector]) });
        unsafe { add_terms(simd, terms, a_rows, self.a, b_columns, self.b, &mut sums) };
        for row in 0..ROWS {
            for vector in 0..VECTORS {
                let mut sum = sums[row][vector];
                if let Start::Block = start {
                    sum = simd.add(unsafe { read(simd, output.add(row * stride), vector, VECTORS, tail) }, sum);
                }
                let sum = if relu { simd.relu(sum) } else { sum };
                unsafe {
                    let to = output.add(row * stride + vector * S::LANES);
                    if vector + 1 < VECTORS || is_whole {
                        simd.store_at(to, sum);
                    } else {
                        simd.store_part_at(to, tail, sum);
                    }
                }
            }
        }
    }
}

/// Vector number `vector` of a row of `vectors`, of which the last has `tail` elements.
///
/// # Safety
/// The row is there.
#[inline(always)]
unsafe fn read<S: Simd>(simd: S, row: *const f32, vector: usize, vectors: usize, tail: usize) -> S::V {
    unsafe {
        let from = row.add(vector * S::LANES);
        if vector + 1 < vectors || tail == S::LANES { simd.load_at(from) } else { simd.load_part_at(from, tail) }
    }
}

/// The offset of each term.
trait Walk: Copy {
    /// # Safety
    /// There is such a term.
    unsafe fn at(self, term: usize) -> usize;
}

impl Walk for usize {
    #[inline(always)]
    unsafe fn at(self, term: usize) -> usize {
        self * term
    }
}

impl Walk for &[u32] {
    #[inline(always)]
    unsafe fn at(self, term: usize) -> usize {
        unsafe { *self.get_unchecked(term) as usize }
    }
}

/// # Safety
/// All elements are there.
#[inline(always)]
unsafe fn add_terms<S: Simd, A: Walk, B: Walk, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    terms: usize,
    rows: [*const f32; ROWS],
    a: A,
    columns: [*const f32; VECTORS],
    b: B,
    sums: &mut [[S::V; VECTORS]; ROWS],
) {
    // A copy, so that the sums stay in registers.
    let mut added = *sums;
    for p in 0..terms {
        unsafe {
            let (at_a, at_b) = (a.at(p), b.at(p));
            let mut vectors = [simd.splat(0.0); VECTORS];
            for vector in 0..VECTORS {
                vectors[vector] = simd.load_at(columns[vector].add(at_b));
            }
            for row in 0..ROWS {
                let x = simd.splat(*rows[row].add(at_a));
                for vector in 0..VECTORS {
                    added[row][vector] = simd.mul_add(x, vectors[vector], added[row][vector]);
                }
            }
        }
    }
    *sums = added;
}
