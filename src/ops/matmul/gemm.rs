//! Matrix products as ops launch them: the kernels of `shaders/matmul.wgsl`, the choice of tiles and of split sums, and the
//! product that CPU twins share.

use crate::ops::sums::Blocks;
use crate::ops::{Dispatch, MAX_LOOP_ITERATIONS, Real, Slot};
use crate::shader::{Family, ProductKind, ProductSize, Target, Tile};

/// Rows and columns of the tile that the choice of split sums assumes on every device.
const TILE: usize = 64;

/// With fewer tiles than this the sum is split, so that a device has enough workgroups to work on.
const ENOUGH_TILES: usize = 32;

/// The same where a workgroup is one subgroup: software devices have as many cores as a CPU, and a split sum is stored and
/// loaded again.
const ENOUGH_SUBGROUP_TILES: usize = 8;

/// No part of a split sum is made shorter than so many steps.
const SHORTEST_PART: usize = 64;

/// Steps that the workgroups of one family take together, and so what parts of a split sum are multiples of.
const STEPS_TOGETHER: usize = 4;

/// Rows and columns that a subgroup of `Family::Cooperative` computes.
const PART: u32 = 32;

/// Terms of a sum that workgroups load at a time.
const BLOCK_TERMS: u32 = 16;

/// Rows that a reduction adds one after the other, as in its kernel.
const BLOCK_ROWS: usize = 32;

/// Rows of a subgroup's tile that are stored by the same code.
const STORED_ROWS: usize = 16;

/// From here on a product is worth the larger tile.
const LARGE_FLOPS: u64 = 4_000_000;

/// What the choice of a tile depends on.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Product {
    pub(in crate::ops) kind: ProductKind,
    pub(in crate::ops) m: usize,
    pub(in crate::ops) n: usize,
    /// How many there are of these extents.
    pub(in crate::ops) depth: usize,
    /// Of all of them.
    pub(in crate::ops) flops: u64,
}

/// Tile of one workgroup, and the family that computes it.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Tiling {
    pub(in crate::ops) family: Family,
    pub(in crate::ops) tile_m: usize,
    pub(in crate::ops) tile_n: usize,
    /// Groups of four rows and of four columns that an invocation computes. Subgroups: groups of four rows that a lane loads,
    /// and steps of the sum that lanes load at a time, several where there are fewer rows than lanes could load. Matrices:
    /// blocks of a subgroup's part along each side.
    vectors: [usize; 2],
}

impl Tiling {
    /// The tiling for a target and a product.
    pub(in crate::ops) fn new(target: &Target, product: Product) -> Self {
        let Product { kind, m, n, depth, flops } = product;
        let size = ProductSize::of(m, n, depth);
        if let Family::Cooperative { size, .. } = target.family {
            let Tile { rows, columns } = Tile::USUAL;
            let blocks = (PART / size) as usize;
            return Tiling {
                family: target.family,
                tile_m: rows as usize,
                tile_n: columns as usize,
                vectors: [blocks, blocks],
            };
        }
        match Self::family(target) {
            family @ Family::Subgroup { size: lanes } => {
                let rows = 4 * lanes as usize;
                // Two panels halve the loads of B, but pay only where they are filled, and where there is enough to do to
                // make up for the longer code that a driver compiles. Of larger subgroups two would be very long.
                let filled = m % (2 * rows) > rows || m.is_multiple_of(2 * rows);
                let is_worth_it = match target.tiles.get(kind, size) {
                    Some(tile) => tile.rows as usize > rows,
                    None => flops >= LARGE_FLOPS,
                };
                let panels = if lanes <= 8 && filled && is_worth_it { 2 } else { 1 };
                let step_lanes = if 2 * m <= rows { 2 } else { 1 };
                Tiling { family, tile_m: rows * panels / step_lanes, tile_n: rows, vectors: [panels, step_lanes] }
            }
            _ => Self::of_workgroup(target.tiles.of_workgroup(kind, size)),
        }
    }

    /// The family of a target's products and of what goes with them. Larger subgroups than 16 would unroll to very long code.
    pub(in crate::ops) fn family(target: &Target) -> Family {
        match target.family {
            family @ Family::Subgroup { size: 4 | 8 | 16 } => family,
            _ => Family::Workgroup,
        }
    }

