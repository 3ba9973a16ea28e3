//! Copies of parts of an image, with the zeros around it, laid out so that pixels that are computed together lie side by side.

use super::gather::{Axis, Gather};
use crate::native::{Kernel, Simd};

/// A part of the source of a [`Gather`]: what some pixels of the result need, in planes of one channel and one fold of rows and
/// columns each, `[channel][row fold][column fold][rows][pitch]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Padded {
    /// The first pixel of the result, counted within a phase.
    pub(super) first: (usize, usize),
    /// Rows and columns of a plane.
    pub(super) rows: usize,
    pub(super) pitch: usize,
}

impl Padded {
    /// Elements of the planes of one channel.
    pub(super) fn channel(&self, gather: &Gather) -> usize {
        gather.rows.folds.len() * gather.columns.folds.len() * self.rows * self.pitch
    }

    /// Where each tap of a part lies behind the place of its pixel, for so many channels.
    pub(super) fn offsets(&self, gather: &Gather, row_phase: usize, column_phase: usize, channels: usize) -> Vec<u32> {
        let (channel, folds) = (self.channel(gather), gather.columns.folds.len());
        let (rows, columns) = (&gather.rows.phases[row_phase].taps, &gather.columns.phases[column_phase].taps);
        let mut offsets = Vec::with_capacity(channels * rows.len() * columns.len());
        for c in 0..channels {
            for row in rows {
                for column in columns {
                    let plane = (row.fold * folds + column.fold) * self.rows * self.pitch;
                    offsets.push((c * channel + plane + row.shift * self.pitch + column.shift) as u32);
                }
            }
        }
        offsets
    }
}

/// Copies channels: `source` begins with the first plane, and holds as many as there is room for.
pub(super) struct Copy<'a> {
    pub(super) gather: &'a Gather,
    pub(super) padded: Padded,
    pub(super) source: &'a [f32],
    pub(super) to: &'a mut [f32],
}

impl Kernel for Copy<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Copy { gather, padded, source, to } = self;
        let (rows, columns) = (&gather.rows, &gather.columns);
        if padded.channel(gather) == 0 {
            return;
        }
        let planes = source.chunks_exact(gather.source_plane());
        for (plane, to) in planes.zip(to.chunks_exact_mut(padded.channel(gather))) {
            let mut lines = to.chunks_exact_mut(padded.pitch);
            for &row_fold in &rows.folds {
                for &column_fold in &columns.folds {
                    let first = place(columns, padded.first.1, column_fold);
                    for line in 0..padded.rows {
                        let to = lines.next().expect("bug: too few rows to copy to");
                        let row = place(rows, padded.first.0 + line, row_fold);
                        if row < 0 || row >= rows.source as isize {
                            to.fill(0.0);
                        } else {
                            let from = &plane[row as usize * columns.source..][..columns.source];
                            copy_line(simd, from, first, columns.step, to);
                        }
                    }
                }
            }
        }
    }
}

/// The place in the source that a pixel meets at shift 0.
#[inline(always)]
fn place(axis: &Axis, pixel: usize, fold: usize) -> isize {
    (pixel * axis.step + fold) as isize + axis.least
}

/// Copies every `step`-th element of a row from place `first` on, and zeros where there is none.
#[inline(always)]
fn copy_line<S: Simd>(simd: S, from: &[f32], first: isize, step: usize, to: &mut [f32]) {
    let before = |place: isize| if first < place { (place - first) as usize } else { 0 };
    let begin = before(0).div_ceil(step).min(to.len());
    let end = before(from.len() as isize).div_ceil(step).min(to.len());
    to[..begin].fill(0.0);
    to[end..].fill(0.0);
    if begin == end {
        return;
    }
    let from = &from[(first + (begin * step) as isize) as usize..];
    let to = &mut to[begin..end];
    match step {
        1 => copy(simd, &from[..to.len()], to),
        2 => every::<2>(from, to),
        4 => every::<4>(from, to),
        _ => to.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, from)| *to = *from),
    }
}

/// Every so many elements; as many as there are to write.
#[inline(always)]
fn every<const STEP: usize>(from: &[f32], to: &mut [f32]) {
    // The last may have no others behind it.
    let last = to.len() - 1;
    for (to, from) in to[..last].iter_mut().zip(from.as_chunks::<STEP>().0) {
        *to = from[0];
    }
    to[last] = from[last * STEP];
}

/// Copies a few elements, without a call.
#[inline(always)]
pub(super) fn copy<S: Simd>(simd: S, from: &[f32], to: &mut [f32]) {
    for (to, from) in to.chunks_mut(S::LANES).zip(from.chunks(S::LANES)) {
        simd.store_part(to, simd.load_part(from));
    }
}
