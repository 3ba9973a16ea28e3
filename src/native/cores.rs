//! The cores of the processor: threads, and the vectors that they compute with.

use super::pool::Pool;
use super::{Kernel, Level};

/// Threads and vectors.
#[derive(Debug)]
pub struct Cores {
    pool: Pool,
    level: Level,
}

/// Elements of a piece of elementwise work at least: less is not worth handing out.
const LEAST_PIECE: usize = 4096;
/// Pieces for each thread, so that one that is slow leaves some to the others.
const PIECES: usize = 4;
/// Pieces begin at multiples of this: cache lines, and words of bits.
const UNIT: usize = 32;

impl Cores {
    /// So many threads, with the one that calls.
    pub fn new(threads: usize, level: Level) -> Self {
        Cores { pool: Pool::new(threads), level }
    }

    /// As many threads as the process may run at once.
    pub fn available() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// Threads, with the one that calls.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// The vectors.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Runs a kernel on the thread that calls.
    pub(crate) fn run<K: Kernel>(&self, kernel: K) -> K::Output {
        self.level.run(kernel)
    }

    /// Calls `work` with the number of a thread and each task.
    pub(crate) fn each<T: Send>(&self, tasks: &mut [T], work: impl Fn(usize, &mut T) + Sync) {
        self.pool.each(tasks, work);
    }

    /// As [`each`](Self::each), where each thread has something of its own: there must be one for each.
    pub(crate) fn each_with<T: Send, W: Send>(
        &self,
        tasks: &mut [T],
        own: &mut [W],
        work: impl Fn(&mut W, &mut T) + Sync,
    ) {
        assert!(own.len() >= self.threads(), "bug: a thread has nothing of its own");
        let own: Vec<_> = own.iter_mut().map(std::sync::Mutex::new).collect();
        self.pool.each(tasks, |thread, task| {
            let mut own = own[thread].try_lock().expect("bug: two threads of one number");
            work(&mut own, task);
        });
    }

    /// Calls `work` with pieces of a tensor, and where each begins.
    pub(crate) fn pieces<T: Send>(&self, data: &mut [T], work: impl Fn(usize, &mut [T]) + Sync) {
        self.pieces_of(data, UNIT, LEAST_PIECE, work);
    }

    /// Calls `work` with pieces of a tensor that are multiples of `unit`, such as rows, and hold `least` elements or more.
    pub(crate) fn pieces_of<T: Send>(
        &self,
        data: &mut [T],
        unit: usize,
        least: usize,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let unit = unit.max(1);
        let length = data.len().div_ceil(PIECES * self.threads()).max(least).next_multiple_of(unit);
        let mut tasks: Vec<_> = data.chunks_mut(length).enumerate().map(|(i, piece)| (i * length, piece)).collect();
        self.each(&mut tasks, |_, (start, piece)| work(*start, piece));
    }

    /// As [`pieces_of`](Self::pieces_of), of several tensors of one length at once.
    pub(crate) fn pieces_together<T: Send, const N: usize>(
        &self,
        mut data: [&mut [T]; N],
        least: usize,
        work: impl Fn(usize, [&mut [T]; N]) + Sync,
    ) {
        let total = data[0].len();
        let length = total.div_ceil(PIECES * self.threads()).max(least).next_multiple_of(UNIT);
        let mut tasks = Vec::with_capacity(total.div_ceil(length));
        for start in (0..total).step_by(length) {
            let piece = data.each_mut().map(|rest| {
                let (piece, after) = std::mem::take(rest).split_at_mut(length.min(total - start));
                *rest = after;
                piece
            });
            tasks.push(Some((start, piece)));
        }
        self.each(&mut tasks, |_, task| {
            if let Some((start, piece)) = task.take() {
                work(start, piece);
            }
        });
    }

    /// Calls `work` with the parts of a tensor's rows, with the number of the row and of the column that each begins at.
    pub(crate) fn rows<T: Send>(&self, data: &mut [T], row: usize, work: impl Fn(usize, usize, &mut [T]) + Sync) {
        self.pieces(data, |start, mut piece| {
            let (mut number, mut column) = (start / row, start % row);
            while !piece.is_empty() {
                let (part, rest) = piece.split_at_mut((row - column).min(piece.len()));
                work(number, column, part);
                (number, column, piece) = (number + 1, 0, rest);
            }
        });
    }
}
