//! Sums and extrema over some of the axes of a tensor.
//!
//! Where the innermost axis is reduced, elements that lie together become one number, in lanes; where it is kept, rows are
//! added to rows. What few results are made of many terms is split: each part has a result of its own, and those are reduced
//! in the end. How, depends on the extents alone.

use super::{Cores, Fast, Kernel, Simd};

/// What is done to the terms of a result. Mark the functions `#[inline(always)]`.
pub(crate) trait Fold: Copy + Sync {
    /// Whether there is a second tensor like the first.
    const HAS_PAIRS: bool = false;
    /// Whether a term depends on an element of a tensor that is like the results.
    const HAS_RESULTS: bool = false;
    /// What a result is before its first term.
    const START: f32;
    /// A term, of the elements at its place.
    fn term(self, x: Fast, pair: Fast, result: Fast) -> Fast;
    /// Two results as one.
    fn join(self, a: Fast, b: Fast) -> Fast;
}

/// The sum of all terms.
#[derive(Clone, Copy)]
pub(crate) struct Total;

impl Fold for Total {
    const START: f32 = 0.0;

    #[inline(always)]
    fn term(self, x: Fast, _: Fast, _: Fast) -> Fast {
        x
    }

    #[inline(always)]
    fn join(self, a: Fast, b: Fast) -> Fast {
        a + b
    }
}

/// A reduction of a tensor: extents and strides of the axes that are kept and of those that are not, innermost first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reduction<'a> {
    pub(crate) kept: &'a [(usize, usize)],
    pub(crate) reduced: &'a [(usize, usize)],
    /// Whether the innermost of all is kept.
    pub(crate) keeps_innermost: bool,
}

/// What is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) data: &'a [f32],
    /// The second tensor.
    pub(crate) pairs: &'a [f32],
    /// The tensor that is like the results.
    pub(crate) results: &'a [f32],
}

/// Terms that are added up one after the other in a lane or a column.
const TERMS: usize = 256;
/// Results side by side that are made at once.
const WIDTH: usize = 1024;
/// Lanes of a row.
const LANES: usize = 64;
/// Results that are made at once of few terms each.
const GROUP: usize = 16;
/// Elements that are worth a part of their own, and results that are enough without parts.
const PART: usize = 16_384;
const ENOUGH: usize = 64;

/// The place of number `i` in some axes.
#[inline(always)]
fn offset(dims: &[(usize, usize)], i: usize) -> usize {
    let (mut rest, mut offset) = (i, 0);
    for &(extent, stride) in dims {
        offset += rest % extent * stride;
        rest /= extent;
    }
    offset
}

fn count(dims: &[(usize, usize)]) -> usize {
    dims.iter().map(|dim| dim.0).product()
}

impl Reduction<'_> {
    /// Results that lie together, and terms that do.
    fn runs(&self) -> (usize, usize) {
        let first = |dims: &[(usize, usize)]| dims.first().map_or(1, |dim| dim.0);
        if self.keeps_innermost { (first(self.kept), 1) } else { (1, first(self.reduced)) }
    }

    /// Terms of a part, and how many parts there are.
    fn parts(&self) -> (usize, usize) {
        let (results, terms) = (count(self.kept), count(self.reduced));
        let (width, run) = self.runs();
        let tasks = results.div_ceil(if self.keeps_innermost { width.min(WIDTH) } else { 16 });
        if tasks >= ENOUGH || results * terms < 2 * PART {
            return (terms.max(1), 1);
        }
        // Of long runs, parts of them; otherwise some whole ones.
        let unit = if run > LANES * TERMS { LANES } else { run };
        let least = (PART / width.min(WIDTH)).max(terms.div_ceil(ENOUGH));
        let length = least.next_multiple_of(unit.max(1));
        (length, terms.div_ceil(length))
    }

    /// Elements of the scratch.
    pub(crate) fn scratch(&self) -> usize {
        let (_, parts) = self.parts();
        if parts > 1 { parts * count(self.kept) } else { 0 }
    }

    /// Writes the results, times `scale`.
    pub(crate) fn run<F: Fold>(
        &self,
        cores: &Cores,
        fold: F,
        terms: Terms<'_>,
        scale: f32,
        scratch: &mut [f32],
        output: &mut [f32],
    ) {
        let (results, all) = (count(self.kept), count(self.reduced));
        if results == 0 {
            return;
        }
        let (length, parts) = self.parts();
        let is_split = parts > 1;
        let partial = if is_split { &mut scratch[..parts * results] } else { &mut *output };
        // Tasks have some results of a part: whole rows of them where these are short.
        let (width, _) = self.runs();
        let chunk = match self.keeps_innermost {
            true if width > WIDTH => WIDTH,
            true => width * (WIDTH / width).min(results.div_ceil(width).div_ceil(ENOUGH)).max(1),
            false => results.div_ceil(ENOUGH).clamp(1, 256),
        };
        // A chunk does not reach from one row of long ones into the next.
        let row = if self.keeps_innermost && width > WIDTH { width } else { results };
        let mut tasks = Vec::new();
        for (part, rows) in partial.chunks_mut(results).enumerate() {
            for (i, row_data) in rows.chunks_mut(row).enumerate() {
                let chunks = row_data.chunks_mut(chunk).enumerate();
                tasks.extend(chunks.map(|(j, data)| (part, i * row + j * chunk, data)));
            }
        }
        let scale_now = if is_split { 1.0 } else { scale };
        cores.each(&mut tasks, |_, (part, first, output)| {
            let range = (*part * length, all.min((*part + 1) * length));
            let task = Task { of: *self, fold, terms, range, first: *first, scale: scale_now, output };
            cores.run(task);
        });
        if is_split {
            let of = Reduction { kept: &[(results, 1)], reduced: &[(parts, results)], keeps_innermost: true };
            let joined = Terms { data: scratch, pairs: &[], results: &[] };
            cores.pieces(output, |first, output| {
                let fold = Joined(fold);
                cores.run(Task { of, fold, terms: joined, range: (0, parts), first, scale, output });
            });
        }
    }
}