    fn of_workgroup(Tile { rows, columns }: Tile) -> Self {
        let vectors = match (rows, columns) {
            (32, 32) => [1, 1],
            (64, 64) => [2, 1],
            _ => [2, 2],
        };
        Tiling { family: Family::Workgroup, tile_m: rows as usize, tile_n: columns as usize, vectors }
    }

    /// Columns of every tile of products in panels on this target.
    pub(in crate::ops) fn panel_width(target: &Target) -> usize {
        Tiling::new(target, Product { kind: ProductKind::Winograd, m: 0, n: 0, depth: 0, flops: 0 }).tile_n
    }

    /// Flops of `depth` products of `terms` terms, with whole tiles and vectors.
    pub(in crate::ops) fn flops(&self, m: usize, n: usize, depth: usize, terms: usize) -> u64 {
        let cells = m.next_multiple_of(self.tile_m) as u64 * n.next_multiple_of(self.tile_n) as u64;
        2 * cells * (depth * terms.next_multiple_of(4)) as u64
    }

    /// Gives a launch the family and the constants of `shared/gemm.wgsl`, and one workgroup for each tile of `depth`
    /// products.
    pub(in crate::ops) fn apply(&self, dispatch: Dispatch, m: usize, n: usize, depth: usize) -> Dispatch {
        let dispatch = dispatch
            .family(self.family)
            .constant("TILE_M", self.tile_m as u32)
            .constant("TILE_N", self.tile_n as u32)
            .linear(m.div_ceil(self.tile_m) * n.div_ceil(self.tile_n) * depth);
        let [first, second] = self.vectors;
        match self.family {
            Family::Subgroup { size } => dispatch
                .constant("STORED", self.tile_m.min(STORED_ROWS) as u32)
                .constant("SHIFTED", self.tile_m.saturating_sub(STORED_ROWS) as u32)
                .constant("PANELS", first as u32)
                .constant("STEP_LANES", second as u32)
                .constant("ROW_LANES", size / second as u32)
                .flags([("SPREAD", second > 1)]),
            Family::Cooperative { size, .. } => dispatch
                .constant("COOPERATIVE", size)
                .constant("BLOCKS", first as u32)
                .constant("K_BLOCKS", BLOCK_TERMS / size),
            Family::Workgroup => {
                let invocations = self.tile_m * self.tile_n / (first * second * 16);
                dispatch
                    .constant("ROW_VECTORS", first as u32)
                    .constant("COLUMN_VECTORS", second as u32)
                    .constant("LOADS", (self.tile_m + self.tile_n).div_ceil(invocations) as u32)
            }
        }
    }
}

/// Into how many parts a sum is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Split {
    /// Parts.
    pub(in crate::ops) parts: usize,
    /// Steps of four terms in each part but the last.
    pub(in crate::ops) steps: usize,
}

impl Split {
    /// Splits a sum of so many steps, for `depth` products of `m` rows by `n` columns, as `family` computes them.
    pub(in crate::ops) fn new(family: Family, m: usize, n: usize, depth: usize, steps: usize) -> Self {
        let tiles = m.div_ceil(TILE) * n.div_ceil(TILE) * depth;
        let enough = match family {
            Family::Subgroup { .. } => ENOUGH_SUBGROUP_TILES,
            Family::Workgroup | Family::Cooperative { .. } => ENOUGH_TILES,
        };
        let wanted = (enough / tiles.max(1)).min(steps / SHORTEST_PART).max(1);
        // However few the tiles, no invocation may loop too often. Some iterations are left for the ends of loops.
        let needed = steps.div_ceil(MAX_LOOP_ITERATIONS as usize - 64).max(1);
        let size = steps.div_ceil(wanted.max(needed)).max(1).next_multiple_of(STEPS_TOGETHER);
        Split { parts: steps.div_ceil(size).max(1), steps: size }
    }

    /// Bytes of the results of the parts, of `count` elements each, on the device that needs most: plans are made without
    /// one.
    pub(in crate::ops) fn most_bytes(m: usize, n: usize, depth: usize, steps: usize, count: usize) -> Option<u64> {
        Split::new(Family::Workgroup, m, n, depth, steps).workspace_bytes(count)
    }

