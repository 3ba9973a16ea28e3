//! Where native forms find tensors that may lie in the memory of output 0, which they take in pieces.

use std::ops::Range;

use crate::native::{Block, Cores, Level};
use crate::ops::{Call, Epilogue, Input, Output};

/// Most elements that are made at a time: with what they are made of, they stay in the first cache.
pub(in crate::ops) const PIECE: usize = 1024;

/// The data of outputs, or of those that there are.
pub(in crate::ops) fn reals<'b, const N: usize>(
    outputs: &'b mut [Output<'_, f32>],
    places: [Option<usize>; N],
) -> [Option<&'b mut [f32]>; N] {
    let mut data: Vec<_> = outputs
        .iter_mut()
        .map(|output| match output {
            Output::Real(data) => Some(&mut **data),
            _ => None,
        })
        .collect();
    places.map(|place| place.and_then(|place| data[place].take()))
}

/// Where a tensor like output 0 lies.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) enum Tensor<'a> {
    Apart(&'a [f32]),
    InOutput,
}

impl<'a> Tensor<'a> {
    pub(in crate::ops) fn of(call: &Call<'a, f32>, place: usize) -> Self {
        match call.inputs[place] {
            Input::InPlace => Tensor::InOutput,
            _ => Tensor::Apart(call.input(place)),
        }
    }

    /// So many elements from `start` on, where `output` is what there is in their place in the output.
    #[inline(always)]
    pub(in crate::ops) fn look<'b>(self, start: usize, length: usize, output: &'b [f32]) -> &'b [f32]
    where
        'a: 'b,
    {
        match self {
            Tensor::Apart(data) => &data[start..start + length],
            Tensor::InOutput => output,
        }
    }

    /// The same, where the output is to be written while they are read.
    #[inline(always)]
    pub(in crate::ops) fn fetch<'b>(self, start: usize, output: &[f32], room: &'b mut [f32; PIECE]) -> &'b [f32]
    where
        'a: 'b,
    {
        match self {
            Tensor::Apart(data) => &data[start..start + output.len()],
            Tensor::InOutput => {
                let room = &mut room[..output.len()];
                room.copy_from_slice(output);
                room
            }
        }
    }
}

/// Rows of a tensor that a task writes to a block of the output.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct View<'a> {
    pub(in crate::ops) tensor: Tensor<'a>,
    pub(in crate::ops) output: &'a Block<'a>,
    /// The first element of the block, and elements from one row to the next.
    pub(in crate::ops) start: usize,
    pub(in crate::ops) stride: usize,
}

impl<'a> View<'a> {
    /// Some columns of rows, from the `first` on.
    #[inline(always)]
    pub(in crate::ops) fn rows<const ROWS: usize>(&self, first: usize, columns: &Range<usize>) -> [&'a [f32]; ROWS] {
        std::array::from_fn(|i| match self.tensor {
            Tensor::Apart(data) => {
                let start = self.start + (first + i) * self.stride;
                &data[start + columns.start..start + columns.end]
            }
            Tensor::InOutput => &self.output.look(first + i)[columns.clone()],
        })
    }
}

/// Has elements of output 0 made, those from `start` on, and finishes and writes them.
pub(in crate::ops) fn write(
    level: Level,
    epilogue: &Epilogue<'_>,
    start: usize,
    output: &mut [f32],
    room: &mut [f32; PIECE],
    make: impl FnOnce(&mut [f32]),
) {
    if epilogue.is_empty() {
        return make(output);
    }
    let values = &mut room[..output.len()];
    make(values);
    epilogue.finish(level, start, values, output);
}

/// Parts of a range, of at most so many.
pub(in crate::ops) fn parts(range: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(most).map(move |start| start..end.min(start + most))
}

/// Columns of a task, of so many matrices with so many columns: wholes of cache lines, and not too few.
pub(in crate::ops) fn columns_of_task(matrices: usize, columns: usize) -> usize {
    const LEAST: usize = 256;
    const ENOUGH_TASKS: usize = 64;
    const LINE: usize = 16;
    (matrices * columns).div_ceil(ENOUGH_TASKS).next_multiple_of(LINE).clamp(LEAST, columns.max(LEAST))
}

/// A sum over `count` things, each of which is made of `elements`: of the sums of ranges of them, which depend on these two only.
pub(in crate::ops) fn sum_tasks(
    cores: &Cores,
    count: usize,
    elements: usize,
    sum: impl Fn(Range<usize>) -> f64 + Sync,
) -> f64 {
    const MOST_TASKS: usize = 64;
    const LEAST: usize = 4096;
    let least = LEAST / elements.max(1);
    let ranges = parts(0..count, count.div_ceil(MOST_TASKS).max(least).max(1));
    let mut tasks: Vec<_> = ranges.map(|range| (range, 0.0)).collect();
    cores.each(&mut tasks, |_, (range, found)| *found = sum(range.clone()));
    tasks.iter().map(|(_, found)| found).sum()
}
