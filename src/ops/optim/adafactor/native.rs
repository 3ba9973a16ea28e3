//! Adafactor on the cores of a CPU: moments of rows and columns in one pass, the norms in a second, the step in a third.

use super::{Matrices, Step};
use crate::native::{Cores, Fast, Rule, change, dot};
use crate::ops::optim::update;
use crate::ops::{Call, Native, Real, Resources};
use crate::tensor::TensorDesc;

/// Elements of a block, of which the squares are added up in f32.
const BLOCK: usize = 4096;
/// Rows of a block at least and at most, so that the sums of its columns take little memory.
const ROWS: [usize; 2] = [16, 256];

impl Native for Step {
    /// Squared norms of each block, of the parameter and of the update; for matrices the sums of the columns of each block, and
    /// the mean of the moments of the rows.
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _threads: usize) -> Vec<u64> {
        let shape = Blocks::new(&inputs[0]);
        let sums = if self.factored { shape.count() * shape.columns } else { 0 };
        [2 * shape.count(), sums, shape.matrices].map(|elements| 4 * elements as u64).into()
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let first = 2 + self.states();
        let (gradient, hyper, guard) = (call.input(1), call.input(first), call.input(first + 1)[0]);
        if !guard.is_finite() {
            return;
        }
        let shape = Blocks::new(&call.input_descs[0]);
        let Resources { cores, workspaces, .. } = with;
        let [norms, sums, means] = &mut workspaces[..] else { unreachable!("bug: three workspaces were asked for") };
        let [eps1, eps2] = [self.eps.0, self.eps.1].map(|eps| eps as f32);
        let least = Fast::from_f64(self.eps.0 * self.eps.0);
        let rate = hyper[1];
        if self.factored {
            let [parameter, row_var, col_var] = call.mutated();
            shape.moments(cores, gradient, rate, [row_var, col_var], sums);
            for (mean, rows) in means.iter_mut().zip(row_var.chunks(shape.rows)) {
                let sum: f64 = rows.iter().copied().map(f64::from).sum();
                *mean = ((sum / rows.len() as f64) as f32).max(eps1);
            }
            let moments = Moments { least, shape, row_var, col_var, means };
            let norms = shape.norms(cores, parameter, norms, |start, u| moments.update(cores, gradient, start, u));
            let step = self.step(norms, eps2, hyper);
            shape.apply(cores, parameter, step, |start, u| moments.update(cores, gradient, start, u));
        } else {
            let [parameter, variance] = call.mutated();
            update::changes(cores, Toward(Fast(rate)), [&mut *variance], [gradient]);
            let variance = &*variance;
            let scaled = |start: usize, u: &mut [f32]| {
                let range = start..start + u.len();
                change(cores.level(), Scaled { least }, [u], [&gradient[range.clone()], &variance[range]]);
            };
            let norms = shape.norms(cores, parameter, norms, scaled);
            let step = self.step(norms, eps2, hyper);
            shape.apply(cores, parameter, step, scaled);
        }
    }
}

impl Step {
    /// From root mean squares of the parameter and of the update to what is done to both.
    fn step(&self, [of_parameter, of_update]: [f32; 2], eps2: f32, hyper: &[f32]) -> Apply {
        let alpha = eps2.max(of_parameter) * hyper[0];
        let step = alpha / 1f32.max(of_update / self.d as f32);
        Apply { keep: Fast(hyper[2]), step: Fast(step) }
    }
}

/// A parameter in blocks: rows of matrices, or parts of a vector.
#[derive(Clone, Copy)]
struct Blocks {
    matrices: usize,
    rows: usize,
    columns: usize,
    /// Rows of a block.
    high: usize,
}

impl Blocks {
    fn new(parameter: &TensorDesc) -> Self {
        match Matrices::of(parameter) {
            Some(Matrices { count, rows, columns }) => {
                let high = (4 * BLOCK).div_ceil(columns).clamp(ROWS[0], ROWS[1]);
                Blocks { matrices: count, rows, columns, high }
            }
            // A vector is a column.
            None => Blocks { matrices: 1, rows: parameter.numel(), columns: 1, high: BLOCK },
        }
    }

    fn of_matrix(self) -> usize {
        self.rows.div_ceil(self.high)
    }

    fn count(self) -> usize {
        self.matrices * self.of_matrix()
    }

    /// Where each block begins, and its elements.
    fn split(self, data: &mut [f32]) -> impl Iterator<Item = (usize, &mut [f32])> {
        let (matrix, block) = (self.rows * self.columns, self.high * self.columns);
        data.chunks_mut(matrix).enumerate().flat_map(move |(i, data)| {
            data.chunks_mut(block).enumerate().map(move |(j, data)| (i * matrix + j * block, data))
        })
    }