    /// Whether there is more than one part, so that a workspace and a reduction are needed.
    pub(in crate::ops) fn is_split(&self) -> bool {
        self.parts > 1
    }

    /// Bytes of the parts' results.
    fn workspace_bytes(&self, count: usize) -> Option<u64> {
        self.is_split().then(|| (self.parts * count.next_multiple_of(4) * 4) as u64)
    }
}

/// Where a matrix lies in a buffer, in elements.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Matrix {
    pub(in crate::ops) slot: Slot,
    /// First element.
    pub(in crate::ops) offset: usize,
    /// Distance between rows in memory.
    pub(in crate::ops) stride: usize,
    /// Distance between matrices of a batch.
    pub(in crate::ops) batch: usize,
    /// Distance between terms of an outer sum.
    pub(in crate::ops) outer: usize,
    /// Distance between panels, 0 where rows are whole: only `stride` elements of each lie beside those of the next row
    /// then. All three matrices of a product have panels, as wide as its tile, or none.
    pub(in crate::ops) panel: usize,
}

impl Matrix {
    /// A matrix at the start of a buffer.
    pub(in crate::ops) fn new(slot: Slot, stride: usize) -> Self {
        Matrix { slot, offset: 0, stride, batch: 0, outer: 0, panel: 0 }
    }

    /// A batch of matrices of so many rows and columns in panels as wide as tiles; the last panel is padded.
    pub(in crate::ops) fn in_panels(slot: Slot, rows: usize, columns: usize, width: usize) -> Self {
        let batch = rows * columns.next_multiple_of(width);
        Matrix { batch, panel: rows * width, ..Matrix::new(slot, width) }
    }

    /// The matrix so many elements further on.
    pub(in crate::ops) fn shifted(self, by: usize) -> Self {
        Matrix { offset: self.offset + by, ..self }
    }

    fn is_aligned(&self) -> bool {
        [self.offset, self.stride, self.batch, self.outer, self.panel].iter().all(|x| x % 4 == 0)
    }
}

/// `c[row, column] = Σ over outer, k of op(a)[row, k] · op(b)[k, column]`, `batch` times.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Gemm {
    pub(in crate::ops) m: usize,
    pub(in crate::ops) n: usize,
    pub(in crate::ops) k: usize,
    pub(in crate::ops) outer: usize,
    pub(in crate::ops) batch: usize,
    pub(in crate::ops) trans_a: bool,
    pub(in crate::ops) trans_b: bool,
    /// Adds to `c`.
    pub(in crate::ops) accumulate: bool,
    /// `n` numbers that the sums of each row start from. Not in a batch, and not together with `accumulate`.
    pub(in crate::ops) bias: Option<Slot>,
    /// Whether negative results become 0.
    pub(in crate::ops) relu: bool,
}

params! {
    struct Params {
        m: u32,
        n: u32,
        k: u32,
        k_steps: u32,
        lda: u32,
        ldb: u32,
        ldc: u32,
        a_offset: u32,
        b_offset: u32,
        c_offset: u32,
        a_outer: u32,
        b_outer: u32,
        a_batch: u32,
        b_batch: u32,
        c_batch: u32,
        splits: u32,
        part_steps: u32,
        steps: u32,
        c_split: u32,
        a_panel: u32,
        b_panel: u32,
        c_panel: u32,
        tiles_fast: u32,
        tiles_slow: u32,
        columns_first: u32,
        depth: u32,
    }
}

impl Gemm {
    /// One product, without transposing.
    pub(in crate::ops) fn new(m: usize, n: usize, k: usize) -> Self {
        Gemm { m, n, k, outer: 1, batch: 1, trans_a: false, trans_b: false, accumulate: false, bias: None, relu: false }
    }

    /// Steps of four terms, rounded up for each of the outer sum.
    fn steps(&self) -> usize {
        self.outer * self.k.div_ceil(4)
    }

    /// Elements of all results.
    fn count(&self) -> usize {
        self.batch * self.m * self.n
    }

    /// Bytes of the workspace that a split sum needs.
    pub(in crate::ops) fn workspace_bytes(&self) -> Option<u64> {
        Split::most_bytes(self.m, self.n, self.batch, self.steps(), self.count())
    }

