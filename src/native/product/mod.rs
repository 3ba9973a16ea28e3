//! Products of matrices: `C = A · B`, of any layout, in a batch, over the tile.
//!
//! Tasks are blocks of C. Each goes over its terms in blocks and, for each, over panels of columns as wide as a tile. A panel of
//! B is packed by the thread that needs it just before it does; A is read where it lies. Where there are few results of long
//! sums, the sums are split into parts, which are added in order. How sums are split depends on extents only, so results have
//! the same bits whatever the tasks are.

mod dots;
mod pack;
#[cfg(test)]
mod tests;

use std::ops::Range;

use self::dots::Dots;
use super::{Block, Cores, Level, MAX_COLUMNS, MAX_ROWS, MAX_VECTORS, Offsets, Operand, Start, Sums, tile};

/// Terms of a block at most: a panel of so many stays in the second cache, and its rows of A in the first.
const BLOCK_TERMS: usize = 384;
/// Numbers of A that a task reads in a block of terms: half of the second cache, since each panel reads them again.
const BLOCK_A: usize = 128 << 10;
/// Long sums over the rows of A read few numbers of each, from ever more lines of the caches: a block of A is copied first.
const LONG_TERMS: usize = 2048;
/// Terms of such a block, numbers in a row of it at most, and the least for which it is one.
const PACKED_TERMS: usize = 128;
const PACKED_ROWS: usize = 320;
const LEAST_PACKED_ROWS: usize = 64;
/// Numbers of C that a task keeps until they are finished.
const BLOCK_C: usize = 32 << 10;
/// Columns of such a task at most, so that it has many rows.
const BLOCK_COLUMNS: usize = 256;
/// Rows of a task that make packing B again for it cheap.
const MANY_ROWS: usize = 128;
/// Tiles that read a panel at least, for packing it to be worth it.
const PACK_TILES: usize = 4;
/// Flops of a task at least.
const TASK_FLOPS: usize = 1 << 19;
/// Flops that are not worth a second thread.
const SMALL_FLOPS: usize = 1 << 18;
/// Tasks for each thread, so that one that is slow leaves some to the others.
const TASKS: usize = 4;
/// Parts of sums at most, and terms of a part at least.
const PARTS: usize = 16;
const PART_TERMS: usize = 1024;
/// Results that are few, of long sums.
const FEW_RESULTS: usize = 4096;

/// A factor. The element of term p in its row, or column, number i lies at `terms(p) + i · step`, and of matrix g of a batch
/// at `g · batch` behind that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factor<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) terms: Offsets<'a>,
    pub(crate) step: usize,
    pub(crate) batch: usize,
}

impl<'a> Factor<'a> {
    /// The terms of a sum lie beside one another: A as it is, B transposed.
    pub(crate) fn along(data: &'a [f32], stride: usize) -> Self {
        Factor { data, terms: Offsets::Step(1), step: stride, batch: 0 }
    }

    /// The terms of a sum lie so far apart: A transposed, B as it is.
    pub(crate) fn across(data: &'a [f32], stride: usize) -> Self {
        Factor { data, terms: Offsets::Step(stride), step: 1, batch: 0 }
    }

    /// One of either, as a matrix in a batch.
    pub(crate) fn matrix(data: &'a [f32], is_along: bool, stride: usize, batch: usize) -> Self {
        Factor { batch, ..if is_along { Factor::along(data, stride) } else { Factor::across(data, stride) } }
    }

    /// A matrix from one of its rows, or columns, and one of the terms on.
    fn from(self, matrix: usize, number: usize, term: usize) -> Self {
        let (first, terms) = self.terms.from(term);
        let data = self.data.get(matrix * self.batch + number * self.step + first..).unwrap_or_default();
        Factor { data, terms, ..self }
    }
}

/// The extents of a product: `batch` times `[m, k] · [k, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    pub(crate) batch: usize,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

/// What is done to results before they are written: it gets the place of the first in the output, results that lie there one
/// after the other, and the memory where they go, whose contents it may read.
pub(crate) type Finish<'a> = &'a (dyn Fn(usize, &mut [f32], &mut [f32]) + Sync);