/// The reduction of partial results.
#[derive(Clone, Copy)]
struct Joined<F>(F);

impl<F: Fold> Fold for Joined<F> {
    const START: f32 = F::START;

    #[inline(always)]
    fn term(self, x: Fast, _: Fast, _: Fast) -> Fast {
        x
    }

    #[inline(always)]
    fn join(self, a: Fast, b: Fast) -> Fast {
        self.0.join(a, b)
    }
}

struct Task<'a, 'b, F> {
    of: Reduction<'a>,
    fold: F,
    terms: Terms<'a>,
    /// Terms from the first to the last.
    range: (usize, usize),
    /// The first result.
    first: usize,
    scale: f32,
    output: &'b mut [f32],
}

impl<F: Fold> Kernel for Task<'_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, _simd: S) {
        if self.of.keeps_innermost {
            self.columns();
        } else {
            self.rows();
        }
        if self.scale != 1.0 {
            for y in &mut *self.output {
                *y *= self.scale;
            }
        }
    }
}

impl<F: Fold> Task<'_, '_, F> {
    /// Elements that lie together become one number.
    #[inline(always)]
    fn rows(&mut self) {
        let Task { of, fold, terms, range, first, .. } = *self;
        let (run, outer) = of.reduced.split_first().map_or((1, &[][..]), |(inner, outer)| (inner.0, outer));
        // Results of few terms that follow each other are made together.
        let is_dense = of.kept.len() == 1 && of.kept[0].1 == run && outer.is_empty() && run < LANES;
        let grouped = if is_dense { self.output.len() / GROUP * GROUP } else { 0 };
        for i in (0..grouped).step_by(GROUP) {
            self.group(i, run);
        }
        for i in grouped..self.output.len() {
            let result = if F::HAS_RESULTS { Fast(terms.results[first + i]) } else { Fast(0.0) };
            let base = offset(of.kept, first + i);
            let mut all = Fast(F::START);
            let mut term = range.0;
            while term < range.1 {
                let within = term % run;
                let count = (run - within).min(range.1 - term).min(LANES * TERMS);
                let from = base + offset(outer, term / run) + within;
                let data = &terms.data[from..from + count];
                let pairs = if F::HAS_PAIRS { &terms.pairs[from..from + count] } else { data };
                all = fold.join(all, row(fold, data, pairs, result));
                term += count;
            }
            self.output[i] = all.0;
        }
    }

    /// Results from one on, whose terms follow each other.
    #[inline(always)]
    fn group(&mut self, at: usize, run: usize) {
        let Task { fold, terms, range, first, .. } = *self;
        let from = (first + at) * run;
        let count = range.1 - range.0;
        let mut rows = [(&[][..], &[][..]); GROUP];
        let mut all = [Fast(F::START); GROUP];
        let mut results = [Fast(0.0); GROUP];
        for i in 0..GROUP {
            let from = from + i * run + range.0;
            rows[i].0 = &terms.data[from..][..count];
            rows[i].1 = if F::HAS_PAIRS { &terms.pairs[from..][..count] } else { rows[i].0 };
            if F::HAS_RESULTS {
                results[i] = Fast(terms.results[first + at + i]);
            }
        }
        for term in 0..count {
            for i in 0..GROUP {
                let (data, pairs) = rows[i];
                all[i] = fold.join(all[i], fold.term(Fast(data[term]), Fast(pairs[term]), results[i]));
            }
        }
        for i in 0..GROUP {
            self.output[at + i] = all[i].0;
        }
    }