    /// Flops of all products.
    pub(in crate::ops) fn flops(&self) -> u64 {
        2 * (self.batch * self.m * self.n) as u64 * (self.outer * self.k) as u64
    }

    /// The launches, with split sums through the workspace, for a dense `c`.
    pub(in crate::ops) fn dispatches(
        &self,
        target: &Target,
        a: Matrix,
        b: Matrix,
        c: Slot,
        workspace: Slot,
    ) -> Vec<Dispatch> {
        let tiling = self.tiling(target);
        let split = Split::new(tiling.family, self.m, self.n, self.batch, self.steps());
        let dense = Matrix { batch: self.m * self.n, ..Matrix::new(c, self.n) };
        if split.is_split() {
            let parts = Matrix { slot: workspace, ..dense };
            let mut sum = reduce(workspace, c, split.parts, self.count());
            if let Some(bias) = self.bias {
                sum.bindings.push(bias);
                sum = sum.constant("BIAS", 1).constant("COLUMNS", self.n as u32);
            }
            vec![
                Gemm { accumulate: false, bias: None, relu: false, ..*self }.launch(tiling, a, b, parts, split),
                sum.flags([("ACCUMULATE", self.accumulate), ("RELU", self.relu)]),
            ]
        } else {
            vec![self.launch(tiling, a, b, dense, split)]
        }
    }

    /// The tiling that is best for all results together.
    pub(in crate::ops) fn tiling(&self, target: &Target) -> Tiling {
        self.tiling_as(ProductKind::Matrices, target)
    }

    fn tiling_as(&self, kind: ProductKind, target: &Target) -> Tiling {
        Tiling::new(target, Product { kind, m: self.m, n: self.n, depth: self.batch, flops: self.flops() })
    }

    /// One launch whose sum is not split, for a `c` that may have gaps.
    ///
    /// The caller makes sure that `outer * k / 4` stays below the limit of loop iterations.
    pub(in crate::ops) fn single(&self, target: &Target, a: Matrix, b: Matrix, c: Matrix) -> Dispatch {
        let kind = if a.panel > 0 { ProductKind::Winograd } else { ProductKind::Matrices };
        self.single_tiled(self.tiling_as(kind, target), a, b, c)
    }

    /// As `single`, with the tiling of another product: each result then has the bits that it has there, on every device,
    /// since the same code computes it.
    pub(in crate::ops) fn single_tiled(&self, tiling: Tiling, a: Matrix, b: Matrix, c: Matrix) -> Dispatch {
        self.launch(tiling, a, b, c, Split { parts: 1, steps: self.steps() })
    }

    fn launch(&self, tiling: Tiling, a: Matrix, b: Matrix, c: Matrix, split: Split) -> Dispatch {
        let depth = self.batch * split.parts;
        let c_split = self.count().next_multiple_of(4);
        let (tiles_m, tiles_n) = (self.m.div_ceil(tiling.tile_m), self.n.div_ceil(tiling.tile_n));
        // The larger of a and b passes through the caches once, while the smaller stays there.
        let columns_first = self.m > self.n;
        let params = Params {
            m: self.m as u32,
            n: self.n as u32,
            k: self.k as u32,
            k_steps: self.k.div_ceil(4) as u32,
            lda: a.stride as u32,
            ldb: b.stride as u32,
            ldc: c.stride as u32,
            a_offset: a.offset as u32,
            b_offset: b.offset as u32,
            c_offset: c.offset as u32,
            a_outer: a.outer as u32,
            b_outer: b.outer as u32,
            a_batch: a.batch as u32,
            b_batch: b.batch as u32,
            c_batch: c.batch as u32,
            splits: split.parts as u32,
            part_steps: split.steps as u32,
            steps: self.steps() as u32,
            c_split: c_split as u32,
            a_panel: a.panel as u32,
            b_panel: b.panel as u32,
            c_panel: c.panel as u32,
            tiles_fast: if columns_first { tiles_n } else { tiles_m } as u32,
            tiles_slow: if columns_first { tiles_m } else { tiles_n } as u32,
            columns_first: u32::from(columns_first),
            depth: depth as u32,
        };
        let mut bindings = vec![a.slot, b.slot, c.slot];
        bindings.extend(self.bias);
        let mut dispatch =
            Dispatch::new("matmul", "forward", bindings).params(&params).loops(split.steps.min(self.steps()));
        if a.panel > 0 {
            debug_assert!([a, b, c].iter().all(|matrix| matrix.panel > 0 && matrix.stride == tiling.tile_n));
            dispatch = dispatch.constant("PANEL", tiling.tile_n as u32);
        }
        let flags = [
            ("TRANS_A", self.trans_a),
            ("TRANS_B", self.trans_b),
            ("VEC_A", a.is_aligned()),
            ("VEC_B", b.is_aligned()),
            ("BY_ELEMENT", !c.is_aligned() || !self.n.is_multiple_of(4)),
            ("ACCUMULATE", self.accumulate),
            ("COLUMN_START", self.bias.is_some()),
            ("RELU", self.relu),
            ("K_TAIL", !self.k.is_multiple_of(4)),
            ("OUTER", self.outer > 1),
        ];
        let flops = tiling.flops(self.m, self.n, self.batch * self.outer, self.k);
        tiling.apply(dispatch.flags(flags).flops(flops), self.m, self.n, depth)
    }
}