    /// Moves the moments of rows and columns.
    fn moments(
        self,
        cores: &Cores,
        gradient: &[f32],
        rate: f32,
        [row_var, col_var]: [&mut [f32]; 2],
        sums: &mut [f32],
    ) {
        let (columns, of_matrix, level) = (self.columns, self.of_matrix(), cores.level());
        let of_rows = row_var.chunks_mut(self.rows).flat_map(|rows| rows.chunks_mut(self.high));
        let mut tasks: Vec<_> = of_rows.zip(sums.chunks_mut(columns)).enumerate().collect();
        cores.each(&mut tasks, |_, (block, (row_var, sums))| {
            let first = *block / of_matrix * self.rows + *block % of_matrix * self.high;
            sums.fill(0.0);
            for (i, row_var) in row_var.iter_mut().enumerate() {
                let row = &gradient[(first + i) * columns..][..columns];
                let mean = row.chunks(BLOCK).map(|part| dot(level, part, part)).sum::<f32>() / columns as f32;
                *row_var += rate * (mean - *row_var);
                change(level, AddSquare, [&mut **sums], [row]);
            }
        });
        let sums = &*sums;
        cores.rows(col_var, columns, |matrix, column, col_var| {
            for (i, col_var) in col_var.iter_mut().enumerate() {
                let of_block = |block: usize| sums[(matrix * of_matrix + block) * columns + column + i];
                let mean = (0..of_matrix).map(of_block).sum::<f32>() / self.rows as f32;
                *col_var += rate * (mean - *col_var);
            }
        });
    }

    /// Root mean squares of the parameter and of the update, of which `update` writes the elements from a place on.
    fn norms(
        self,
        cores: &Cores,
        parameter: &mut [f32],
        norms: &mut [f32],
        update: impl Fn(usize, &mut [f32]) + Sync,
    ) -> [f32; 2] {
        let level = cores.level();
        let mut tasks: Vec<_> = self.split(parameter).zip(norms.chunks_mut(2)).collect();
        cores.each(&mut tasks, |_, ((start, parameter), norms)| {
            let mut room = [0.0; BLOCK];
            norms.fill(0.0);
            for (i, parameter) in parameter.chunks(BLOCK).enumerate() {
                let room = &mut room[..parameter.len()];
                update(*start + i * BLOCK, room);
                norms[0] += dot(level, parameter, parameter);
                norms[1] += dot(level, room, room);
            }
        });
        let count = tasks.len();
        let elements = parameter.len() as f64;
        [0, 1].map(|which| {
            let sum: f64 = norms[which..2 * count].iter().step_by(2).copied().map(f64::from).sum();
            ((sum / elements) as f32).sqrt()
        })
    }

    fn apply(self, cores: &Cores, parameter: &mut [f32], apply: Apply, update: impl Fn(usize, &mut [f32]) + Sync) {
        cores.pieces(parameter, |start, parameter| {
            let mut room = [0.0; BLOCK];
            for (i, parameter) in parameter.chunks_mut(BLOCK).enumerate() {
                let room = &mut room[..parameter.len()];
                update(start + i * BLOCK, room);
                change(cores.level(), apply, [parameter], [room]);
            }
        });
    }
}

/// The moments of matrices.
struct Moments<'a> {
    least: Fast,
    shape: Blocks,
    row_var: &'a [f32],
    col_var: &'a [f32],
    means: &'a [f32],
}

impl Moments<'_> {
    /// Writes the update of the elements from `start` on.
    fn update(&self, cores: &Cores, gradient: &[f32], start: usize, update: &mut [f32]) {
        let Blocks { rows, columns, .. } = self.shape;
        let mut at = 0;
        while at < update.len() {
            let (row, column) = ((start + at) / columns, (start + at) % columns);
            let end = update.len().min(at + columns - column);
            let matrix = row / rows;
            let rule = OfRow { least: self.least, row: Fast(self.row_var[row]), mean: Fast(self.means[matrix]) };
            let of_columns = &self.col_var[matrix * columns + column..][..end - at];
            change(cores.level(), rule, [&mut update[at..end]], [&gradient[start + at..start + end], of_columns]);
            at = end;
        }
    }
}

#[derive(Clone, Copy)]
struct OfRow {
    least: Fast,
    row: Fast,
    mean: Fast,
}

impl Rule<1, 2> for OfRow {
    #[inline(always)]
    fn change(self, [update]: &mut [Fast; 1], [gradient, column]: [Fast; 2]) {
        *update = gradient / (self.row * column / self.mean).max(self.least).sqrt();
    }
}

#[derive(Clone, Copy)]
struct Scaled {
    least: Fast,
}

impl Rule<1, 2> for Scaled {
    #[inline(always)]
    fn change(self, [update]: &mut [Fast; 1], [gradient, variance]: [Fast; 2]) {
        *update = gradient / variance.max(self.least).sqrt();
    }
}

#[derive(Clone, Copy)]
struct Toward(Fast);

impl Rule<1, 1> for Toward {
    #[inline(always)]
    fn change(self, [variance]: &mut [Fast; 1], [gradient]: [Fast; 1]) {
        *variance += self.0 * (gradient * gradient - *variance);
    }
}

#[derive(Clone, Copy)]
struct AddSquare;

impl Rule<1, 1> for AddSquare {
    #[inline(always)]
    fn change(self, [sum]: &mut [Fast; 1], [x]: [Fast; 1]) {
        *sum += x * x;
    }
}

#[derive(Clone, Copy)]
struct Apply {
    keep: Fast,
    step: Fast,
}

impl Rule<1, 1> for Apply {
    #[inline(always)]
    fn change(self, [parameter]: &mut [Fast; 1], [update]: [Fast; 1]) {
        *parameter = self.keep * *parameter - self.step * update;
    }
}
