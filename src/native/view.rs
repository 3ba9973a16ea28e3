//! A matrix in memory that one thread may write to while others write to the rest of the same buffer.
//!
//! # Safety
//! A [`Block`] is made of an exclusive slice that holds all its rows, and taken apart into blocks that share no element: whatever
//! is written through one is read by no other.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

/// Rows of so many columns, `stride` elements apart, to which nothing else has access.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    data: *mut f32,
    rows: usize,
    columns: usize,
    stride: usize,
    exclusive: PhantomData<&'a mut [f32]>,
}

// Sound: as a slice that is exclusive.
unsafe impl Send for Block<'_> {}
// Sound: a shared block is only read.
unsafe impl Sync for Block<'_> {}

impl<'a> Block<'a> {
    /// The first rows and columns of a slice.
    pub(crate) fn new(data: &'a mut [f32], rows: usize, columns: usize, stride: usize) -> Self {
        assert!(rows <= 1 || columns <= stride, "bug: rows overlap");
        assert!(rows == 0 || (rows - 1) * stride + columns <= data.len(), "bug: a block beyond its slice");
        Block { data: data.as_mut_ptr(), rows, columns, stride, exclusive: PhantomData }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Elements from one row to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// The first element.
    pub(super) fn pointer(&mut self) -> *mut f32 {
        self.data
    }

    /// One row.
    #[inline(always)]
    pub(crate) fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "bug: a row beyond the block");
        // Sound: the row lies in the slice that the block was made of, and the block is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(row * self.stride), self.columns) }
    }

    /// One row, to read.
    #[inline(always)]
    pub(crate) fn look(&self, row: usize) -> &[f32] {
        assert!(row < self.rows, "bug: a row beyond the block");
        // Sound: the row lies in the slice that the block was made of, and nothing is written while the block is borrowed.
        unsafe { std::slice::from_raw_parts(self.data.add(row * self.stride), self.columns) }
    }

    /// All rows, which must lie one after the other.
    pub(crate) fn all(&mut self) -> &mut [f32] {
        assert!(self.columns == self.stride || self.rows <= 1, "bug: a block with gaps");
        // Sound: without gaps, all of the slice that the block was made of is the block's.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.rows * self.columns) }
    }

    /// The block again, for a while.
    #[inline(always)]
    pub(crate) fn part(&mut self, rows: Range<usize>, columns: Range<usize>) -> Block<'_> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "bug: rows beyond the block");
        assert!(columns.start <= columns.end && columns.end <= self.columns, "bug: columns beyond the block");
        Block {
            data: self.data.wrapping_add(rows.start * self.stride + columns.start),
            rows: rows.len(),
            columns: columns.len(),
            stride: self.stride,
            exclusive: PhantomData,
        }
    }

    /// The rows before this one, and those from it on.
    pub(crate) fn split_rows(self, row: usize) -> (Self, Self) {
        assert!(row <= self.rows, "bug: rows beyond the block");
        let below = Block { data: self.data.wrapping_add(row * self.stride), rows: self.rows - row, ..self };
        (Block { rows: row, ..self }, below)
    }

    /// The columns before this one, and those from it on.
    pub(crate) fn split_columns(self, column: usize) -> (Self, Self) {
        assert!(column <= self.columns, "bug: columns beyond the block");
        let right = Block { data: self.data.wrapping_add(column), columns: self.columns - column, ..self };
        (Block { columns: column, ..self }, right)
    }

    /// The block in a grid of parts: of all rows in parts of so many, each in parts of so many columns.
    pub(crate) fn grid(self, rows: usize, columns: usize) -> Vec<Block<'a>> {
        let mut parts = Vec::new();
        let mut rest = self;
        while rest.rows > 0 {
            let (mut band, below) = {
                let at = rows.min(rest.rows);
                rest.split_rows(at)
            };
            while band.columns > 0 {
                let (part, right) = {
                    let at = columns.min(band.columns);
                    band.split_columns(at)
                };
                parts.push(part);
                band = right;
            }
            rest = below;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_grid_share_nothing() {
        let mut data = vec![0.0; 7 * 10];
        let parts = Block::new(&mut data, 7, 9, 10).grid(3, 4);
        assert_eq!(parts.len(), 9);
        for (i, mut part) in parts.into_iter().enumerate() {
            for row in 0..part.rows() {
                part.row(row).iter_mut().for_each(|x| *x += 1.0 + i as f32);
            }
        }
        assert!((0..7).all(|row| data[row * 10 + 9] == 0.0), "beyond the columns nothing is written");
        let expected = |row: usize, column: usize| (row / 3 * 3 + column / 4 + 1) as f32;
        for (row, column) in (0..7).flat_map(|row| (0..9).map(move |column| (row, column))) {
            assert_eq!(data[row * 10 + column], expected(row, column));
        }
    }

    #[test]
    #[should_panic(expected = "beyond its slice")]
    fn a_block_beyond_its_slice_is_a_bug() {
        Block::new(&mut [0.0; 19], 2, 10, 10);
    }
}