params! {
    struct ReduceParams {
        vectors: u32,
        rows: u32,
        terms: u32,
        sums: u32,
    }
}

/// Adds `rows` rows of `columns` elements, `terms` at a time. Rows are padded to a multiple of 4 elements.
pub(in crate::ops) fn reduce_rows(parts: Slot, output: Slot, rows: usize, columns: usize, terms: usize) -> Dispatch {
    let (vectors, sums) = (columns.div_ceil(4), rows.div_ceil(terms).max(1));
    let params = ReduceParams { vectors: vectors as u32, rows: rows as u32, terms: terms as u32, sums: sums as u32 };
    Dispatch::new("matmul", "reduce", [parts, output])
        .params(&params)
        .loops(terms + terms.div_ceil(BLOCK_ROWS))
        .linear((vectors * sums).div_ceil(64))
}

/// Adds the results of the parts of a split sum, `count` elements each.
pub(in crate::ops) fn reduce(parts: Slot, output: Slot, splits: usize, count: usize) -> Dispatch {
    reduce_rows(parts, output, splits, count, splits)
}

/// A matrix for [`multiply`]: its data from the first element on, distance between rows in memory, transposed or not.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct View<'a, T> {
    pub(in crate::ops) data: &'a [T],
    pub(in crate::ops) stride: usize,
    pub(in crate::ops) transposed: bool,
}

impl<'a, T> View<'a, T> {
    /// As it lies.
    pub(in crate::ops) fn new(data: &'a [T], stride: usize) -> Self {
        View { data, stride, transposed: false }
    }

    /// Rows and columns swapped.
    pub(in crate::ops) fn transposed(data: &'a [T], stride: usize) -> Self {
        View { data, stride, transposed: true }
    }
}

/// `c[m, n] += a[m, k] · b[k, n]` on the CPU; rows of `c` are `ldc` apart.
pub(in crate::ops) fn multiply<T: Real>(
    m: usize,
    n: usize,
    k: usize,
    a: View<'_, T>,
    b: View<'_, T>,
    c: &mut [T],
    ldc: usize,
) {
    // The innermost loop runs along rows of b and c, so a transposed b is copied once.
    let copied: Vec<T>;
    let (b, ldb) = if b.transposed {
        copied = (0..k).flat_map(|p| (0..n).map(move |j| b.data[j * b.stride + p])).collect();
        (copied.as_slice(), n)
    } else {
        (b.data, b.stride)
    };
    let (row_step, k_step) = if a.transposed { (1, a.stride) } else { (a.stride, 1) };
    for i in 0..m {
        let c = &mut c[i * ldc..][..n];
        let mut sums = Blocks::new(c.to_vec());
        for p in 0..k {
            let x = a.data[i * row_step + p * k_step];
            for (sum, &y) in sums.next_term().iter_mut().zip(&b[p * ldb..][..n]) {
                *sum += x * y;
            }
        }
        sums.write(c);
    }
}
