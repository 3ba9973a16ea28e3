//! Softmax and log-softmax on the vectors and threads of a CPU.

use super::Rows;
use super::kernels::{ColumnGradient, ColumnSums, Forward, ForwardColumns, Gradient, GradientSums};
use crate::native::Block;
use crate::ops::place::{PIECE, Tensor, View, columns_of_task, parts};
use crate::ops::{Call, Resources};

/// Tasks that keep threads busy, however unevenly they run.
const ENOUGH_TASKS: usize = 16;
/// Columns that are taken together.
const COLUMNS: usize = 256;
/// Fewest elements of a task.
const LEAST_TASK: usize = 2048;

impl Rows {
    /// Rows of a task.
    fn together(&self) -> usize {
        self.rows.div_ceil(ENOUGH_TASKS).max(LEAST_TASK / self.extent.max(1)).max(1)
    }

    /// Where elements of a row lie apart: each task has some columns of a matrix of its rows.
    fn columns<'a>(&self, output: &'a mut [f32]) -> Vec<(usize, Block<'a>)> {
        let (extent, inner) = (self.extent, self.inner);
        let together = columns_of_task(self.rows / inner, inner);
        let matrices = output.chunks_exact_mut((extent * inner).max(1)).enumerate();
        let tasks = matrices.flat_map(|(number, matrix)| {
            let blocks = Block::new(matrix, extent, inner, inner).grid(extent.max(1), together);
            blocks.into_iter().enumerate().map(move |(i, block)| (number * extent * inner + i * together, block))
        });
        tasks.collect()
    }

    /// Runs the forward op.
    pub(in crate::ops) fn forward_native(self, call: &mut Call<'_, f32>, with: &mut Resources<'_>, log: bool) {
        let x = Tensor::of(call, 0);
        let level = with.cores.level();
        let data = |start: usize| match x {
            Tensor::Apart(data) => Some(&data[start..]),
            Tensor::InOutput => None,
        };
        if self.inner > 1 {
            with.cores.each(&mut self.columns(call.output(0)), |_, (start, block)| {
                for columns in parts(0..block.columns(), COLUMNS) {
                    let x = data(*start + columns.start);
                    level.run(ForwardColumns { x, block: block.part(0..self.extent, columns), log });
                }
            });
            return;
        }
        with.cores.pieces_of(call.output(0), self.extent, self.together() * self.extent, |start, output| {
            let first = start / self.extent;
            for rows in parts(0..output.len() / self.extent, (PIECE / self.extent).max(1)) {
                let start = start + rows.start * self.extent;
                let rows = rows.start * self.extent..rows.end * self.extent;
                let output = &mut output[rows.clone()];
                if let Some(data) = data(start) {
                    output.copy_from_slice(&data[..output.len()]);
                }
                level.run(Forward { rows: output, of: self, first: first + rows.start / self.extent, log });
            }
        });
    }

    /// Runs the gradient; inputs `output, grad_output`.
    pub(in crate::ops) fn grad_input_native(self, call: &mut Call<'_, f32>, with: &mut Resources<'_>, log: bool) {
        let (y, g) = (Tensor::of(call, 0), Tensor::of(call, 1));
        let level = with.cores.level();
        let extent = self.extent;
        if self.inner > 1 {
            with.cores.each(&mut self.columns(call.output(0)), |_, (start, block)| {
                let [mut sums, mut room, mut room_g] = [[0.0; PIECE]; 3];
                for columns in parts(0..block.columns(), COLUMNS) {
                    let sums = &mut sums[..columns.len()];
                    let start = *start + columns.start;
                    let mut block = block.part(0..extent, columns);
                    let view = |tensor| View { tensor, output: &block, start, stride: self.inner };
                    level.run(ColumnSums { y: view(y), g: view(g), rows: extent, log, sums });
                    for row in 0..extent {
                        let (start, output) = (start + row * self.inner, block.row(row));
                        let (y, g) = (y.fetch(start, output, &mut room), g.fetch(start, output, &mut room_g));
                        level.run(ColumnGradient { y, g, log, sums, output });
                    }
                }
            });
            return;
        }
        with.cores.pieces_of(call.output(0), extent, self.together() * extent, |start, output| {
            let [mut sums, mut room, mut room_g] = [[0.0; PIECE]; 3];
            for rows in parts(0..output.len() / extent, (PIECE / extent).max(1)) {
                let sums = &mut sums[..rows.len()];
                let start = start + rows.start * extent;
                let output = &mut output[rows.start * extent..rows.end * extent];
                let (of_y, of_g) = (y.look(start, output.len(), output), g.look(start, output.len(), output));
                level.run(GradientSums { y: of_y, g: of_g, extent, log, sums });
                for part in parts(0..output.len(), PIECE) {
                    let output = &mut output[part.clone()];
                    let y = y.fetch(start + part.start, output, &mut room);
                    let g = g.fetch(start + part.start, output, &mut room_g);
                    level.run(Gradient { y, g, start: part.start, extent, log, sums, output });
                }
            }
        });
    }
}