/// A product.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub(crate) extents: Extents,
    pub(crate) a: Factor<'a>,
    pub(crate) b: Factor<'a>,
    pub(crate) start: Start<'a>,
    /// Whether negative results become 0.
    pub(crate) relu: bool,
    pub(crate) finish: Option<Finish<'a>>,
}

impl Extents {
    /// One product.
    pub(crate) fn new(m: usize, n: usize, k: usize) -> Self {
        Extents { batch: 1, m, n, k }
    }

    fn flops(self) -> usize {
        (2 * self.batch * self.m * self.n).saturating_mul(self.k)
    }

    /// Parts that sums are split into.
    fn parts(self) -> usize {
        if self.batch * self.m * self.n > FEW_RESULTS { 1 } else { (self.k / PART_TERMS).clamp(1, PARTS) }
    }

    /// Terms of a block, of which all but the last have as many, at most so many.
    fn block_terms(self, most: usize) -> usize {
        let terms = self.k.div_ceil(self.parts()).max(1);
        terms.div_ceil(terms.div_ceil(most))
    }

    /// Whether a block of A may be packed.
    fn may_pack_a(self) -> bool {
        self.k >= LONG_TERMS && self.m >= LEAST_PACKED_ROWS
    }

    /// Numbers of scratch that a thread needs for a panel of B, a block of A, and results that are not finished.
    fn own(self) -> [usize; 3] {
        let columns = self.n.next_multiple_of(ALIGNMENT).min(MAX_COLUMNS);
        [
            self.k.min(BLOCK_TERMS) * columns,
            if self.may_pack_a() { PACKED_TERMS * PACKED_ROWS } else { 0 },
            (self.m * self.n).min(BLOCK_C).next_multiple_of(ALIGNMENT),
        ]
    }

    fn own_scratch(self) -> usize {
        self.own().iter().sum()
    }

    /// Numbers of scratch that [`Product::run`] needs; with more terms never less.
    pub(crate) fn scratch(self, threads: usize) -> usize {
        let parts = if self.parts() > 1 { self.parts() * self.batch * self.m * self.n } else { 0 };
        parts + threads * self.own_scratch() + ALIGNMENT
    }
}

/// Packed panels begin at multiples of this: cache lines.
const ALIGNMENT: usize = 16;

/// A block of C, of some or all terms.
struct Task<'a> {
    place: Place,
    c: Block<'a>,
}

/// Where the block of a task begins, and its terms.
#[derive(Clone, Debug)]
struct Place {
    matrix: usize,
    row: usize,
    column: usize,
    terms: Range<usize>,
}