    /// Rows are joined to rows.
    #[inline(always)]
    fn columns(&mut self) {
        let Task { of, range, first, .. } = *self;
        let (inner, outer) = of.kept.split_first().expect("bug: no axis is kept");
        let mut at = 0;
        while at < self.output.len() {
            let column = (first + at) % inner.0;
            let width = (inner.0 - column).min(self.output.len() - at).min(WIDTH);
            let base = offset(outer, (first + at) / inner.0) + column;
            let stride = of.reduced.first().map_or(0, |dim| dim.1);
            // Short rows that follow each other are taken as longer ones.
            let is_dense = width == inner.0 && stride == width && of.reduced.len() == 1;
            let wide = if is_dense && width <= LANES { GROUP * 4usize.div_ceil(width) } else { 1 };
            let whole = if wide > 1 { (range.1 - range.0) / wide } else { 0 };
            let mut sums = [F::START; WIDTH];
            if whole > 0 {
                let from = base + range.0 * stride;
                self.rows_to_rows(&mut sums[..wide * width], at, (0, whole), |i| from + i * wide * width, width);
                for k in 1..wide {
                    for i in 0..width {
                        sums[i] = self.fold.join(Fast(sums[i]), Fast(sums[k * width + i])).0;
                    }
                }
            }
            let rest = (range.0 + whole * wide, range.1);
            self.rows_to_rows(&mut sums[..width], at, rest, |i| base + offset(of.reduced, i), width);
            self.output[at..at + width].copy_from_slice(&sums[..width]);
            at += width;
        }
    }

    /// Joins rows to sums, each of which begins at some place, in blocks of so many.
    #[inline(always)]
    fn rows_to_rows(
        &self,
        sums: &mut [f32],
        at: usize,
        range: (usize, usize),
        place: impl Fn(usize) -> usize,
        width: usize,
    ) {
        let Task { fold, terms, first, .. } = *self;
        let mut results = [0.0; WIDTH];
        if F::HAS_RESULTS {
            for (i, result) in results[..sums.len()].iter_mut().enumerate() {
                *result = terms.results[first + at + i % width];
            }
        }
        let results = &results[..sums.len()];
        let mut start = range.0;
        while start < range.1 {
            let end = range.1.min(start + TERMS);
            let mut block = [F::START; WIDTH];
            let block = &mut block[..sums.len()];
            let mut i = start;
            while i + 4 <= end {
                let from = [place(i), place(i + 1), place(i + 2), place(i + 3)];
                four(fold, terms, from, results, block);
                i += 4;
            }
            while i < end {
                let from = place(i);
                let data = &terms.data[from..from + block.len()];
                let pairs = if F::HAS_PAIRS { &terms.pairs[from..from + block.len()] } else { data };
                for (((sum, &x), &pair), &result) in block.iter_mut().zip(data).zip(pairs).zip(results) {
                    *sum = fold.join(Fast(*sum), fold.term(Fast(x), Fast(pair), Fast(result))).0;
                }
                i += 1;
            }
            for (sum, &of_block) in sums.iter_mut().zip(&*block) {
                *sum = fold.join(Fast(*sum), Fast(of_block)).0;
            }
            start = end;
        }
    }
}

/// Four rows at once: sums are read and written once.
#[inline(always)]
fn four<F: Fold>(fold: F, terms: Terms<'_>, from: [usize; 4], results: &[f32], sums: &mut [f32]) {
    let width = sums.len();
    let data = from.map(|from| &terms.data[from..from + width]);
    let pairs = if F::HAS_PAIRS { from.map(|from| &terms.pairs[from..from + width]) } else { data };
    let results = &results[..width];
    for i in 0..width {
        let result = Fast(results[i]);
        let mut terms = [Fast(0.0); 4];
        for k in 0..4 {
            terms[k] = fold.term(Fast(data[k][i]), Fast(pairs[k][i]), result);
        }
        let joined = fold.join(fold.join(terms[0], terms[1]), fold.join(terms[2], terms[3]));
        sums[i] = fold.join(Fast(sums[i]), joined).0;
    }
}

/// The result of a row.
#[inline(always)]
fn row<F: Fold>(fold: F, data: &[f32], pairs: &[f32], result: Fast) -> Fast {
    let mut lanes = [Fast(F::START); LANES];
    for (data, pairs) in data.chunks(LANES).zip(pairs.chunks(LANES)) {
        if data.len() == LANES && pairs.len() == LANES {
            for lane in 0..LANES {
                lanes[lane] = fold.join(lanes[lane], fold.term(Fast(data[lane]), Fast(pairs[lane]), result));
            }
        } else {
            for ((all, &x), &pair) in lanes.iter_mut().zip(data).zip(pairs) {
                *all = fold.join(*all, fold.term(Fast(x), Fast(pair), result));
            }
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = fold.join(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}