impl Product<'_> {
    /// Computes the product into a block of n columns, where the rows of matrices follow one another, with scratch as
    /// [`Extents::scratch`] says.
    pub(crate) fn run(&self, cores: &Cores, scratch: &mut [f32], c: Block<'_>) {
        let Extents { batch, m, n, k } = self.extents;
        assert!(c.rows() == batch * m && c.columns() == n, "bug: a product into another block");
        if c.rows() * n == 0 {
            return;
        }
        let skipped = scratch.as_ptr().align_offset(ALIGNMENT * size_of::<f32>()).min(ALIGNMENT);
        let (own, rest) = scratch[skipped..].split_at_mut(self.extents.own_scratch() * cores.threads());
        let parts = self.extents.parts();
        if parts == 1 {
            return self.tasks(cores, own, vec![(0..k, c)]);
        }
        let (results, length) = (c.rows() * n, k.div_ceil(parts));
        let sums = &mut rest[..parts * results];
        let blocks = sums.chunks_exact_mut(results).enumerate();
        let blocks =
            blocks.map(|(i, part)| (i * length..k.min((i + 1) * length), Block::new(part, batch * m, n, n))).collect();
        Product { start: Start::Zero, relu: false, finish: None, ..*self }.tasks(cores, own, blocks);
        self.add_parts(sums, c);
    }

    /// Runs the tasks of some blocks, each of all results and some terms.
    fn tasks(&self, cores: &Cores, own: &mut [f32], blocks: Vec<(Range<usize>, Block<'_>)>) {
        let Extents { m, n, .. } = self.extents;
        let level = cores.level();
        let [rows, columns] = self.task(level, cores.threads());
        let mut tasks = Vec::new();
        for (terms, c) in blocks {
            for (matrix, c) in c.grid(m, n).into_iter().enumerate() {
                let corners =
                    (0..m).step_by(rows).flat_map(|row| (0..n).step_by(columns).map(move |column| (row, column)));
                for ((row, column), c) in corners.zip(c.grid(rows, columns)) {
                    tasks.push(Task { place: Place { matrix, row, column, terms: terms.clone() }, c });
                }
            }
        }
        if let [task] = &mut tasks[..] {
            return self.block(level, own, task);
        }
        let mut own: Vec<_> = own.chunks_exact_mut(self.extents.own_scratch()).collect();
        cores.each_with(&mut tasks, &mut own, |own, task| self.block(level, own, task));
    }

    fn packs_a(&self) -> bool {
        self.extents.may_pack_a() && self.a.step == 1
    }

    fn block_terms(&self) -> usize {
        self.extents.block_terms(if self.packs_a() { PACKED_TERMS } else { BLOCK_TERMS })
    }

    /// Rows and columns of a task, for so many threads.
    fn task(&self, level: Level, threads: usize) -> [usize; 2] {
        let Extents { batch, m, n, .. } = self.extents;
        let ((rows, vectors), lanes) = (level.tile(), level.lanes());
        let flops = self.extents.flops();
        let wanted =
            if threads == 1 || flops < SMALL_FLOPS { 1 } else { (flops / TASK_FLOPS).clamp(threads, TASKS * threads) };
        let pieces = wanted.div_ceil(batch * self.extents.parts());
        // As many for each thread.
        let even = |pieces: usize| if pieces > threads { pieces / threads * threads } else { pieces };
        // By rows where B is packed for many of them, else by columns: by panels, or by parts of them where threads would have
        // nothing to do; and by rows again where those are few.
        let by_rows = even(pieces.min(m.div_ceil(MANY_ROWS)));
        let by_columns = pieces.div_ceil(by_rows);
        let panels = even(n.div_ceil(vectors * lanes));
        let by_columns = by_columns.min(panels.max(threads.div_ceil(by_rows))).min(n.div_ceil(2 * lanes));
        let by_rows = if by_rows * by_columns < threads.min(pieces) { pieces.div_ceil(by_columns) } else { by_rows };
        let by_rows = by_rows.min(m.div_ceil(rows)).max(1);
        let mut columns = n.div_ceil(lanes).div_ceil(by_columns) * lanes;
        let mut most = (BLOCK_A / self.block_terms()).max(rows);
        if self.packs_a() {
            most = PACKED_ROWS - ALIGNMENT;
        }
        if self.finish.is_some() {
            columns = columns.min(BLOCK_COLUMNS);
            most = most.min((BLOCK_C / columns.min(n)).max(1));
        }
        let by_rows = by_rows.max(m.div_ceil(most));
        [m.div_ceil(by_rows), columns.min(n)]
    }

    /// Computes a block of C.
    fn block(&self, level: Level, own: &mut [f32], Task { place, c }: &mut Task<'_>) {
        let [panel, packed, results] = self.extents.own();
        let (panel, own) = own.split_at_mut(panel);
        let (packed, own) = own.split_at_mut(packed);
        let Some(finish) = self.finish else { return self.sums(level, panel, packed, place, c) };
        let (rows, columns, stride) = (c.rows(), c.columns(), c.stride());
        let results = &mut own[..results][..rows * columns];
        if let Start::Output = self.start {
            results.chunks_exact_mut(columns).enumerate().for_each(|(i, row)| row.copy_from_slice(c.row(i)));
        }
        self.sums(level, panel, packed, place, &mut Block::new(results, rows, columns, columns));
        let first = (self.extents.m * place.matrix + place.row) * stride + place.column;
        if columns == stride {
            return finish(first, results, c.all());
        }
        for (i, row) in results.chunks_exact_mut(columns).enumerate() {
            finish(first + i * stride, row, c.row(i));
        }
    }

    /// Computes the sums of a block of C.
    fn sums(&self, level: Level, panel: &mut [f32], packed: &mut [f32], place: &Place, to: &mut Block<'_>) {
        if dots::are_made_of(self.extents.m, &self.a, &self.b) {
            let a = self.a.from(place.matrix, place.row, place.terms.start);
            let b = self.b.from(place.matrix, place.column, place.terms.start);
            let start = self.start.from(place.row, place.column);
            return level.run(Dots { a, b, terms: place.terms.len(), start, relu: self.relu, to });
        }
        let ((most_rows, most_vectors), lanes) = (level.tile(), level.lanes());
        let (rows, columns) = (to.rows(), to.columns());
        let (tiles, vectors) = (rows.div_ceil(most_rows), columns.div_ceil(lanes));
        let panels = vectors.div_ceil(most_vectors);
        let length = self.block_terms();
        let blocks = place.terms.len().div_ceil(length).max(1);
        for block in 0..blocks {
            let first = place.terms.start + block * length;
            let terms = length.min(place.terms.end - first);
            let mut a = self.a.from(place.matrix, place.row, first);
            if self.packs_a() {
                // Not a power of two, of which lines of the caches get into each other's way.
                let stride = rows.next_multiple_of(ALIGNMENT) + ALIGNMENT;
                a.pack(level, terms, rows, packed, stride);
                a = Factor::across(packed, stride);
            }
            for number in 0..panels {
                let [begin, end] = [number, number + 1].map(|i| (cut(vectors, panels, i) * lanes).min(columns));
                let width = (end - begin).next_multiple_of(lanes);
                let b = self.b.from(place.matrix, place.column + begin, first);
                let last = width + if terms > 0 { b.terms.largest(terms) } else { 0 };
                let b = if b.step != 1 || tiles >= PACK_TILES || last > b.data.len() {
                    b.pack(level, terms, end - begin, panel, width);
                    Factor::across(&panel[..terms * width], width)
                } else {
                    b
                };
                let columns: [usize; MAX_VECTORS] = std::array::from_fn(|i| i * lanes);
                for tile_number in 0..tiles {
                    let [above, below] = [tile_number, tile_number + 1].map(|i| cut(rows, tiles, i));
                    let start = self.start.from(place.row + above, place.column + begin);
                    let rows: [usize; MAX_ROWS] = std::array::from_fn(|i| (above + i) * a.step);
                    let sums = Sums {
                        a: Operand { data: a.data, offsets: a.terms },
                        rows: &rows[..below - above],
                        b: Operand { data: b.data, offsets: b.terms },
                        columns: &columns[..width / lanes],
                        terms,
                        start: if block == 0 { start } else { Start::Block },
                        relu: self.relu && block + 1 == blocks,
                    };
                    tile(level, &sums, to.part(above..below, begin..end));
                }
            }
        }
    }

    /// Writes what the parts of sums come to.
    fn add_parts(&self, parts: &mut [f32], mut c: Block<'_>) {
        let Extents { m, n, .. } = self.extents;
        let results = c.rows() * n;
        let (sums, others) = parts.split_at_mut(results);
        for part in others.chunks_exact(results) {
            sums.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
        }
        for (row, sums) in sums.chunks_exact_mut(n).enumerate() {
            let to = c.row(row);
            match self.start {
                Start::Zero => {}
                Start::Output | Start::Block => sums.iter_mut().zip(&*to).for_each(|(sum, x)| *sum += x),
                Start::Rows(numbers) => sums.iter_mut().for_each(|sum| *sum += numbers[row % m]),
                Start::Columns(numbers) => sums.iter_mut().zip(numbers).for_each(|(sum, x)| *sum += x),
            }
            if self.relu {
                sums.iter_mut().for_each(|sum| *sum = if *sum < 0.0 { 0.0 } else { *sum });
            }
            match self.finish {
                Some(finish) => finish(row * c.stride(), sums, c.row(row)),
                None => to.copy_from_slice(sums),
            }
        }
    }
}

/// Where piece `i` begins of as many pieces of nearly one length.
fn cut(length: usize, pieces: usize, i: usize) -> usize {
    length / pieces * i + (length % pieces).min(i)
}
